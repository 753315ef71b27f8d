/* SPDX-License-Identifier: MIT
 *
 * Grammars: what a generation may write, as a GBNF grammar or a JSON Schema. A part of qsf/qsf.h,
 * which has the conventions and includes it. docs/grammars.md says what is understood.
 *
 * Every function here may be called from any thread, also while the engine computes, and in
 * callbacks; one matcher by one thread at a time.
 */
#ifndef QSF_GRAMMAR_H_
#define QSF_GRAMMAR_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Plans memory for grammars: `max_grammars` that exist at once (0 to 1024, about 2 MiB each), and
 * `mask_bytes` for masks that are kept, each n_vocab / 8 bytes. The vocabulary's trie comes with
 * it, about 40 bytes a token. Default  0: the engine makes no grammars */
QSF_API void qsf_config_set_grammars(QSFConfig* config, int max_grammars, uint64_t mask_bytes);

typedef enum qsf_grammar_kind {
  QSF_GRAMMAR_GBNF = 0, /* llama.cpp's notation; `%json SCHEMA` is a value of a JSON Schema */
  QSF_GRAMMAR_JSON_SCHEMA = 1, /* JSON values of a schema */
  QSF_GRAMMAR_JSON_OBJECT = 2  /* any JSON object; the source is ignored */
} qsf_grammar_kind;

/* Compiles a grammar for the tokens of an engine, in 0.1 s and 16 MiB at most. Any number of
 * generations and matchers may use it at once. Free it before the engine.
 * Shapes   source [source_bytes], at most 256 KiB; NULL where it has none
 * Returns  QSF_OK and a handle in *grammar, to be freed with qsf_grammar_free
 * Errors   QSF_INVALID_ARGUMENT: a syntax error, with line and column; a rule that is
 *          left-recursive; too large or too deep. QSF_UNSUPPORTED: a keyword of a schema that is
 * not supported, with its path; a model without a tokenizer. QSF_OUT_OF_BUDGET: the engine has
 *          max_grammars already */
QSF_API qsf_code qsf_grammar_create(QSFEngine* engine, qsf_grammar_kind kind, const char* source,
                                    size_t source_bytes, QSFGrammar** grammar, qsf_error* error);
/* Frees a grammar, or NULL. Generations and matchers that use it go on; its place among the
 * max_grammars is free when the last of them is. */
QSF_API void qsf_grammar_free(QSFGrammar* grammar);

/* A matcher follows one text under a grammar, for callers with samplers of their own.
 * `trigger`: as qsf_sampling.grammar_trigger. Free it before the engine.
 * Returns  QSF_OK and a handle in *matcher, to be freed with qsf_grammar_matcher_free */
QSF_API qsf_code qsf_grammar_matcher_create(QSFGrammar* grammar, const char* trigger,
                                            QSFGrammarMatcher** matcher, qsf_error* error);
QSF_API void qsf_grammar_matcher_free(QSFGrammarMatcher* matcher);
/* Sets bit t % 32 of allowed[t / 32] for each token t that may come next, and clears all others.
 * End-of-text tokens may come where the text may end, control tokens never.
 * Shapes  allowed [n_words], at least n_vocab / 32, rounded up
 * Errors  QSF_NOT_FOUND: no token may come next. QSF_INVALID_ARGUMENT: too few words, or the
 * grammar is too ambiguous */
QSF_API qsf_code qsf_grammar_matcher_mask(QSFGrammarMatcher* matcher, uint32_t* allowed,
                                          size_t n_words, qsf_error* error);
/* Appends a token to the text.
 * Errors  QSF_INVALID_ARGUMENT: it may not come next; the matcher is as before */
QSF_API qsf_code qsf_grammar_matcher_accept(QSFGrammarMatcher* matcher, int token,
                                            qsf_error* error);
/* Return  true: the text may end here; it can only end here. False for NULL */
QSF_API int qsf_grammar_matcher_can_end(QSFGrammarMatcher* matcher);
QSF_API int qsf_grammar_matcher_is_finished(QSFGrammarMatcher* matcher);
/* Begins a new text; nothing for NULL. */
QSF_API void qsf_grammar_matcher_reset(QSFGrammarMatcher* matcher);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_GRAMMAR_H_ */
