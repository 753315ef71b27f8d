// SPDX-License-Identifier: MIT

#include "tools/bench/bench_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/rng.h"
#include "format/tensor_rules.h"
#include "kv/h2o_eviction.h"
#include "platform/clock.h"
#include "quant/interleave.h"
#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

std::uint64_t bytes_in_memory(const qsf::TensorInfo& tensor) {
  return qsf::rows_bytes(qsf::kernel_format(tensor.format), qsf::Layout::kInterleaved, tensor.rows,
                         tensor.cols);
}

std::string type_text(qsf::BlockFormat format) {
  std::string text(qsf::quant_type_name(format.type));
  if (!qsf::is_float_type(format.type)) text += "/" + std::to_string(format.block);
  return text;
}

}  // namespace

ModelCost::ModelCost(const qsf::QsfReader& reader, qsf::KvType k_type, qsf::KvType v_type,
                     std::uint64_t n_kept, const std::optional<qsf::SparsePrefillOptions>& h2o)
    : spec_(reader.spec()), k_type_(k_type), v_type_(v_type), n_kept_(n_kept), h2o_(h2o) {
  std::map<std::string, std::uint64_t> weights_by_type;
  std::uint64_t n_floats = 0;
  for (const qsf::SectionDirectory& section : reader.directories()) {
    for (const qsf::TensorInfo& tensor : section.tensors) {
      const bool head = tensor.kind == qsf::TensorKind::kHead ||
                        (spec_.tied_head && tensor.kind == qsf::TensorKind::kTokenEmbedding);
      const bool layer = section.kind == qsf::SectionKind::kLayer;
      if (tensor.rows == 1 || (!head && !layer)) continue;
      // Of experts, those that a row uses.
      const bool of_expert = qsf::is_expert(tensor.kind);
      const std::uint64_t part = of_expert ? spec_.n_experts_used : 1;
      const std::uint64_t whole = of_expert ? spec_.n_experts : 1;
      const std::uint64_t n_weights = std::uint64_t{tensor.rows} * tensor.cols * part / whole;
      (head ? head_weights_ : layer_weights_) += n_weights;
      weight_bytes_ += bytes_in_memory(tensor) * part / whole;
      if (head) head_type_ = type_text(tensor.format);
      if (layer) weights_by_type[type_text(tensor.format)] += n_weights;
      if (qsf::is_float_type(tensor.format.type)) n_floats += n_weights;
    }
  }
  const auto most =
      std::max_element(weights_by_type.begin(), weights_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != weights_by_type.end()) layer_type_ = most->first;
  float_weights_ = 2 * n_floats > layer_weights_ + head_weights_;
}

std::uint64_t ModelCost::visible(std::uint64_t position, bool generated) const noexcept {
  if (h2o_ && !generated && position >= h2o_->chunk) {
    const std::uint64_t seen = position % h2o_->chunk + 1 + qsf::memory_set_size(*h2o_);
    return spec_.n_layers * seen;
  }
  const std::uint64_t kept = n_kept_ == 0 ? position + 1 : std::min(n_kept_, position + 1);
  std::uint64_t sum = 0;
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    const std::uint64_t window = spec_.window_at(layer, static_cast<std::uint32_t>(position));
    sum += window == 0 ? kept : std::min(window, kept);
  }
  return sum;
}

std::uint64_t ModelCost::kv_bytes(std::uint64_t position) const noexcept {
  std::uint64_t of_page = qsf::kv_block_bytes(k_type_, spec_.head_dim);
  if (!spec_.has_latent()) of_page += qsf::kv_block_bytes(v_type_, spec_.head_dim);
  return visible(position, true) * spec_.n_kv_heads * of_page / qsf::kKvPageSlots;
}

std::uint64_t ModelCost::operations(std::uint64_t position, bool with_logits,
                                    bool generated) const noexcept {
  const std::uint64_t products = layer_weights_ + (with_logits ? head_weights_ : 0);
  return 2 * products + 4 * visible(position, generated) * spec_.q_dim();
}

