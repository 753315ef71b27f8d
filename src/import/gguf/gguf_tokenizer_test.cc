// SPDX-License-Identifier: MIT
//
// Holds GGUF tokenizers to published vocabularies and their expected ids, and the importer to its
// refusals.

#include "import/gguf/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "import/hf/hf_tokenizer.h"
#include "import/testing/gguf_writer.h"
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

// Writes a GGUF file with a byte-level tokenizer of a few tokens and one tensor.
struct GgufBuilder {
  ByteWriter keys;
  std::uint64_t n_keys = 0;
  ByteWriter tensors;
  std::uint64_t n_tensors = 0;

  static void string(ByteWriter& out, std::string_view text) {
    out.write<std::uint64_t>(text.size());
    out.write_text(text);
  }
  void key(std::string_view name, GgufType type) {
    ++n_keys;
    string(keys, name);
    keys.write<std::uint32_t>(static_cast<std::uint32_t>(type));
  }
  void text(std::string_view name, std::string_view value) {
    key(name, GgufType::kString);
    string(keys, value);
  }
  void texts(std::string_view name, const std::vector<std::string>& values) {
    key(name, GgufType::kArray);
    keys.write<std::uint32_t>(static_cast<std::uint32_t>(GgufType::kString));
    keys.write<std::uint64_t>(values.size());
    for (const std::string& value : values) string(keys, value);
  }
  template <typename T>
  void numbers(std::string_view name, GgufType type, const std::vector<T>& values) {
    key(name, GgufType::kArray);
    keys.write<std::uint32_t>(static_cast<std::uint32_t>(type));
    keys.write<std::uint64_t>(values.size());
    for (const T value : values) keys.write<T>(value);
  }
  void number(std::string_view name, std::uint32_t value) {
    key(name, GgufType::kU32);
    keys.write<std::uint32_t>(value);
  }
  void tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
              std::uint64_t offset) {
    ++n_tensors;
    string(tensors, name);
    tensors.write<std::uint32_t>(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) tensors.write<std::uint64_t>(dim);
    tensors.write<std::uint32_t>(type);
    tensors.write<std::uint64_t>(offset);
  }
  std::string file(std::size_t n_data) const {
    ByteWriter out;
    out.write_text("GGUF");
    out.write<std::uint32_t>(3);
    out.write<std::uint64_t>(n_tensors);
    out.write<std::uint64_t>(n_keys);
    out.write_bytes(keys.view());
    out.write_bytes(tensors.view());
    out.pad_to(32);
    out.write_text(std::string(n_data, 'd'));
    return std::string(as_text(out.view()));
  }
};

GgufBuilder byte_level_file(const std::string& pre = "gpt-2") {
  GgufBuilder gguf;
  gguf.text("tokenizer.ggml.model", "gpt2");
  gguf.text("tokenizer.ggml.pre", pre);
  gguf.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "\xC4\xA0", "<|eot_id|>", "<user>"});
  gguf.numbers<std::int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {1, 1, 1, 1, 3, 4});
  gguf.texts("tokenizer.ggml.merges", {"a b", "a b"});
  gguf.number("tokenizer.ggml.eos_token_id", 2);
  return gguf;
}

Status parse_status(const std::string& file) {
  const auto gguf = GgufReader::parse(as_bytes(file), file.size());
  return gguf.has_value() ? ok_status() : gguf.error();
}

TEST(GgufReaderTest, ReadsKeysAndTensors) {
  GgufBuilder builder = byte_level_file();
  builder.tensor("t", {32, 2}, 2, 0);
  builder.tensor("u", {3}, 36, 64);
  const std::string file = builder.file(80);
  const auto gguf = GgufReader::parse(as_bytes(file), file.size());
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message();
  EXPECT_EQ(gguf->get_unsigned("tokenizer.ggml.eos_token_id").value(), 2U);
  EXPECT_EQ(gguf->get_string("tokenizer.ggml.pre").value(), "gpt-2");
  EXPECT_FALSE(gguf->get_string("absent").value().has_value());
  EXPECT_FALSE(gguf->get_float("tokenizer.ggml.pre").has_value());
  EXPECT_FALSE(gguf->get_bool("tokenizer.ggml.pre").has_value());
  EXPECT_FALSE(gguf->get_integers("tokenizer.ggml.pre").has_value());
  EXPECT_EQ(gguf->get_integers("tokenizer.ggml.token_type").value()->at(4), 3);
  const GgufTensor* t = gguf->find_tensor("t");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->n_bytes, 36U);
  EXPECT_EQ(t->available_bytes, 64U);
  EXPECT_EQ(t->file_offset, gguf->data_offset());
  EXPECT_EQ(gguf->find_tensor("u")->n_bytes, 0U);
  EXPECT_EQ(gguf->find_tensor("u")->available_bytes, 16U);
  EXPECT_EQ(gguf->find_tensor("v"), nullptr);
}

