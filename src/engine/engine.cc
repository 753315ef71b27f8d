// SPDX-License-Identifier: MIT
//
// The engine over its parts: what it reports, and runs of whole windows. engine_opener.cc makes it.

#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/engine_opener.h"
#include "engine/numbered_rows.h"
#include "engine/score_sink.h"
#include "platform/memory.h"
#include "tokenizer/stream_decoder.h"

namespace qsf {
namespace {

Status check_window(std::span<const TokenId> tokens, const Engine::Impl& engine) {
  const std::uint32_t n_vocab = engine.reader->spec().n_vocab;
  if (tokens.empty()) return invalid_argument("no tokens to run, expected at least one");
  if (tokens.size() > engine.max_context) {
    return out_of_budget("%zu tokens to run, the context has %u positions", tokens.size(),
                         engine.max_context);
  }
  for (const TokenId token : tokens) {
    if (token >= n_vocab) {
      return invalid_argument("token %u: the vocabulary ends at %u", token, n_vocab - 1);
    }
  }
  return ok_status();
}

// Pools rows in their order, in f64.
class RowPool {
 public:
  RowPool(std::size_t n_hidden, Pooling pooling) : sum_(n_hidden), pooling_(pooling) {}

  static void take(std::uint32_t, std::span<const float> values, void* user) {
    auto& self = *static_cast<RowPool*>(user);
    if (self.n_rows_++ != 0 && self.pooling_ == Pooling::kFirst) return;
    const bool adds = self.pooling_ == Pooling::kMean;
    for (std::size_t i = 0; i < values.size(); ++i) {
      self.sum_[i] = (adds ? self.sum_[i] : 0.0) + static_cast<double>(values[i]);
    }
  }

  // Returns the pooled row, which may be changed before finish().
  std::span<double> pooled() noexcept {
    if (pooling_ == Pooling::kMean) {
      for (double& value : sum_) value /= static_cast<double>(n_rows_);
    }
    return sum_;
  }

  // Returns false when a value is not finite.
  bool finish(bool normalize, std::span<float> embedding) const {
    double divisor = 1.0;
    if (normalize) {
      double squares = 0.0;
      for (const double value : sum_) squares += value * value;
      divisor = squares > 0.0 ? std::sqrt(squares) : 1.0;
    }
    std::transform(sum_.begin(), sum_.end(), embedding.begin(),
                   [divisor](double value) { return static_cast<float>(value / divisor); });
    return std::all_of(embedding.begin(), embedding.end(),
                       [](float value) { return std::isfinite(value); });
  }

