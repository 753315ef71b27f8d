// SPDX-License-Identifier: MIT
//
// Sampling of the C API; the contract is include/qsf/qsf.h.

#include <limits>

#include "base/rng.h"
#include "capi/capi_handles.h"
#include "engine/dry_breakers.h"

namespace qsf::capi {

namespace {

constexpr const char* kDefaultBreakers[] = {"\n", ":", "\"", "*"};
constexpr std::size_t kKeptTokens = 1024;  // room for a history before it grows

qsf_sampling default_sampling() noexcept {
  const SamplingOptions defaults;
  qsf_sampling sampling = {};
  sampling.struct_size = sizeof sampling;
  sampling.temperature = defaults.temperature;
  sampling.top_k = static_cast<int>(defaults.top_k);
  sampling.top_p = defaults.top_p;
  sampling.min_p = defaults.min_p;
  sampling.repeat_penalty = defaults.repeat_penalty;
  sampling.repeat_window = static_cast<int>(defaults.repeat_window);
  sampling.seed = defaults.seed;
  sampling.typical_p = defaults.typical_p;
  sampling.frequency_penalty = defaults.frequency_penalty;
  sampling.presence_penalty = defaults.presence_penalty;
  sampling.dry_multiplier = defaults.dry_multiplier;
  sampling.dry_base = defaults.dry_base;
  sampling.dry_allowed_length = static_cast<int>(defaults.dry_allowed_length);
  sampling.dry_window = -1;
  sampling.xtc_probability = defaults.xtc_probability;
  sampling.xtc_threshold = defaults.xtc_threshold;
  return sampling;
}

Status read_biases(const qsf_sampling& sampling, SamplingOptions& out) {
  if (sampling.logit_bias == nullptr && sampling.n_logit_bias > 0) {
    return null_argument("logit_bias");
  }
  for (std::size_t i = 0; i < sampling.n_logit_bias; ++i) {
    const qsf_logit_bias& entry = sampling.logit_bias[i];
    if (entry.token < 0) {
      return invalid_argument("logit_bias: token %d, expected at least 0", entry.token);
    }
    out.logit_bias.push_back({static_cast<TokenId>(entry.token), entry.bias});
  }
  return ok_status();
}

Status read_dry(const QSFEngine& engine, const qsf_sampling& sampling, SamplingOptions& out) {
  out.dry_multiplier = sampling.dry_multiplier;
  out.dry_base = sampling.dry_base;
  QSF_RETURN_IF_ERROR(
      read_count("dry_allowed_length", sampling.dry_allowed_length, out.dry_allowed_length));
  if (sampling.dry_window != -1) {
    QSF_RETURN_IF_ERROR(read_count("dry_window", sampling.dry_window, out.dry_window));
  }
  if (sampling.dry_breakers == nullptr && sampling.n_dry_breakers > 0) {
    return null_argument("dry_breakers");
  }
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < sampling.n_dry_breakers; ++i) {
    if (sampling.dry_breakers[i] == nullptr) return null_argument("dry_breakers");
    texts.emplace_back(sampling.dry_breakers[i]);
  }
  const Tokenizer* const tokenizer = engine.engine->tokenizer();
  if (sampling.dry_multiplier == 0.0F || tokenizer == nullptr) return ok_status();
  if (sampling.dry_breakers != nullptr) {
    QSF_ASSIGN_OR_RETURN(out.dry_breakers, find_dry_breakers(*tokenizer, texts));
    return ok_status();
  }
  // Of the default ones a small vocabulary may lack some.
  for (const char* const text : kDefaultBreakers) {
    texts.assign(1, text);
    const Result<std::vector<TokenId>> found = find_dry_breakers(*tokenizer, texts);
    if (!found.has_value()) continue;
    out.dry_breakers.insert(out.dry_breakers.end(), found->begin(), found->end());
  }
  return ok_status();
}

int filter_logits(std::span<float> logits, void* user) {
  const auto& callbacks = *static_cast<const SamplingCallbacks*>(user);
  return callbacks.on_logits(logits.data(), logits.size(), callbacks.user_data);
}

int mask_tokens(std::span<std::uint32_t> allowed, void* user) {
  const auto& callbacks = *static_cast<const SamplingCallbacks*>(user);
  return callbacks.on_mask(allowed.data(), allowed.size(), callbacks.user_data);
}

Status create_sampler(QSFEngine* engine, const qsf_sampling* options, QSFSampler** out) {
  if (out == nullptr) return null_argument("sampler");
  *out = nullptr;
  if (engine == nullptr) return null_argument("engine");
  auto handle = std::make_unique<QSFSampler>();
  handle->n_vocab = engine->engine->spec().n_vocab;
  QSF_RETURN_IF_ERROR(read_sampling(*engine, options, handle->options, handle->callbacks));
  if (handle->options.grammar != nullptr) {
    return unsupported("grammar: samplers take none; use a QSFGrammarMatcher in on_mask");
  }
  handle->logits.resize(engine->engine->n_drawable());
  handle->order.resize(handle->logits.size());
  handle->history.reserve(kKeptTokens);
  handle->sampler.emplace(handle->options, handle->logits, handle->order);
  *out = handle.release();
  return ok_status();
}

Status sample_token(QSFSampler& handle, const float* logits, int* token) {
  Sampler& sampler = *handle.sampler;
  sampler.consume(0, 0, {logits, handle.n_vocab});
  if (!sampler.has_candidate()) return invalid_argument("logits: none is a finite number");
  QSF_RETURN_IF_ERROR(sampler.prepare());
  *token = static_cast<int>(sampler.draw(handle.history));
  return ok_status();
}

}  // namespace

