// SPDX-License-Identifier: MIT
//
// Grammars over the tokens of a model: which tokens may come next.
//
// GrammarEngine has the vocabulary, the cached masks and the memory of a fixed number of grammars.
// Grammar is one compiled grammar. GrammarMatcher follows one text under it; any number may do so.
// A lock in the engine lets any thread use any of them, one matcher by one thread at a time.
//
// A mask is found by walking the vocabulary's tries through the automaton of the grammar
// (automaton.h, token_mask.h). Masks are kept by state.

#ifndef QSF_GRAMMAR_GRAMMAR_ENGINE_H_
#define QSF_GRAMMAR_GRAMMAR_ENGINE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/automaton.h"
#include "grammar/grammar_memory.h"
#include "grammar/mask_cache.h"
#include "grammar/program.h"
#include "grammar/token_vocabulary.h"

namespace qsf {

enum class GrammarKind : std::uint8_t { kGbnf, kJsonSchema, kJsonObject };

// Reads and compiles a grammar.
// Fails  as parse_gbnf, parse_json_schema and GrammarProgram::compile; kInvalidArgument for a
// source
//        of more than kMaxGrammarBytes
Result<GrammarProgram> compile_grammar(GrammarKind kind, std::string_view source);

class GrammarEngine {
 public:
  static std::uint64_t region_bytes(const GrammarMemory& memory, std::uint32_t n_tokens);
  // Requires  region [region_bytes()] and `texts` outlive the engine
  // Fails     as TokenVocabulary::build
  static Result<std::unique_ptr<GrammarEngine>> create(const GrammarMemory& memory,
                                                       const TokenTexts& texts,
                                                       MutableByteSpan region);

  const TokenVocabulary& vocabulary() const noexcept { return vocabulary_; }

 private:
  friend class Grammar;
  friend class GrammarMatcher;
  GrammarEngine(const GrammarMemory& memory, TokenVocabulary vocabulary, MutableByteSpan region);

  TokenVocabulary vocabulary_;
  std::mutex mutex_;  // of everything below, and of all grammars and matchers
  std::optional<AutomatonScratch> scratch_;
  std::optional<MaskCache> masks_;
  std::vector<MutableByteSpan> free_slots_;
  std::uint32_t max_grammars_;
  std::string token_bytes_;
};

class Grammar {
 public:
  // Requires  the engine outlives the grammar
  // Fails     as compile_grammar; kOutOfBudget when max_grammars exist
  // Threads   any
  static Result<std::shared_ptr<Grammar>> create(GrammarEngine& engine, GrammarKind kind,
                                                 std::string_view source);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  GrammarEngine& engine() noexcept { return engine_; }

 private:
  friend class GrammarMatcher;
  Grammar(GrammarEngine& engine, GrammarProgram program, MutableByteSpan slot);

  GrammarEngine& engine_;
  GrammarProgram program_;
  MutableByteSpan slot_;
  std::optional<GrammarAutomaton> automaton_;
};

class GrammarMatcher {
 public:
  // `trigger`: the grammar holds from behind the first place where this text stands in the tokens
  // accepted; until then every token is allowed unless it ends the trigger and goes on as no text
  // of the grammar does. Empty: from the beginning. Control tokens count as they are written.
  // `end_tokens`: further tokens that end a text, beside those of the vocabulary.
  GrammarMatcher(std::shared_ptr<Grammar> grammar, std::string_view trigger,
                 std::span<const std::uint32_t> end_tokens);
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  // Whether `token` may come next.
  bool allows(std::uint32_t token);
  // Sets the bits of the tokens that may come next: token i is bit i % 32 of word i / 32.
  // Shapes  mask [mask_words(n_tokens) or more]; words beyond the vocabulary become 0
  // Fails   kInvalidArgument: the grammar is so ambiguous that the bounds do not suffice;
  // kNotFound:
  //         no token of the vocabulary may come next
  Status fill_mask(std::span<std::uint32_t> mask);
  // Appends a token to the text. One that ends the text finishes the matcher.
  // Fails  kInvalidArgument: the token may not come next; the matcher is as before
  Status accept(std::uint32_t token);

  // Whether the text may end here, and whether it can only end here.
  bool can_end();
  bool is_finished();
  // Whether the trigger has not come yet.
  bool is_waiting() const noexcept { return waiting_; }
  std::size_t n_mask_words() const noexcept { return mask_words(engine_.vocabulary().n_tokens()); }
  void reset();

 private:
  bool is_end(std::uint32_t token) const noexcept;
  std::string_view bytes_of(std::uint32_t token);
  std::optional<StateId> state_behind(std::string_view bytes);
  std::size_t match_trigger(std::string_view bytes, std::size_t& position) const noexcept;
  bool allows_locked(std::uint32_t token);
  Status fill_locked(std::span<std::uint32_t> mask);

  std::shared_ptr<Grammar> grammar_;
  GrammarEngine& engine_;
  GrammarAutomaton& automaton_;
  std::string trigger_;
  std::vector<std::uint32_t> fallback_;  // of the trigger: where to go on after a mismatch
  std::vector<std::uint32_t> end_tokens_;
  std::size_t trigger_position_ = 0;
  bool waiting_ = false;
  bool ended_ = false;
  StateId state_ = kDeadState;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_GRAMMAR_ENGINE_H_