 private:
  std::vector<double> sum_;
  std::size_t n_rows_ = 0;
  Pooling pooling_;
};

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
// The plan of the next model counts the heap of the process as it is then.
Engine::~Engine() {
  impl_.reset();
  return_free_heap();
}

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path,
                                             const EngineOptions& options) {
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, EngineOpener(options).open(path));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<EnginePlan> Engine::plan_file(const std::string& path, const EngineOptions& options,
                                     bool with_memory_rate) {
  return EngineOpener(options).plan(path, with_memory_rate);
}

const ModelSpec& Engine::spec() const noexcept {
  return impl_->reader->spec();
}
const Tokenizer* Engine::tokenizer() const noexcept {
  return impl_->tokenizer.has_value() ? &*impl_->tokenizer : nullptr;
}
std::string Engine::decode(std::span<const TokenId> tokens) const {
  StreamDecoder decoder(*impl_->tokenizer, DecodeOptions{});
  std::string text;
  for (const TokenId token : tokens) text += decoder.push(token);
  text += decoder.finish();
  return text;
}
std::uint32_t Engine::max_context() const noexcept {
  return impl_->max_context;
}
std::uint64_t Engine::file_bytes() const noexcept {
  return impl_->reader->file().size_bytes();
}
std::string_view Engine::instruction_set() const noexcept {
  return impl_->backend->instruction_set();
}
unsigned Engine::n_threads() const noexcept {
  return impl_->threads->n_threads();
}
const EnginePlan& Engine::plan() const noexcept {
  return impl_->plan;
}
EngineStats Engine::stats() const noexcept {
  EngineStats stats = impl_->stats;
  const PagerStats reading = impl_->pager->stats();
  stats.weight_bytes_read = reading.bytes_read;
  stats.read_wait_ns = reading.wait_ns;
  stats.read_ns = reading.read_ns;
  stats.unpack_ns = reading.decompress_ns;
  if (impl_->speculation.has_value()) {
    const ModelDrafts& drafts = impl_->speculation->model_drafts();
    stats.model_drafted_tokens = drafts.n_drafted;
    stats.model_accepted_tokens = drafts.n_accepted;
    stats.draft_ns = drafts.ns;
    stats.generate_ns += drafts.ns;
  }
  if (impl_->spilled != nullptr) {
    const KvSpillStats spill = impl_->spilled->stats();
    stats.kv_bytes_read = spill.bytes_read;
    stats.kv_bytes_written = spill.bytes_written;
    stats.read_wait_ns += spill.wait_ns;
  }
  if (impl_->head.has_value()) stats.head = impl_->head->counts();
  return stats;
}
PagerStats Engine::pager_stats() const {
  return impl_->pager->stats();
}
void Engine::set_trace(std::span<TileEvent> events) {
  impl_->pager->set_trace(events);
}
std::size_t Engine::n_traced() const {
  return impl_->pager->n_traced();
}
void Engine::set_routing_hook(RoutingHook* hook) noexcept {
  impl_->decoder->set_routing_hook(hook);
}
const LogSink& Engine::log() const noexcept {
  return impl_->options.log;
}
void Engine::cancel() noexcept {
  impl_->cancel.store(true, std::memory_order_relaxed);
}

std::uint32_t Engine::Impl::n_drawable() const noexcept {
  const ModelSpec& spec = reader->spec();
  if (!tokenizer.has_value()) return spec.n_vocab;
  std::uint32_t n = tokenizer->n_tokens();
  for (const std::uint32_t id : spec.eos_ids) n = std::max(n, id + 1);
  return std::min(n, spec.n_vocab);
}
GrammarEngine* Engine::grammars() noexcept {
  return impl_->grammars.get();
}

std::uint32_t Engine::n_drawable() const noexcept {
  return impl_->n_drawable();
}
std::vector<TokenId> Engine::Impl::end_of_text_ids() const {
  const std::vector<std::uint32_t>& of_model = reader->spec().eos_ids;
  std::vector<TokenId> ids(of_model.begin(), of_model.end());
  for (std::uint32_t i = 0; i < tokenizer->n_stop_ids(); ++i) ids.push_back(tokenizer->stop_id(i));
  if (tokenizer->eos() != kNoToken) ids.push_back(tokenizer->eos());
  return ids;
}

KvPageCounts Engine::kv_pages() const noexcept {
  return impl_->kv_pages();
}
PrefixCacheStats Engine::prefix_stats() const noexcept {
  return impl_->prefix_stats();
}

std::uint64_t Engine::n_parameters() const noexcept {
  std::uint64_t count = 0;
  for (const SectionDirectory& section : impl_->reader->directories()) {
    for (const TensorInfo& tensor : section.tensors) {
      count += std::uint64_t{tensor.rows} * tensor.cols;
    }
  }
  return count;
}

std::string_view Engine::quant_name() const noexcept {
  const std::optional<QuantType>& type = spec().default_type;
  return type.has_value() ? quant_type_name(*type) : std::string_view("mixed");
}

Result<std::unique_ptr<Session>> Engine::create_session() {
  QSF_ASSIGN_OR_RETURN(const SequenceId sequence, impl_->kv->create_sequence());
  impl_->record(SequenceChange::Kind::kCreate, sequence);
  impl_->sequence_adapters[sequence] = impl_->options.session_adapter;
  return std::unique_ptr<Session>(new Session(*impl_, sequence));
}

Status Engine::score(std::span<const TokenId> tokens, std::size_t first,
                     std::span<double> log_probs) {
  if (tokens.size() > impl_->max_context) {
    return out_of_budget("%zu tokens to score, the context has %u positions", tokens.size(),
                         impl_->max_context);
  }
  if (first == 0 || first >= tokens.size() || log_probs.size() != tokens.size() - first) {
    return invalid_argument(
        "score: from token %zu of %zu: expected at least one token before it and one log "
        "probability for each from it on",
        first, tokens.size());
  }
  for (const TokenId token : tokens.subspan(first)) {
    if (token >= spec().n_vocab) {
      return invalid_argument("token %u: the vocabulary ends at %u", token, spec().n_vocab - 1);
    }
  }
  QSF_RETURN_IF_ERROR(impl_->check_generates());
  if (impl_->prompts_are_whole()) {
    return unsupported(
        "attention symmetric: tokens attend to those after them, so their "
        "probabilities mean nothing; use full");
  }
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, create_session());
  ScoreSink sink(spec().n_vocab, impl_->rows_per_pass);
  // Row i predicts token i + 1, so the last token is no row and rows from first - 1 on are scored.
  const std::span<const TokenId> inputs = tokens.first(tokens.size() - 1);
  if (first > 1) QSF_RETURN_IF_ERROR(session->prefill(inputs.first(first - 1), nullptr));
  for (std::size_t row = first - 1; row < inputs.size();) {
    const std::size_t n = std::min<std::size_t>(impl_->rows_per_pass, inputs.size() - row);
    sink.begin(tokens.subspan(row + 1, n), log_probs.subspan(row + 1 - first, n));
    QSF_RETURN_IF_ERROR(
        impl_->append(session->sequence_, inputs.subspan(row, n), RowRole::kPrompt, 0, &sink));
    row += n;
  }
  impl_->take_cancel();  // asked for after the last pass: too late to matter, and not for the next
                         // call
  for (const double log_prob : log_probs) {
    if (!std::isfinite(log_prob)) {
      return corrupt(
          "%s: the model's logits are not finite; its weights or its configuration are "
          "damaged",
          impl_->reader->file().path().c_str());
    }
  }
  return ok_status();
}

