// SPDX-License-Identifier: MIT
//
// What grammars are timed with: a vocabulary of 262,144 tokens, and JSON values with their schemas.
//
// The vocabulary is made of words of syllables, of other scripts, of code and of white space, as
// large multilingual ones are.

#ifndef QSF_TOOLS_BENCH_GRAMMAR_CASES_H_
#define QSF_TOOLS_BENCH_GRAMMAR_CASES_H_

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "grammar/grammar_engine.h"
#include "grammar/utf8_code_points.h"

namespace qsf_tools {

inline constexpr std::uint32_t kGrammarTokens = 262'144;

class GrammarTexts final : public qsf::TokenTexts {
 public:
  GrammarTexts() {
    std::unordered_set<std::string> seen;
    const auto add = [&](std::string text) {
      if (texts_.size() < kGrammarTokens && seen.insert(text).second)
        texts_.push_back(std::move(text));
    };
    add("</s>");
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (int n = 2; n < 32; ++n) add(std::string(static_cast<std::size_t>(n), ' '));
    for (int n = 0; n < 1000; ++n) add(std::to_string(n));
    constexpr const char* kMarks[] = {"\"",  "\":",    "\",",    "\"}", "{\"", "[\"",
                                      "\"]", "\": \"", "\", \"", "},",  "]}",  "()",
                                      "\\n", "\\\"",   "\n\n",   "\n  "};
    for (const char* mark : kMarks) add(mark);
    while (texts_.size() < kGrammarTokens) {
      const std::uint64_t kind = random_.next_u64() % 100;
      std::string text = kind < 70 ? word() : foreign();
      if (kind % 3 == 0) text = " " + text;
      if (kind >= 96) text += kMarks[random_.next_u64() % std::size(kMarks)];
      add(text);
    }
  }
  std::uint32_t n_tokens() const override { return kGrammarTokens; }
  Kind kind(std::uint32_t token) const override { return token == 0 ? Kind::kEnd : Kind::kText; }
  void append(std::uint32_t token, bool, std::string& out) const override { out += texts_[token]; }

 private:
  std::string word() {
    constexpr const char* kSyllables[] = {"a",  "an", "be",  "co",  "de", "er",  "fi", "ing", "ion",
                                          "ka", "le", "men", "non", "o",  "pre", "qu", "re",  "st",
                                          "ti", "un", "ver", "wo",  "x",  "y",   "ze", "th",  "ch"};
    std::string text;
    for (std::uint64_t n = 1 + random_.next_u64() % 4; n > 0; --n) {
      text += kSyllables[random_.next_u64() % std::size(kSyllables)];
    }
    if (random_.next_u64() % 5 == 0) text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  }
  std::string foreign() {
    constexpr std::pair<std::uint32_t, std::uint32_t> kScripts[] = {
        {0x4E00, 0x7000}, {0x400, 0x450}, {0xAC00, 0xC000}, {0x620, 0x650}, {0xE0, 0x100}};
    const auto [first, last] = kScripts[random_.next_u64() % std::size(kScripts)];
    std::string text;
    for (std::uint64_t n = 1 + random_.next_u64() % 3; n > 0; --n) {
      qsf::append_code_point(
          first + static_cast<std::uint32_t>(random_.next_u64() % (last - first)), text);
    }
    return text;
  }
  qsf::Rng random_{1};
  std::vector<std::string> texts_;
};

// An engine of grammars with memory of its own.
class GrammarBench {
 public:
  explicit GrammarBench(const qsf::GrammarMemory& memory)
      : n_bytes_(qsf::GrammarEngine::region_bytes(memory, kGrammarTokens)),
        region_(static_cast<std::byte*>(::operator new(n_bytes_, std::align_val_t(64)))),
        engine_(qsf::GrammarEngine::create(memory, texts_, {region_.get(), n_bytes_}).value()) {}

  const GrammarTexts& texts() const { return texts_; }
  qsf::GrammarEngine& engine() { return *engine_; }
  std::size_t n_bytes() const { return n_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, std::align_val_t(64)); }
  };
  GrammarTexts texts_;
  std::size_t n_bytes_;
  std::unique_ptr<std::byte, Free> region_;
  std::unique_ptr<qsf::GrammarEngine> engine_;
};