namespace {

constexpr std::uint32_t kWarmUpSteps = 4;

void print_warning(qsf::LogLevel level, std::string_view line, void*) {
  if (level == qsf::LogLevel::kWarning) {
    print_error(program_name(), "warning: " + std::string(line));
  }
}

std::uint32_t largest(const std::vector<std::uint32_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

}  // namespace

std::string test_name(const BenchTest& test) {
  return (test.generate ? "generate " : "prompt ") + std::to_string(test.n_tokens) +
         (test.n_sequences == 1 ? "" : " x " + std::to_string(test.n_sequences)) +
         (test.depth == 0 ? "" : " at " + std::to_string(test.depth));
}

std::vector<double> BenchResult::tokens_per_second() const {
  std::vector<double> rates;
  const double n_tokens = static_cast<double>(test.n_tokens) * test.n_sequences;
  for (const double seconds : run_seconds) rates.push_back(n_tokens / seconds);
  return rates;
}

namespace {

qsf::SparsePrefillOptions h2o_options(const qsf_h2o_options& from) {
  return {.local = static_cast<std::uint32_t>(from.local),
          .heavy = static_cast<std::uint32_t>(from.heavy),
          .chunk = static_cast<std::uint32_t>(from.chunk),
          .sinks = static_cast<std::uint32_t>(from.sinks),
          .ranking = from.ranking == QSF_H2O_SUM ? qsf::H2oRanking::kSum : qsf::H2oRanking::kMean};
}

}  // namespace

BenchModel::BenchModel(std::unique_ptr<qsf::Engine> engine, ModelCost cost) noexcept
    : engine_(std::move(engine)), cost_(std::move(cost)) {}

qsf::EngineOptions engine_settings(const BenchOptions& options, std::uint64_t ram_budget_bytes) {
  qsf::EngineOptions settings;
  settings.quality = options.quality;
  settings.experts_used = static_cast<std::uint32_t>(options.experts);
  settings.expert_preference = options.expert_margin;
  settings.n_threads = static_cast<unsigned>(options.n_threads);
  for (const qsf::KvType type : qsf::kAllKvTypes) {
    if (qsf::kv_type_name(type) == options.kv_types.keys()) settings.k_type = type;
    if (qsf::kv_type_name(type) == options.kv_types.values()) settings.v_type = type;
  }
  if (options.kv_policy.policy != "full") {
    const bool heavy = options.kv_policy.is_h2o();
    settings.kv_policy = {
        .policy = heavy ? qsf::KvPolicy::kH2o : qsf::KvPolicy::kWindow,
        .window = static_cast<std::uint32_t>(options.kv_policy.window_or_default()),
        .sinks = static_cast<std::uint32_t>(options.kv_policy.sinks_or_default()),
        .heavy = static_cast<std::uint32_t>(options.kv_policy.heavy_or_default()),
        .rope_reindex = options.kv_policy.rope_reindex};
  }
  settings.exact = options.exact;
  if (options.attention.is_h2o()) {
    settings.attention = qsf::AttentionKind::kSparsePrefill;
    settings.sparse_prefill = h2o_options(options.attention.h2o());
  }
  settings.pin = options.pin;
  settings.ram_budget_bytes = ram_budget_bytes;
  settings.read_path = options.read_path;
  settings.log.write = print_warning;
  return settings;
}

qsf::Result<BenchModel> BenchModel::open(const BenchOptions& options,
                                         std::uint64_t ram_budget_bytes) {
  QSF_ASSIGN_OR_RETURN(qsf::QsfReader reader, qsf::QsfReader::open(options.model));
  qsf::EngineOptions settings = engine_settings(options, ram_budget_bytes);
  if (settings.quality != 1.0F) {
    if (auto left_out = reader.use_quality(settings.quality); !left_out) return left_out.error();
  }
  if (settings.experts_used != 0) {
    QSF_RETURN_IF_ERROR(reader.use_experts(settings.experts_used));
  }
  std::uint64_t n_kept = 0;  // all
  if (options.kv_policy.policy != "full") {
    // On average rows see half of the current block.
    n_kept = std::uint64_t{settings.kv_policy.window} +
             (options.kv_policy.is_h2o() ? settings.kv_policy.heavy + qsf::kEvictionBlock / 2
                                         : settings.kv_policy.sinks);
  }
  std::optional<qsf::SparsePrefillOptions> h2o;
  if (options.attention.is_h2o()) h2o = settings.sparse_prefill;
  const std::uint64_t positions =
      std::uint64_t{largest(options.depths)} +
      std::max({largest(options.prompts), largest(options.generate), kWarmUpSteps});
  const std::uint32_t most =
      options.kv_policy.rope_reindex ? UINT32_MAX : reader.spec().max_positions;
  if (positions > most) {
    return qsf::invalid_argument(
        "%s: the tests need a context of %llu tokens, the model has %u positions; give smaller "
        "numbers to -p, -n and -d",
        options.model.c_str(), static_cast<unsigned long long>(positions), most);
  }
  settings.n_sequences = std::max(1U, largest(options.sequences));
  // A pass has at most as many rows as the context.
  settings.max_context = std::max(static_cast<std::uint32_t>(positions), settings.n_sequences);
  settings.kv_positions = UINT32_MAX;  // each may fill its context
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<qsf::Engine> engine,
                       qsf::Engine::open(options.model, settings));
  BenchModel model(std::move(engine),
                   ModelCost(reader, settings.k_type, settings.v_type, n_kept, h2o));
  model.sparse_ = h2o.has_value() || options.kv_policy.is_h2o();
  for (std::uint32_t i = 0; i < settings.n_sequences; ++i) {
    QSF_ASSIGN_OR_RETURN(std::unique_ptr<qsf::Session> session, model.engine_->create_session());
    model.sessions_.push_back(std::move(session));
  }
  const std::uint32_t n_vocab = model.engine_->spec().n_vocab;
  qsf::Rng rng(1);
  for (std::uint64_t i = 0; i < positions; ++i) model.tokens_.push_back(rng.below(n_vocab));
  model.logits_.assign(settings.n_sequences, std::vector<float>(n_vocab));
  return model;
}

