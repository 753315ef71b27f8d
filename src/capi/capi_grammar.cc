// SPDX-License-Identifier: MIT
//
// Grammars of the C API; the contract is include/qsf/grammar.h.

#include <cstring>

#include "capi/capi_handles.h"
#include "grammar/grammar_engine.h"

struct QSFGrammarMatcher {
  qsf::GrammarMatcher matcher;
};

namespace qsf::capi {

namespace {

Status create_grammar(QSFEngine* engine, const qsf_grammar_kind& kind, std::string_view source,
                      QSFGrammar** out) {
  int number = 0;  // copied as bytes: C may pass any number
  static_assert(sizeof number == sizeof kind);
  std::memcpy(&number, &kind, sizeof number);
  if (number < QSF_GRAMMAR_GBNF || number > QSF_GRAMMAR_JSON_OBJECT) {
    return invalid_argument("kind: %d, expected a qsf_grammar_kind", number);
  }
  if (engine->engine->tokenizer() == nullptr) {
    return unsupported("grammar: the model has no tokenizer");
  }
  GrammarEngine* const grammars = engine->engine->grammars();
  if (grammars == nullptr) {
    return out_of_budget(
        "grammar: the engine was opened without memory for grammars; call "
        "qsf_config_set_grammars before it is opened");
  }
  auto handle = std::make_unique<QSFGrammar>();
  QSF_ASSIGN_OR_RETURN(handle->grammar,
                       Grammar::create(*grammars, static_cast<GrammarKind>(number), source));
  *out = handle.release();
  return ok_status();
}

static_assert(static_cast<int>(GrammarKind::kGbnf) == QSF_GRAMMAR_GBNF);
static_assert(static_cast<int>(GrammarKind::kJsonSchema) == QSF_GRAMMAR_JSON_SCHEMA);
static_assert(static_cast<int>(GrammarKind::kJsonObject) == QSF_GRAMMAR_JSON_OBJECT);

}  // namespace

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void qsf_config_set_grammars(QSFConfig* config, int max_grammars, uint64_t mask_bytes) {
  if (config == nullptr) return;
  config->max_grammars = max_grammars;
  config->grammar_mask_bytes = mask_bytes;
}

qsf_code qsf_grammar_create(QSFEngine* engine, qsf_grammar_kind kind, const char* source,
                            size_t source_bytes, QSFGrammar** grammar, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (grammar == nullptr) return null_argument("grammar");
    *grammar = nullptr;
    if (engine == nullptr) return null_argument("engine");
    if (source == nullptr && source_bytes > 0) return null_argument("source");
    return create_grammar(engine, kind, {source, source_bytes}, grammar);
  });
}

void qsf_grammar_free(QSFGrammar* grammar) {
  delete grammar;
}

qsf_code qsf_grammar_matcher_create(QSFGrammar* grammar, const char* trigger,
                                    QSFGrammarMatcher** matcher, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (matcher == nullptr) return null_argument("matcher");
    *matcher = nullptr;
    if (grammar == nullptr) return null_argument("grammar");
    const std::string_view text = trigger == nullptr ? std::string_view() : trigger;
    *matcher = new QSFGrammarMatcher{qsf::GrammarMatcher(grammar->grammar, text, {})};
    return qsf::ok_status();
  });
}

void qsf_grammar_matcher_free(QSFGrammarMatcher* matcher) {
  delete matcher;
}

qsf_code qsf_grammar_matcher_mask(QSFGrammarMatcher* matcher, uint32_t* allowed, size_t n_words,
                                  qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (matcher == nullptr) return null_argument("matcher");
    if (allowed == nullptr) return null_argument("allowed");
    const std::size_t n_needed = matcher->matcher.n_mask_words();
    if (n_words < n_needed) {
      return qsf::invalid_argument("n_words: %zu, expected at least %zu", n_words, n_needed);
    }
    return matcher->matcher.fill_mask({allowed, n_words});
  });
}

qsf_code qsf_grammar_matcher_accept(QSFGrammarMatcher* matcher, int token, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (matcher == nullptr) return null_argument("matcher");
    if (token < 0) return qsf::invalid_argument("token: %d, expected at least 0", token);
    return matcher->matcher.accept(static_cast<std::uint32_t>(token));
  });
}

int qsf_grammar_matcher_can_end(QSFGrammarMatcher* matcher) {
  return matcher != nullptr && matcher->matcher.can_end() ? 1 : 0;
}

int qsf_grammar_matcher_is_finished(QSFGrammarMatcher* matcher) {
  return matcher != nullptr && matcher->matcher.is_finished() ? 1 : 0;
}

void qsf_grammar_matcher_reset(QSFGrammarMatcher* matcher) {
  if (matcher != nullptr) matcher->matcher.reset();
}