struct GrammarCase {
  const char* name;
  const char* schema;
  const char* value;
};

inline constexpr GrammarCase kGrammarCases[] = {
    {"tool call",
     R"({"type": "object", "properties": {"name": {"const": "search"}, "arguments": {"type":
        "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer",
        "minimum": 1, "maximum": 100}}, "required": ["query", "limit"]}}, "required": ["name",
        "arguments"]})",
     R"({"name": "search", "arguments": {"query": "reviews of un ion stations near the coast", "limit": 25}})"},
    {"nested lists",
     R"({"type": "array", "items": {"type": "array", "items": {"type": "number"}}})",
     R"([[1.5, 2.25, -3e5], [], [0.001, 12], [100, 200, 300, 400]])"},
    {"recursion",
     R"({"$defs": {"node": {"properties": {"label": {"type": "string"}, "children": {"type":
        "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["label"]}}, "$ref":
        "#/$defs/node"})",
     R"({"label": "conversion", "children": [{"label": "prelimen"}, {"label": "under", "children": [{"label": "x"}]}]})"},
    {"patterns",
     R"({"properties": {"id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4,8}$"}, "mail":
        {"type": "string", "format": "email"}, "at": {"type": "string", "format": "date-time"}},
        "required": ["id", "mail", "at"]})",
     R"({"id": "QX-123456", "mail": "le.men@prever.example.org", "at": "2024-02-29T12:34:56Z"})"},
    {"bounded strings",
     R"({"properties": {"title": {"type": "string", "minLength": 3, "maxLength": 40}, "body":
        {"type": "string", "maxLength": 300}, "tags": {"type": "array", "items": {"type": "string",
        "maxLength": 12}, "maxItems": 5}}, "required": ["title", "body", "tags"]})",
     R"({"title": "Conversion of stations", "body": "The prelimenary ion was not under the coast, but it could be reached by the quiet men who lived there.\nThey knew.", "tags": ["men", "coast", "under"]})"},
    {"any object", R"({"type": "object"})",
     R"({"a": 1, "list": [true, false, null, {"deep": "text with words in it"}], "name": "value"})"},
    {"open objects",
     R"({"properties": {"name": {"type": "string"}, "type": {"type": "string"}, "count": {"type":
        "integer"}}, "additionalProperties": {"type": "string"}, "required": ["name"]})",
     R"({"name": "under", "colour": "red", "size of it": "large", "north": "unver"})"},
    {"free patterns",
     R"({"properties": {"slug": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}, "mail":
        {"type": "string", "pattern": "^[^\\s@]+@[^\\s@]+\\.[^\\s@]+$"}, "path": {"type":
        "string", "pattern": "^(/[^/]+)+$"}, "word": {"type": "string", "pattern": "^\\w{1,20}$"}},
        "required": ["slug", "mail", "path", "word"]})",
     R"({"slug": "conver-sions-2", "mail": "le.men@prever.org", "path": "/usr/un der/x", "word": "prelimen"})"},
    {"enums",
     R"({"properties": {"colour": {"enum": ["red", "green", "blue", "violet"]}, "size": {"enum":
        [1, 2, 3]}, "more": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required":
        ["colour", "size", "more"]})",
     R"({"colour": "violet", "size": 3, "more": null})"},
};

// The longest token that `text` begins with.
inline std::uint32_t longest_token(const qsf::TokenVocabulary& vocabulary, std::string_view text) {
  const qsf::TokenTrie& trie = vocabulary.trie();
  std::uint32_t found = 0;
  std::uint32_t end = trie.size();
  for (std::uint32_t at = 0; at < end && !text.empty();) {
    if (trie.node(at).byte() != static_cast<std::uint8_t>(text[0])) {
      at += trie.node(at).subtree();
      continue;
    }
    if (!trie.tokens(at).empty()) found = trie.tokens(at)[0];
    end = at + trie.node(at).subtree();
    ++at;
    text.remove_prefix(1);
  }
  return found;
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_GRAMMAR_CASES_H_