Status Engine::run_layers(std::span<const TokenId> tokens, std::uint32_t first, std::uint32_t last,
                          std::span<float> hidden, LogitsSink* sink) {
  const std::size_t n_hidden = spec().hidden;
  QSF_CHECK(first < last && last <= spec().n_layers && hidden.size() == tokens.size() * n_hidden);
  QSF_CHECK(sink == nullptr || last == spec().n_layers);
  if (sink != nullptr) QSF_RETURN_IF_ERROR(impl_->check_generates());
  if (spec().has_streams()) {
    return unsupported("layers %u to %u: the model has %u residual streams", first, last - 1,
                       spec().n_streams);
  }
  for (std::uint32_t layer = first; layer < last; ++layer) {
    const std::uint32_t from = spec().attention_of(layer).kv_layer;
    if (from >= first) continue;
    return unsupported("layers %u to %u: layer %u attends to the keys and values of layer %u",
                       first, last - 1, layer, from);
  }
  QSF_RETURN_IF_ERROR(check_window(tokens, *impl_));
  QSF_RETURN_IF_ERROR(impl_->check_pass_of(tokens.size()));
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, create_session());
  for (std::size_t row = 0; row < tokens.size();) {
    const std::size_t n = std::min<std::size_t>(impl_->rows_per_pass, tokens.size() - row);
    const std::span<float> part = hidden.subspan(row * n_hidden, n * n_hidden);
    std::optional<NumberedRows> numbered;
    if (sink != nullptr) numbered.emplace(*sink, row);
    QSF_RETURN_IF_ERROR(impl_->run_part(session->sequence_, tokens.subspan(row, n), first, last,
                                        part, numbered ? &*numbered : nullptr));
    row += n;
  }
  impl_->take_cancel();  // asked for after the last pass, as score() has it
  return ok_status();
}

Status Engine::embed(std::span<const TokenId> tokens, std::optional<Pooling> pooling,
                     bool normalize, std::span<float> embedding) {
  QSF_CHECK(embedding.size() == spec().hidden);
  QSF_RETURN_IF_ERROR(check_window(tokens, *impl_));
  QSF_RETURN_IF_ERROR(impl_->check_pass_of(tokens.size()));
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, create_session());
  RowPool pool(spec().hidden, pooling.value_or(spec().pooling.value_or(Pooling::kMean)));
  for (std::size_t row = 0; row < tokens.size();) {
    const std::size_t n = std::min<std::size_t>(impl_->rows_per_pass, tokens.size() - row);
    QSF_RETURN_IF_ERROR(impl_->run_to_norm(session->sequence_, tokens.subspan(row, n),
                                           {.take = RowPool::take, .user = &pool}));
    row += n;
  }
  impl_->take_cancel();  // asked for after the last pass, as score() has it
  QSF_RETURN_IF_ERROR(impl_->decoder->apply_dense(pool.pooled()));
  if (pool.finish(normalize, embedding)) return ok_status();
  return corrupt(
      "%s: the model's hidden states are not finite; its weights or its configuration "
      "are damaged",
      impl_->reader->file().path().c_str());
}

Status Engine::normed_rows(std::span<const TokenId> tokens,
                           FunctionRef<void(std::span<const float> row)> take) {
  QSF_RETURN_IF_ERROR(check_window(tokens, *impl_));
  QSF_RETURN_IF_ERROR(impl_->check_pass_of(tokens.size()));
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, create_session());
  const NormedRows to = {
      .take =
          [](std::uint32_t /*row*/, std::span<const float> values, void* user) {
            (*static_cast<const FunctionRef<void(std::span<const float>)>*>(user))(values);
          },
      .user = &take};
  for (std::size_t row = 0; row < tokens.size();) {
    const std::size_t n = std::min<std::size_t>(impl_->rows_per_pass, tokens.size() - row);
    QSF_RETURN_IF_ERROR(impl_->run_to_norm(session->sequence_, tokens.subspan(row, n), to));
    row += n;
  }
  impl_->take_cancel();  // asked for after the last pass, as score() has it
  return ok_status();
}

}  // namespace qsf