std::vector<BenchTest> BenchModel::tests(const BenchOptions& options) const {
  std::vector<BenchTest> tests;
  for (const std::uint32_t depth : options.depths) {
    for (const std::uint32_t n : options.prompts) tests.push_back({false, n, depth});
    for (const std::uint32_t n : options.generate) {
      for (const std::uint32_t n_sequences : options.sequences) {
        tests.push_back({true, n, depth, n_sequences});
      }
    }
  }
  return tests;
}

qsf::Status BenchModel::reach_depth(std::uint32_t depth, std::uint32_t n_sequences) {
  for (std::uint32_t i = 0; i < n_sequences; ++i) {
    QSF_RETURN_IF_ERROR(reach_depth(*sessions_[i], depth));
  }
  return qsf::ok_status();
}

qsf::Status BenchModel::reach_depth(qsf::Session& session, std::uint32_t depth) {
  if (session.length() > depth) {
    // Memory sets that are taken back would be computed again as a part of the test.
    const std::size_t kept = sparse_ ? 0 : session.longest_kept(depth);
    QSF_RETURN_IF_ERROR(session.truncate(kept));
  }
  const std::size_t length = session.length();
  if (length == depth) return qsf::ok_status();
  return session.prefill(std::span(tokens_).subspan(length, depth - length), nullptr);
}

qsf::Status BenchModel::generate(std::span<const qsf::TokenId> tokens, std::uint32_t n_sequences) {
  std::vector<qsf::LogitsCopy> sinks(logits_.begin(), logits_.begin() + n_sequences);
  std::vector<qsf::SessionToken> step(n_sequences);
  for (const qsf::TokenId token : tokens) {
    for (std::uint32_t i = 0; i < n_sequences; ++i) {
      step[i] = {sessions_[i].get(), token, &sinks[i]};
    }
    QSF_RETURN_IF_ERROR(engine_->step_sessions(step));
  }
  return qsf::ok_status();
}

qsf::Result<double> BenchModel::run(const BenchTest& test) {
  QSF_RETURN_IF_ERROR(reach_depth(test.depth, test.n_sequences));
  const std::span<const qsf::TokenId> tokens =
      std::span<const qsf::TokenId>(tokens_).subspan(test.depth, test.n_tokens);
  const std::uint64_t start = qsf::monotonic_ns();
  if (test.generate) {
    QSF_RETURN_IF_ERROR(generate(tokens, test.n_sequences));
  } else {
    qsf::LogitsCopy sink(logits_[0]);
    QSF_RETURN_IF_ERROR(sessions_[0]->prefill(tokens, &sink));
  }
  return static_cast<double>(qsf::monotonic_ns() - start) * 1e-9;
}

qsf::Status BenchModel::warm_up(const BenchTest& test) {
  BenchTest first = test;
  if (test.generate) first.n_tokens = std::min(test.n_tokens, kWarmUpSteps);
  auto seconds = run(first);
  return seconds ? qsf::ok_status() : std::move(seconds).error();
}

void BenchModel::add_cost(BenchResult& result) const {
  for (std::uint32_t i = 0; i < result.test.n_tokens; ++i) {
    const std::uint64_t position = std::uint64_t{result.test.depth} + i;
    const bool with_logits = result.test.generate || i + 1 == result.test.n_tokens;
    const std::uint64_t n = result.test.n_sequences;
    result.operations += n * cost_.operations(position, with_logits, result.test.generate);
    if (result.test.generate) {
      result.bytes_read += cost_.weight_bytes() + n * cost_.kv_bytes(position);
    }
  }
}

}  // namespace qsf_tools
