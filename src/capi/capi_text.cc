// SPDX-License-Identifier: MIT
//
// The C API's way between text and tokens; the contract is include/qsf/qsf.h.
//
// What is handed out to be freed by the caller comes from malloc: the free functions need no size.

#include <cstdlib>
#include <limits>

#include "capi/capi_handles.h"

namespace qsf::capi {

namespace {

Status check_tokenizer(const QSFEngine& engine) {
  if (engine.engine->tokenizer() != nullptr) return ok_status();
  return unsupported("the model file has no tokenizer: use token ids");
}

Status detokenize(const QSFEngine* engine, const int* tokens, std::size_t n_tokens, char** text) {
  if (text == nullptr) return null_argument("text");
  *text = nullptr;
  if (engine == nullptr) return null_argument("engine");
  std::vector<TokenId> ids;
  if (n_tokens > 0) QSF_RETURN_IF_ERROR(read_tokens(*engine, tokens, n_tokens, ids));
  QSF_RETURN_IF_ERROR(check_tokenizer(*engine));
  QSF_ASSIGN_OR_RETURN(*text, copy_text(engine->engine->decode(ids)));
  return ok_status();
}

}  // namespace

Result<char*> copy_text(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  const auto n_nul = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\0'));
  auto* copy = static_cast<char*>(std::malloc(text.size() + 2 * n_nul + 1));
  if (copy == nullptr) return internal_error("no memory for a text of %zu bytes", text.size());
  char* end = copy;
  for (const char c : text) {
    if (c != '\0') {
      *end++ = c;
    } else {
      end = std::copy(kReplacement.begin(), kReplacement.end(), end);
    }
  }
  *end = '\0';
  return copy;
}

Status read_tokens(const QSFEngine& engine, const int* tokens, std::size_t n_tokens,
                   std::vector<TokenId>& out, const char* name) {
  if (tokens == nullptr) return null_argument(name);
  if (n_tokens == 0) return invalid_argument("%s: none, expected at least one", name);
  const std::uint32_t n_vocab = engine.engine->spec().n_vocab;
  out.reserve(n_tokens);
  for (std::size_t i = 0; i < n_tokens; ++i) {
    if (tokens[i] < 0 || static_cast<std::uint32_t>(tokens[i]) >= n_vocab) {
      return invalid_argument("%s[%zu]: %d, expected 0 to %u", name, i, tokens[i], n_vocab - 1);
    }
    out.push_back(static_cast<TokenId>(tokens[i]));
  }
  return ok_status();
}

Status encode(const QSFEngine& engine, std::string_view text, unsigned flags,
              std::vector<TokenId>& out, bool at_text_start) {
  constexpr unsigned kKnown = QSF_TOKENIZE_NO_BOS | QSF_TOKENIZE_PARSE_SPECIAL;
  if ((flags & ~kKnown) != 0) {
    return invalid_argument("flags: 0x%x, expected a combination of qsf_tokenize_flags", flags);
  }
  EncodeOptions options;
  if ((flags & QSF_TOKENIZE_NO_BOS) != 0 || !at_text_start) options.add_bos = false;
  options.at_text_start = at_text_start;
  options.parse_special = (flags & QSF_TOKENIZE_PARSE_SPECIAL) != 0;
  QSF_RETURN_IF_ERROR(check_tokenizer(engine));
  return engine.engine->tokenizer()->encode(text, options, out);
}

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

qsf_code qsf_engine_tokenize(QSFEngine* engine, const char* text, size_t text_bytes, unsigned flags,
                             int* tokens, size_t capacity, size_t* n_tokens, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (n_tokens == nullptr) return null_argument("n_tokens");
    *n_tokens = 0;
    if (engine == nullptr) return null_argument("engine");
    if (text == nullptr && text_bytes > 0) return null_argument("text");
    if (tokens == nullptr && capacity > 0) return null_argument("tokens");
    std::vector<qsf::TokenId> ids;
    QSF_RETURN_IF_ERROR(encode(*engine, {text, text_bytes}, flags, ids));
    *n_tokens = ids.size();
    for (std::size_t i = 0; i < std::min(ids.size(), capacity); ++i) {
      tokens[i] = static_cast<int>(ids[i]);
    }
    if (capacity > 0 && ids.size() > capacity) {
      return qsf::out_of_budget("tokens: the text needs %zu, capacity is %zu", ids.size(),
                                capacity);
    }
    return qsf::ok_status();
  });
}

qsf_code qsf_engine_detokenize(QSFEngine* engine, const int* tokens, size_t n_tokens, char** text,
                               qsf_error* error) {
  return guarded(error, [&] { return detokenize(engine, tokens, n_tokens, text); });
}

int* qsf_tokenize(QSFEngine* engine, const char* text, int* num_tokens) {
  if (num_tokens != nullptr) *num_tokens = 0;
  if (engine == nullptr) return nullptr;
  int* copy = nullptr;
  guarded_with_callback(&engine->config, [&]() -> qsf::Status {
    if (text == nullptr) return null_argument("text");
    if (num_tokens == nullptr) return null_argument("num_tokens");
    std::vector<qsf::TokenId> ids;
    QSF_RETURN_IF_ERROR(encode(*engine, text, QSF_TOKENIZE_DEFAULT, ids));
    // One more than needed, so that no tokens are no NULL. The tokenizer takes texts below 2^31
    // bytes, so that their number fits an int.
    copy = static_cast<int*>(std::malloc((ids.size() + 1) * sizeof(int)));
    if (copy == nullptr) return qsf::internal_error("no memory for %zu tokens", ids.size());
    std::transform(ids.begin(), ids.end(), copy,
                   [](qsf::TokenId id) { return static_cast<int>(id); });
    *num_tokens = static_cast<int>(ids.size());
    return qsf::ok_status();
  });
  return copy;
}

char* qsf_detokenize(QSFEngine* engine, const int* tokens, int num_tokens) {
  if (engine == nullptr) return nullptr;
  char* text = nullptr;
  guarded_with_callback(&engine->config, [&]() -> qsf::Status {
    if (num_tokens < 0) {
      return qsf::invalid_argument("num_tokens: %d, expected at least 0", num_tokens);
    }
    return detokenize(engine, tokens, static_cast<std::size_t>(num_tokens), &text);
  });
  return text;
}

void qsf_tokens_free(int* tokens) {
  std::free(tokens);
}
void qsf_string_free(char* text) {
  std::free(text);
}