// 39 is MXFP4 to ggml and TL2, which has other sizes, to bitnet.cpp.
TEST(GgufReaderTest, TheFamilyOfAFileSaysWhatItsTypesAreCalled) {
  for (const auto& [architecture, name, n_bytes] :
       {std::tuple("llama", "MXFP4", 34U), std::tuple("bitnet-b1.58", "TL2", 0U)}) {
    GgufBuilder builder;
    builder.text("general.architecture", architecture);
    builder.tensor("t", {32, 2}, 39, 0);
    const std::string file = builder.file(34);
    const auto gguf = GgufReader::parse(as_bytes(file), file.size());
    ASSERT_TRUE(gguf.has_value()) << gguf.error().message();
    EXPECT_STREQ(gguf->find_tensor("t")->type_name, name);
    EXPECT_EQ(gguf->find_tensor("t")->n_bytes, n_bytes);
  }
}

TEST(GgufReaderTest, RefusesWhatDoesNotFit) {
  const auto with_tensor = [](std::vector<std::uint64_t> dims, std::uint32_t type,
                              std::uint64_t offset) {
    GgufBuilder builder;
    builder.tensor("t", std::move(dims), type, offset);
    return parse_status(builder.file(64)).code();
  };
  EXPECT_EQ(with_tensor({16}, 0, 0), StatusCode::kOk);
  EXPECT_EQ(with_tensor({17}, 0, 0), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({0}, 0, 0), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({16, 0}, 0, 0), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({1, 1, 1, 1, 1}, 0, 0), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({1ULL << 40, 1ULL << 40}, 0, 0), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({8}, 0, 8), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({8}, 0, 32), StatusCode::kOk);
  EXPECT_EQ(with_tensor({8}, 0, 64), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({8}, 0, ~31ULL), StatusCode::kCorrupt);
  EXPECT_EQ(with_tensor({33}, 2, 0), StatusCode::kCorrupt);

  GgufBuilder twice = byte_level_file();
  twice.number("tokenizer.ggml.eos_token_id", 1);
  EXPECT_EQ(parse_status(twice.file(0)).code(), StatusCode::kCorrupt);
  GgufBuilder overlap;
  overlap.tensor("t", {16}, 0, 0);
  overlap.tensor("u", {8}, 0, 32);
  EXPECT_EQ(parse_status(overlap.file(64)).code(), StatusCode::kCorrupt);
  GgufBuilder same_name;
  same_name.tensor("t", {8}, 0, 0);
  same_name.tensor("t", {8}, 0, 32);
  EXPECT_EQ(parse_status(same_name.file(64)).code(), StatusCode::kCorrupt);
  for (const std::uint32_t alignment : {0U, 3U, 48U}) {
    GgufBuilder builder;
    builder.number("general.alignment", alignment);
    EXPECT_EQ(parse_status(builder.file(0)).code(), StatusCode::kCorrupt) << alignment;
  }
  GgufBuilder text_alignment;
  text_alignment.text("general.alignment", "32");
  EXPECT_EQ(parse_status(text_alignment.file(0)).code(), StatusCode::kCorrupt);
  std::string version = byte_level_file().file(0);
  version[4] = 1;
  EXPECT_EQ(parse_status(version).code(), StatusCode::kUnsupported);
}

TEST(GgufReaderTest, EveryPrefixFailsAndEveryChangedByteIsHarmless) {
  GgufBuilder builder = byte_level_file();
  builder.tensor("t", {32, 2}, 2, 0);
  const std::string file = builder.file(36);
  ASSERT_TRUE(parse_status(file).ok());
  for (std::size_t n = 0; n < file.size(); ++n)
    EXPECT_FALSE(parse_status(file.substr(0, n)).ok()) << n;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (int change = 1; change < 256; change += 2) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ static_cast<char>(change));
      const auto gguf = GgufReader::parse(as_bytes(changed), changed.size());
      if (!gguf.has_value()) continue;
      const auto data = tokenizer_from_gguf(*gguf);
      if (data.has_value()) static_cast<void>(write_tokenizer_section(*data).has_value());
    }
  }
}

