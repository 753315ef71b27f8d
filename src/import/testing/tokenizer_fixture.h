// SPDX-License-Identifier: MIT
//
// What tokenizer import tests share: reading a file, and a tokenizer together with the memory it
// stands in.

#ifndef QSF_IMPORT_TESTING_TOKENIZER_FIXTURE_H_
#define QSF_IMPORT_TESTING_TOKENIZER_FIXTURE_H_

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf::testing_support {

// Returns a file's bytes, or nothing when it cannot be opened.
inline std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

struct OpenTokenizer {
  std::vector<std::byte> section;
  std::vector<std::byte> index;
  std::optional<Tokenizer> tokenizer;
  std::string error;  // why there is no tokenizer

  Tokenizer* operator->() { return &*tokenizer; }
};

inline std::unique_ptr<OpenTokenizer> open_tokenizer(const TokenizerData& data) {
  auto opened = std::make_unique<OpenTokenizer>();
  auto section = write_tokenizer_section(data);
  if (!section) {
    opened->error = section.error().message();
    return opened;
  }
  opened->section = std::move(*section);
  auto n_bytes = Tokenizer::index_bytes(opened->section);
  if (!n_bytes) {
    opened->error = n_bytes.error().message();
    return opened;
  }
  opened->index.resize(*n_bytes);
  auto tokenizer = Tokenizer::open(opened->section, opened->index);
  if (!tokenizer) {
    opened->error = tokenizer.error().message();
    return opened;
  }
  opened->tokenizer.emplace(std::move(*tokenizer));
  return opened;
}

inline std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                                   bool parse_special = true, std::optional<bool> add_bos = false,
                                   std::optional<bool> add_eos = false) {
  EncodeOptions options;
  options.parse_special = parse_special;
  options.add_bos = add_bos;
  options.add_eos = add_eos;
  std::vector<TokenId> ids;
  const Status status = tokenizer.encode(text, options, ids);
  if (!status.ok()) ids.assign(1, kNoToken);
  return ids;
}

inline std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                          bool skip_special = false) {
  DecodeOptions options;
  options.skip_special = skip_special;
  std::string text;
  tokenizer.decode(ids, options, text);
  return text;
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_TOKENIZER_FIXTURE_H_