Status read_sampling(const QSFEngine& engine, const qsf_sampling* from, SamplingOptions& out,
                     SamplingCallbacks& callbacks) {
  qsf_sampling sampling = default_sampling();
  if (from != nullptr) QSF_RETURN_IF_ERROR(read_struct(from, "sampling", sampling));
  out.temperature = sampling.temperature;
  out.top_p = sampling.top_p;
  out.min_p = sampling.min_p;
  out.typical_p = sampling.typical_p;
  out.repeat_penalty = sampling.repeat_penalty;
  out.frequency_penalty = sampling.frequency_penalty;
  out.presence_penalty = sampling.presence_penalty;
  out.xtc_probability = sampling.xtc_probability;
  out.xtc_threshold = sampling.xtc_threshold;
  out.seed = sampling.seed;
  QSF_RETURN_IF_ERROR(read_count("top_k", sampling.top_k, out.top_k));
  QSF_RETURN_IF_ERROR(read_count("repeat_window", sampling.repeat_window, out.repeat_window));
  QSF_RETURN_IF_ERROR(read_biases(sampling, out));
  QSF_RETURN_IF_ERROR(read_dry(engine, sampling, out));
  if (sampling.grammar != nullptr) out.grammar = sampling.grammar->grammar;
  if (sampling.grammar_trigger != nullptr) out.grammar_trigger = sampling.grammar_trigger;
  callbacks = {sampling.on_logits, sampling.on_mask, sampling.user_data};
  out.callback_user = &callbacks;
  if (callbacks.on_logits != nullptr) out.on_logits = filter_logits;
  if (callbacks.on_mask != nullptr) out.on_mask = mask_tokens;
  return validate(out, engine.engine->spec().n_vocab);
}

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void(qsf_sampling_init)(qsf_sampling* sampling) {
  init_struct(default_sampling(), kKnownSizes<qsf_sampling>.front(), sampling);
}
void qsf_sampling_init_sized(qsf_sampling* sampling, size_t struct_size) {
  init_struct(default_sampling(), struct_size, sampling);
}

qsf_code qsf_sampler_create(QSFEngine* engine, const qsf_sampling* options, QSFSampler** sampler,
                            qsf_error* error) {
  return guarded(error, [&] { return create_sampler(engine, options, sampler); });
}

void qsf_sampler_free(QSFSampler* sampler) {
  delete sampler;
}

qsf_code qsf_sampler_sample(QSFSampler* sampler, const float* logits, int* token,
                            qsf_error* error) {
  return guarded(error, [&] {
    if (sampler == nullptr) return null_argument("sampler");
    if (logits == nullptr) return null_argument("logits");
    if (token == nullptr) return null_argument("token");
    return sample_token(*sampler, logits, token);
  });
}

qsf_code qsf_sampler_accept(QSFSampler* sampler, int token, qsf_error* error) {
  return guarded(error, [&] {
    if (sampler == nullptr) return null_argument("sampler");
    if (token < 0 || static_cast<std::uint32_t>(token) >= sampler->n_vocab) {
      return qsf::invalid_argument("token: %d, expected 0 to %u", token, sampler->n_vocab - 1);
    }
    sampler->history.push_back(static_cast<qsf::TokenId>(token));
    return qsf::ok_status();
  });
}

void qsf_sampler_reset(QSFSampler* sampler) {
  if (sampler == nullptr) return;
  sampler->history.clear();
  qsf_sampler_set_seed(sampler, sampler->options.seed);
}

void qsf_sampler_set_seed(QSFSampler* sampler, uint64_t seed) {
  if (sampler == nullptr) return;
  sampler->options.seed = seed;
  sampler->sampler.emplace(sampler->options, sampler->logits, sampler->order);
}

int qsf_sample(const float* logits, int vocab_size, float temperature, float top_p) {
  static qsf::Rng seeds(0);
  if (logits == nullptr || vocab_size < 1) return -1;
  int drawn = -1;
  guarded(nullptr, [&]() -> qsf::Status {
    const auto n_vocab = static_cast<std::uint32_t>(vocab_size);
    qsf::SamplingOptions options;
    options.temperature = temperature;
    options.top_k = 0;
    options.top_p = top_p;
    options.seed = seeds.next_u64();
    QSF_RETURN_IF_ERROR(validate(options, n_vocab));
    std::vector<float> gathered(n_vocab);
    std::vector<std::uint32_t> order(n_vocab);
    qsf::Sampler sampler(options, gathered, order);
    sampler.consume(0, 0, {logits, n_vocab});
    drawn = static_cast<int>(sampler.draw({}));
    return qsf::ok_status();
  });
  return drawn;
}
