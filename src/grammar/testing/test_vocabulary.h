// SPDX-License-Identifier: MIT
//
// A vocabulary of a few hundred tokens for tests of grammars: every byte, pieces of words, JSON and
// UTF-8, control tokens and two that end a text.

#ifndef QSF_GRAMMAR_TESTING_TEST_VOCABULARY_H_
#define QSF_GRAMMAR_TESTING_TEST_VOCABULARY_H_

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "grammar/grammar_engine.h"

namespace qsf {

inline constexpr const char* kTestPieces[] = {"{\"",
                                              "\":",
                                              "\": ",
                                              "\",",
                                              "\", \"",
                                              "\"}",
                                              "\": \"",
                                              "\": [",
                                              "\": {",
                                              "}}",
                                              "]}",
                                              "],",
                                              "[[",
                                              "[{",
                                              "[\"",
                                              "\"]",
                                              "  ",
                                              "    ",
                                              "\n  ",
                                              "\n",
                                              "\n\n",
                                              "{}",
                                              "[]",
                                              "{ }",
                                              "true",
                                              "false",
                                              "null",
                                              "tr",
                                              "ue",
                                              "fal",
                                              "12",
                                              "123",
                                              "0.",
                                              ".5",
                                              "1e",
                                              "-1",
                                              "00",
                                              "the",
                                              "and",
                                              "name",
                                              "age",
                                              "id",
                                              "item",
                                              "items",
                                              "value",
                                              "type",
                                              "ing",
                                              "er",
                                              "ab",
                                              "abc",
                                              "abcd",
                                              "xyz",
                                              "A",
                                              "BC",
                                              "hello world",
                                              " a longer piece of text",
                                              "value\"",
                                              "name\":",
                                              "name\": \"",
                                              "\\\"",
                                              "\\n",
                                              "\\u",
                                              "\\u00",
                                              "\\ud83d",
                                              "d83d",
                                              "\xC3\xA4",
                                              "\xC3\xA4\xC3\xB6",
                                              "\xE2\x82",
                                              "\x82\xAC",
                                              "\xE2\x82\xAC",
                                              "\xF0\x9F\x98\x80",
                                              "\xF0\x9F",
                                              "\x98\x80",
                                              "a\xC3",
                                              "\xA4\"",
                                              "2024-",
                                              "-01",
                                              "-12-",
                                              "T10:",
                                              ":30",
                                              "Z",
                                              "(",
                                              ")",
                                              "+",
                                              "*",
                                              "((",
                                              "))",
                                              "a+",
                                              "b*",
                                              "-",
                                              "abababab",
                                              "a",
                                              "a",
                                              "same",
                                              "same",
                                              "",
                                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

class TestTexts final : public TokenTexts {
 public:
  explicit TestTexts(std::vector<std::string> more = {}) {
    for (int byte = 0; byte < 256; ++byte) texts_.emplace_back(1, static_cast<char>(byte));
    first_control_ = static_cast<std::uint32_t>(texts_.size());
    for (const char* text : {"<bos>", "<call>", "<end>", "</s>"}) texts_.emplace_back(text);
    for (const char* text : kTestPieces) texts_.emplace_back(text);
    for (std::string& text : more) texts_.push_back(std::move(text));
  }

  std::uint32_t n_tokens() const override { return static_cast<std::uint32_t>(texts_.size()); }
  Kind kind(std::uint32_t token) const override {
    const std::uint32_t i = token - first_control_;
    return i < 2 ? Kind::kControl : i < 4 ? Kind::kEnd : Kind::kText;
  }
  void append(std::uint32_t token, bool controls, std::string& out) const override {
    if (kind(token) == Kind::kText || controls) out += texts_[token];
  }
  const std::string& text(std::uint32_t token) const { return texts_[token]; }
  std::uint32_t end_token() const { return first_control_ + 2; }
  std::uint32_t call_token() const { return first_control_ + 1; }

 private:
  std::vector<std::string> texts_;
  std::uint32_t first_control_ = 0;
};

// A vocabulary with the memory of an engine of grammars.
template <typename Texts>
struct GrammarsOver {
  GrammarsOver(Texts vocabulary, const GrammarMemory& memory) : texts(std::move(vocabulary)) {
    const std::size_t n = GrammarEngine::region_bytes(memory, texts.n_tokens());
    region.reset(static_cast<std::byte*>(::operator new(n, std::align_val_t(64))));
    Result<std::unique_ptr<GrammarEngine>> made =
        GrammarEngine::create(memory, texts, {region.get(), n});
    QSF_CHECK(made.has_value());
    engine = std::move(*made);
  }
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, std::align_val_t(64)); }
  };
  Texts texts;
  std::unique_ptr<std::byte, Free> region;
  std::unique_ptr<GrammarEngine> engine;
};

struct TestGrammars : GrammarsOver<TestTexts> {
  explicit TestGrammars(std::uint32_t max_grammars = 4, std::uint64_t mask_bytes = 64 << 10,
                        std::vector<std::string> more = {})
      : GrammarsOver(TestTexts(std::move(more)), {max_grammars, mask_bytes}) {}
};

inline bool mask_has(const std::vector<std::uint32_t>& mask, std::uint32_t token) {
  return (mask[token / 32] >> token % 32 & 1) != 0;
}

}  // namespace qsf

#endif  // QSF_GRAMMAR_TESTING_TEST_VOCABULARY_H_
