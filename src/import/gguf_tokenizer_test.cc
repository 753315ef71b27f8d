// SPDX-License-Identifier: MIT
//
// Holds GGUF tokenizers to published vocabularies and their expected ids, and the importer to its
// refusals.

#include "import/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "import/gguf_pretokenizers.h"
#include "import/testing/tokenizer_fixture.h"

namespace qsf {
namespace {

using testing_support::decode;
using testing_support::encode;
using testing_support::open_tokenizer;
using testing_support::read_file;

// Cuts the inputs at their separator lines.
std::vector<std::string> split_inputs(const std::string& text) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> inputs;
  std::size_t begin = 0;
  for (std::size_t at = text.find(separator); at != std::string::npos;
       at = text.find(separator, begin)) {
    inputs.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  return inputs;
}

class GgufVocabularyTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufVocabularyTest, EncodesEveryInputAsPublished) {
  const std::string path =
      std::string(QSF_SHARED_DIR) + "/tokenizers/ggml-vocab-" + GetParam() + ".gguf";
  const auto file = read_file(path);
  if (!file.has_value())
    GTEST_SKIP() << path << " is not there: published vocabularies not checked";
  const auto gguf = GgufReader::parse(as_bytes(*file), file->size());
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message();
  const auto data = tokenizer_from_gguf(*gguf);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  auto tokenizer = open_tokenizer(*data);
  ASSERT_TRUE(tokenizer->tokenizer.has_value()) << tokenizer->error;

  const auto inputs = split_inputs(read_file(path + ".inp").value());
  std::istringstream expected(read_file(path + ".out").value());
  ASSERT_EQ(inputs.size(), 46U);
  for (const std::string& input : inputs) {
    std::string line;
    ASSERT_TRUE(std::getline(expected, line));
    std::istringstream numbers(line);
    std::vector<TokenId> ids;
    for (TokenId id; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(encode(*tokenizer->tokenizer, input, /*parse_special=*/false), ids) << input;
    EXPECT_EQ(decode(*tokenizer->tokenizer, ids), input);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufVocabularyTest,
                         testing::Values("gpt-2", "llama-spm", "phi-3", "deepseek-llm", "falcon",
                                         "starcoder"),
                         [](const auto& named) {
                           std::string name = named.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace qsf