TEST(GgufTokenizerTest, ReadsAByteLevelTokenizer) {
  const std::string file = byte_level_file().file(0);
  const auto gguf = GgufReader::parse(as_bytes(file), file.size());
  ASSERT_TRUE(gguf.has_value());
  const auto data = tokenizer_from_gguf(*gguf);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  EXPECT_EQ(data->stop_ids, (std::vector<TokenId>{2, 4}));
  auto tokenizer = open_tokenizer(*data);
  ASSERT_TRUE(tokenizer->tokenizer.has_value()) << tokenizer->error;
  EXPECT_EQ(encode(*tokenizer->tokenizer, "ab a<|eot_id|><user>"),
            (std::vector<TokenId>{2, 3, 0, 4, 5}));
}

// BitNet's converter leaves the name of the splits out; the size of the vocabulary tells them.
TEST(GgufTokenizerTest, AVocabularyOfLlama3WithoutANameIsSplitAsItsOwn) {
  for (const std::size_t n_tokens : {128256U, 128255U}) {
    testing_support::GgufWriter writer;
    writer.add_text("tokenizer.ggml.model", "gpt2");
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < n_tokens; ++i) tokens.push_back("t" + std::to_string(i));
    writer.add_texts("tokenizer.ggml.tokens", tokens);
    writer.add_texts("tokenizer.ggml.merges", {});
    const std::string file = writer.finish();
    const auto gguf = GgufReader::parse(as_bytes(file), file.size());
    ASSERT_TRUE(gguf) << gguf.error().message();
    const auto data = tokenizer_from_gguf(*gguf);
    ASSERT_TRUE(data) << data.error().message();
    const GgufPretokenizer& pre =
        *find_gguf_pretokenizer(n_tokens == 128256 ? "llama-bpe" : "default");
    EXPECT_EQ(data->ignore_merges, pre.ignore_merges);
    ASSERT_FALSE(data->steps.empty());
    EXPECT_EQ(data->steps.front().text, pre.expressions[0]);
  }
}

// BERT's vocabulary of testdata, in whose folder a token's id is its line.
struct WordFile {
  explicit WordFile(const std::string& folder) {
    const std::string path = std::string(QSF_SOURCE_DIR) + "/testdata/tokenizer/" + folder + "/";
    for (const HfTokenizerFileName& entry : hf_tokenizer_file_names()) {
      files.*entry.content = read_file(path + entry.name);
    }
    const auto data = tokenizer_from_hf(files);
    EXPECT_TRUE(data.has_value()) << data.error().message();
    for (const VocabToken& token : data->tokens) {
      const bool special = token.type != TokenType::kNormal;
      const bool continues = token.text.starts_with("##");
      tokens.push_back(special     ? token.text
                       : continues ? token.text.substr(2)
                                   : "\xE2\x96\x81" + token.text);
      types.push_back(special ? 3U : 1U);
    }
  }

  Result<TokenizerData> read() const {
    testing_support::GgufWriter writer;
    writer.add_text("tokenizer.ggml.model", "bert");
    writer.add_text("tokenizer.ggml.pre", "jina-v2-en");
    writer.add_texts("tokenizer.ggml.tokens", tokens);
    if (!types.empty()) writer.add_u32s("tokenizer.ggml.token_type", types);
    for (const auto& [key, id] : ids) writer.add_u32("tokenizer.ggml." + key, id);
    for (const auto& [key, value] : booleans) writer.add_bool("tokenizer.ggml." + key, value);
    const std::string file = writer.finish();
    const auto gguf = GgufReader::parse(as_bytes(file), file.size());
    EXPECT_TRUE(gguf) << gguf.error().message();
    return tokenizer_from_gguf(*gguf);
  }

  HfTokenizerFiles files;
  std::vector<std::string> tokens;
  std::vector<std::uint32_t> types;
  std::map<std::string, std::uint32_t> ids = {{"bos_token_id", 2},
                                              {"seperator_token_id", 3},
                                              {"padding_token_id", 0},
                                              {"unknown_token_id", 1}};
  std::map<std::string, bool> booleans;
};

