// SPDX-License-Identifier: MIT
//
// qsf-grammar-bench: time of masks over a vocabulary of 262,144 tokens.
//
// The vocabulary is made of words of syllables, of other scripts, of code and of white space, as
// large multilingual ones are. JSON values are read token by token under their schemas, the longest
// token first, and each mask is timed, the first ones with nothing known.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "grammar/grammar_engine.h"
#include "grammar/utf8_code_points.h"

namespace {

using namespace qsf;

constexpr std::uint32_t kTokens = 262'144;
constexpr std::size_t kSequences = 16;

class BenchTexts final : public TokenTexts {
 public:
  BenchTexts() {
    std::set<std::string> seen;
    const auto add = [&](std::string text) {
      if (texts_.size() < kTokens && seen.insert(text).second) texts_.push_back(std::move(text));
    };
    add("</s>");
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (int n = 2; n < 32; ++n) add(std::string(static_cast<std::size_t>(n), ' '));
    for (int n = 0; n < 1000; ++n) add(std::to_string(n));
    constexpr const char* kMarks[] = {"\"",  "\":",    "\",",    "\"}", "{\"", "[\"",
                                      "\"]", "\": \"", "\", \"", "},",  "]}",  "()",
                                      "\\n", "\\\"",   "\n\n",   "\n  "};
    for (const char* mark : kMarks) add(mark);
    while (texts_.size() < kTokens) {
      const std::uint64_t kind = random_.next_u64() % 100;
      std::string text = kind < 70 ? word() : foreign();
      if (kind % 3 == 0) text = " " + text;
      if (kind >= 96) text += kMarks[random_.next_u64() % std::size(kMarks)];
      add(text);
    }
  }
  std::uint32_t n_tokens() const override { return kTokens; }
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
      append_code_point(first + static_cast<std::uint32_t>(random_.next_u64() % (last - first)),
                        text);
    }
    return text;
  }
  Rng random_{1};
  std::vector<std::string> texts_;
};

struct Case {
  const char* name;
  const char* schema;
  const char* value;
};

constexpr Case kCases[] = {
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

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// The longest token that `text` begins with.
std::uint32_t longest_token(const TokenVocabulary& vocabulary, std::string_view text) {
  const TokenTrie& trie = vocabulary.trie();
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

void print_times(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double time : times) sum += time;
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("%-28s %6zu: mean %7.1f us, p50 %6.1f, p99 %7.1f, p99.9 %7.1f, most %7.1f\n", what,
              times.size(), sum / static_cast<double>(times.size()), at(0.5), at(0.99), at(0.999),
              times.back());
}

struct Free {
  void operator()(std::byte* bytes) const { ::operator delete(bytes, std::align_val_t(64)); }
};

}  // namespace

int main() {
  const BenchTexts texts;
  const GrammarMemory memory = {1, 8 << 20};
  const std::size_t n = GrammarEngine::region_bytes(memory, kTokens);
  const std::unique_ptr<std::byte, Free> region(
      static_cast<std::byte*>(::operator new(n, std::align_val_t(64))));
  auto start = std::chrono::steady_clock::now();
  auto made = GrammarEngine::create(memory, texts, {region.get(), n});
  if (!made.has_value()) {
    std::fprintf(stderr, "%s\n", made.error().message().c_str());
    return 1;
  }
  const auto engine = std::move(*made);
  const TokenVocabulary& vocabulary = engine->vocabulary();
  std::printf("vocabulary: %u tokens, %u nodes; %.0f ms, %.1f MB in all\n", kTokens,
              vocabulary.trie().size(), microseconds_since(start) / 1e3,
              static_cast<double>(n) / 1e6);
  std::vector<std::uint32_t> mask(mask_words(kTokens));
  std::vector<double> all;
  std::vector<double> first;
  std::vector<double> passes;
  for (const Case& one : kCases) {
    std::vector<double> times;
    start = std::chrono::steady_clock::now();
    const auto grammar = Grammar::create(*engine, GrammarKind::kJsonSchema, one.schema).value();
    std::vector<std::unique_ptr<GrammarMatcher>> matchers;
    for (std::size_t i = 0; i < kSequences; ++i) {
      matchers.push_back(std::make_unique<GrammarMatcher>(grammar, "", std::span<std::uint32_t>()));
      if (i == 0) {
        if (!matchers[0]->fill_mask(mask).ok()) return 1;
        first.push_back(microseconds_since(start));
      }
    }
    for (std::string_view rest = one.value; !rest.empty();) {
      const std::uint32_t token = longest_token(vocabulary, rest);
      double pass = 0;
      for (std::size_t i = 0; i < kSequences; ++i) {
        start = std::chrono::steady_clock::now();
        const bool filled = matchers[i]->fill_mask(mask).ok();
        const double time = microseconds_since(start);
        if (i == 0) times.push_back(time);
        pass += time;
        if (!filled || !matchers[i]->accept(token).ok()) {
          std::fprintf(stderr, "%s: refused at %s\n", one.name, std::string(rest).c_str());
          return 1;
        }
      }
      passes.push_back(pass);
      std::string bytes;
      texts.append(token, false, bytes);
      rest.remove_prefix(bytes.size());
    }
    if (!matchers[0]->can_end()) return 1;
    print_times(one.name, times);
    all.insert(all.end(), times.begin(), times.end());
  }
  print_times("all masks", all);
  print_times("compiled, and first mask", first);
  print_times("16 sequences in step", passes);
  return 0;
}
