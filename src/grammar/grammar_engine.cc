// SPDX-License-Identifier: MIT

#include "grammar/grammar_engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "grammar/gbnf_parser.h"
#include "grammar/json_schema.h"
#include "grammar/region_carver.h"

namespace qsf {

Result<GrammarProgram> compile_grammar(GrammarKind kind, std::string_view source) {
  if (source.size() > kMaxGrammarBytes) {
    return invalid_argument("grammar: %zu bytes, expected at most %zu", source.size(),
                            kMaxGrammarBytes);
  }
  switch (kind) {
    case GrammarKind::kGbnf: {
      QSF_ASSIGN_OR_RETURN(const GrammarRules rules, parse_gbnf(source));
      return GrammarProgram::compile(rules);
    }
    case GrammarKind::kJsonSchema: {
      QSF_ASSIGN_OR_RETURN(const GrammarRules rules, parse_json_schema(source));
      return GrammarProgram::compile(rules);
    }
    case GrammarKind::kJsonObject: {
      QSF_ASSIGN_OR_RETURN(const GrammarRules rules, json_object_rules());
      return GrammarProgram::compile(rules);
    }
  }
  return invalid_argument("grammar: unknown kind %d", static_cast<int>(kind));
}

std::uint64_t GrammarEngine::region_bytes(const GrammarMemory& memory, std::uint32_t n_tokens) {
  if (memory.max_grammars == 0) return 0;
  return align_up(TokenVocabulary::region_bytes(n_tokens), kCarveAlign) +
         align_up(AutomatonScratch::region_bytes(), kCarveAlign) +
         align_up(
             MaskCache::region_bytes(MaskCache::masks_in(memory.mask_bytes, n_tokens), n_tokens),
             kCarveAlign) +
         std::uint64_t{memory.max_grammars} * kAutomatonBytes;
}

Result<std::unique_ptr<GrammarEngine>> GrammarEngine::create(const GrammarMemory& memory,
                                                             const TokenTexts& texts,
                                                             MutableByteSpan region) {
  const std::uint32_t n_tokens = texts.n_tokens();
  QSF_CHECK(region.size() >= region_bytes(memory, n_tokens));
  const std::size_t n = align_up(TokenVocabulary::region_bytes(n_tokens), kCarveAlign);
  QSF_ASSIGN_OR_RETURN(TokenVocabulary vocabulary, TokenVocabulary::build(texts, region.first(n)));
  return std::unique_ptr<GrammarEngine>(
      new GrammarEngine(memory, std::move(vocabulary), region.subspan(n)));
}

GrammarEngine::GrammarEngine(const GrammarMemory& memory, TokenVocabulary vocabulary,
                             MutableByteSpan region)
    : vocabulary_(std::move(vocabulary)), max_grammars_(memory.max_grammars) {
  const std::uint32_t n_tokens = vocabulary_.n_tokens();
  const std::size_t n_masks = MaskCache::masks_in(memory.mask_bytes, n_tokens);
  RegionCarver carver(region);
  scratch_.emplace(carver.take_bytes(align_up(AutomatonScratch::region_bytes(), kCarveAlign)));
  masks_.emplace(
      carver.take_bytes(align_up(MaskCache::region_bytes(n_masks, n_tokens), kCarveAlign)), n_masks,
      n_tokens);
  for (std::uint32_t i = 0; i < max_grammars_; ++i) {
    free_slots_.push_back(carver.take_bytes(kAutomatonBytes));
  }
  token_bytes_.reserve(1024);
}

Result<std::shared_ptr<Grammar>> Grammar::create(GrammarEngine& engine, GrammarKind kind,
                                                 std::string_view source) {
  QSF_ASSIGN_OR_RETURN(GrammarProgram program, compile_grammar(kind, source));
  const std::lock_guard lock(engine.mutex_);
  if (engine.free_slots_.empty()) {
    return out_of_budget("%u grammars exist already, as many as the memory was planned for",
                         engine.max_grammars_);
  }
  const MutableByteSpan slot = engine.free_slots_.back();
  engine.free_slots_.pop_back();
  return std::shared_ptr<Grammar>(new Grammar(engine, std::move(program), slot));
}

Grammar::Grammar(GrammarEngine& engine, GrammarProgram program, MutableByteSpan slot)
    : engine_(engine), program_(std::move(program)), slot_(slot) {
  automaton_.emplace(program_, slot_, *engine_.scratch_, *engine_.masks_);
}

Grammar::~Grammar() {
  const std::lock_guard lock(engine_.mutex_);
  automaton_.reset();
  engine_.free_slots_.push_back(slot_);
}

}  // namespace qsf