void expect_equal_sections(const Result<TokenizerData>& ours, const HfTokenizerFiles& files) {
  ASSERT_TRUE(ours.has_value()) << ours.error().message();
  const auto theirs = tokenizer_from_hf(files);
  EXPECT_EQ(*write_tokenizer_section(*ours), *write_tokenizer_section(*theirs));
}

TEST(GgufTokenizerTest, WordPiecesAreThoseOfTheFolder) {
  WordFile words("bert");
  expect_equal_sections(words.read(), words.files);
  // Older files call the first token otherwise.
  words.ids.erase("bos_token_id");
  words.ids["cls_token_id"] = 2;
  expect_equal_sections(words.read(), words.files);
  WordFile cased("bert_cased");
  cased.booleans["normalizer.lowercase"] = false;
  expect_equal_sections(cased.read(), cased.files);
  cased.booleans["normalizer.strip_accents"] = true;
  EXPECT_EQ(cased.read()->steps[2].op, TextOp::kStripMarks);
  EXPECT_EQ(cased.read()->steps[3].op, TextOp::kSplit);
}

TEST(GgufTokenizerTest, WordPiecesHaveTheIdsOfBertWhereNoneAreNamed) {
  WordFile words("bert");
  words.ids.clear();
  const auto data = words.read();
  ASSERT_TRUE(data.has_value()) << data.error().message();
  EXPECT_EQ(data->pad, 0U);
  EXPECT_EQ(data->unk, 100U);
  EXPECT_EQ(data->bos, 101U);
  EXPECT_EQ(data->eos, 102U);
  EXPECT_TRUE(data->add_bos && data->add_eos);
  EXPECT_EQ(data->tokens[100].type, TokenType::kUnknown);
  EXPECT_EQ(data->tokens[101].type, TokenType::kControl);
  words.tokens.resize(100);
  words.types.clear();
  EXPECT_NE(words.read().error().message().find("100 tokens without"), std::string::npos);
}

// Files of the first converters say of no token that it is special.
TEST(GgufTokenizerTest, TokensInBracketsAreNotParts) {
  WordFile words("bert");
  words.types.clear();
  words.tokens.push_back("[unused1]");
  words.tokens.push_back("]");
  words.tokens.push_back("\xE2\x96\x81[x]");
  const auto data = words.read();
  ASSERT_TRUE(data.has_value()) << data.error().message();
  const std::size_t n = words.tokens.size();
  EXPECT_EQ(data->tokens[2].text, "[CLS]");
  EXPECT_EQ(data->tokens[2].type, TokenType::kControl);
  EXPECT_EQ(data->tokens[n - 3].text, "[unused1]");
  EXPECT_EQ(data->tokens[n - 2].text, "##]");
  EXPECT_EQ(data->tokens[n - 1].text, "[x]");
}

TEST(GgufTokenizerTest, AModernBertSplitsAsGpt2) {
  const GgufPretokenizer* pre = find_gguf_pretokenizer("modern-bert");
  ASSERT_NE(pre, nullptr);
  EXPECT_STREQ(pre->expressions[0], gpt2_expression());
  EXPECT_EQ(pre->expressions[1], nullptr);
}

TEST(GgufTokenizerTest, EveryPreTokenizerCompilesAndUnknownOnesAreNamed) {
  for (const GgufPretokenizer& pre : gguf_pretokenizers()) {
    const std::string file = byte_level_file(std::string(pre.name)).file(0);
    const auto gguf = GgufReader::parse(as_bytes(file), file.size());
    auto data = tokenizer_from_gguf(*gguf);
    ASSERT_TRUE(data.has_value()) << data.error().message();
    EXPECT_EQ(data->ignore_merges, pre.ignore_merges);
    auto tokenizer = open_tokenizer(*data);
    ASSERT_TRUE(tokenizer->tokenizer.has_value()) << pre.name << tokenizer->error;
    EXPECT_EQ(encode(*tokenizer->tokenizer, "ab"), std::vector<TokenId>{2}) << pre.name;
  }
  const std::string file = byte_level_file("odd-one").file(0);
  const auto gguf = GgufReader::parse(as_bytes(file), file.size());
  EXPECT_NE(tokenizer_from_gguf(*gguf).error().message().find("odd-one"), std::string::npos);
}

}  // namespace
}  // namespace qsf
