// SPDX-License-Identifier: MIT

#include "tools/parity/parity_run.h"

#include <algorithm>
#include <utility>

#include "io/atomic_file.h"
#include "platform/clock.h"
#include "tools/common/model_cache.h"
#include "tools/parity/parity_child.h"
#include "tools/parity/parity_json.h"
#include "tools/parity/sha256.h"

namespace qsf_tools {
namespace {

// Logits of one side that are kept at once.
constexpr std::size_t kLogitsBytes = 32U << 20;
constexpr std::size_t kMaxRows = 512;
constexpr const char* kEngineName = "qsf";

double seconds_since(std::uint64_t start_ns) {
  return static_cast<double>(qsf::monotonic_ns() - start_ns) * 1e-9;
}

qsf::Status write_bytes(const std::string& path, const std::string& text) {
  return qsf::write_file(path, {reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

}  // namespace

ParityRun::ParityRun(const ParityOptions& options)
    : options_(options),
      engine_path_(options.model),
      observer_({.keep_records = !options.kernel_records.empty(), .trace = !options.trace.empty()}),
      reference_observer_({.keep_records = false, .trace = !options.trace_reference.empty()}) {
  result_.thresholds = options.thresholds;
  result_.n_steps = options.steps;
  result_.ids_given = !options.ids.empty();
}

void ParityRun::compare() {
  qsf::Status status = open_sources();
  if (status.ok()) status = find_tokens();
  const bool vocabularies_equal = !comparing() || result_.n_vocab == result_.reference_n_vocab;
  const bool same_tokens = !comparing() || !result_.first_token_difference();
  if (status.ok() && vocabularies_equal && same_tokens) {
    status = check_ids();
    if (status.ok()) status = begin_recording();
    if (status.ok()) status = compare_prompt();
    if (status.ok()) status = compare_greedy();
  }
  if (!status.ok()) result_.failure = status.message();
  for (const auto& [kernel, count] : observer_.kernels()) result_.kernels.push_back(kernel);
}

qsf::Status ParityRun::open_sources() {
  if (is_gguf_path(options_.model)) {
    std::string problem;
    const std::optional<std::string> converted =
        converted_model(options_.model, options_.i2s_layout, false, problem);
    if (!converted) return qsf::unsupported("%s", problem.c_str());
    engine_path_ = *converted;
  }
  QSF_ASSIGN_OR_RETURN(ours_,
                       EngineSource::open({.model = engine_path_,
                                           .context = options_.context,
                                           .n_threads = static_cast<unsigned>(options_.n_threads),
                                           .kv_types = options_.kv_types,
                                           .exact = options_.exact,
                                           .observer = &observer_}));
  result_.n_vocab = ours_->n_vocab();
  if (!comparing()) return qsf::ok_status();
  QSF_RETURN_IF_ERROR(open_reference(ours_->engine().max_context()));
  result_.reference_n_vocab = reference_->n_vocab();
  return qsf::ok_status();
}

qsf::Status ParityRun::open_reference(std::uint32_t context) {
  if (options_.reference == "exact") {
    QSF_ASSIGN_OR_RETURN(reference_,
                         EngineSource::open({.model = engine_path_,
                                             .context = context,
                                             .n_threads = static_cast<unsigned>(options_.n_threads),
                                             .kv_types = options_.kv_types,
                                             .exact = true,
                                             .observer = &reference_observer_}));
  } else if (options_.reference == "llama") {
    QSF_ASSIGN_OR_RETURN(
        reference_,
        ChildSource::start({.program = options_.child,
                            .model = options_.reference_model,
                            .context = context,
                            .n_threads = ours_->engine().n_threads(),
                            .kv_type = options_.kv_types.keys() == "f32" ? "f32" : "f16",
                            .timeout_seconds = options_.timeout_seconds,
                            .trace = !options_.trace_reference.empty()}));
  } else {
    QSF_ASSIGN_OR_RETURN(reference_, RecordedSource::open(options_.reference));
  }
  return qsf::ok_status();
}

qsf::Status ParityRun::find_tokens() {
  if (result_.ids_given) {
    result_.tokens = options_.ids;
    result_.reference_tokens = options_.ids;
  } else {
    QSF_ASSIGN_OR_RETURN(result_.tokens, ours_->tokenize(*options_.prompt, options_.parse_special));
    if (comparing()) {
      QSF_ASSIGN_OR_RETURN(result_.reference_tokens,
                           reference_->tokenize(*options_.prompt, options_.parse_special));
    }
  }
  const std::size_t n = result_.tokens.size();
  result_.n_positions = static_cast<std::uint32_t>(
      options_.positions == 0 ? n : std::min<std::size_t>(n, options_.positions));
  return qsf::ok_status();
}

qsf::Status ParityRun::check_ids() const {
  if (result_.n_positions == 0) return qsf::invalid_argument("the prompt has no tokens");
  for (const std::uint32_t token : result_.tokens) {
    if (token >= result_.n_vocab) {
      return qsf::invalid_argument("token %u: the vocabulary ends at %u", token,
                                   result_.n_vocab - 1);
    }
  }
  const std::uint64_t needed = std::uint64_t{result_.n_positions} + options_.steps;
  if (needed > ours_->engine().max_context()) {
    return qsf::invalid_argument(
        "%u tokens and %u steps do not fit a context of %u positions; give fewer --positions or a "
        "larger --context",
        result_.n_positions, options_.steps, ours_->engine().max_context());
  }
  return qsf::ok_status();
}

qsf::Status ParityRun::begin_recording() {
  const std::size_t row_bytes = std::size_t{result_.n_vocab} * sizeof(float);
  const std::size_t n_rows = std::clamp<std::size_t>(kLogitsBytes / row_bytes, 1, kMaxRows);
  ours_logits_.resize(n_rows * result_.n_vocab);
  if (comparing()) reference_logits_.resize(n_rows * result_.n_vocab);
  if (options_.record.empty()) return qsf::ok_status();
  std::vector<std::uint32_t> tokens = result_.tokens;
  tokens.resize(result_.n_positions);
  const LogitsSource& recorded = comparing() ? *reference_ : static_cast<LogitsSource&>(*ours_);
  const std::string& model =
      options_.reference == "llama" ? options_.reference_model : options_.model;
  const std::string source =
      source_text(recorded.describe(), model, sha256_of_file(model).value_or(""));
  QSF_ASSIGN_OR_RETURN(LogitsRecorder recorder,
                       LogitsRecorder::create(options_.record, result_.n_vocab, tokens, source));
  recorder_.emplace(std::move(recorder));
  return qsf::ok_status();
}

qsf::Status ParityRun::evaluate_ours(std::span<const std::uint32_t> tokens, bool generated) {
  const std::uint64_t start = qsf::monotonic_ns();
  qsf::Status status = ours_->evaluate(
      tokens, generated, std::span(ours_logits_).first(tokens.size() * result_.n_vocab));
  ours_seconds_ += seconds_since(start);
  return status;
}

qsf::Status ParityRun::evaluate_reference(std::span<const std::uint32_t> tokens, bool generated) {
  const std::uint64_t start = qsf::monotonic_ns();
  qsf::Status status = reference_->evaluate(
      tokens, generated, std::span(reference_logits_).first(tokens.size() * result_.n_vocab));
  reference_seconds_ += seconds_since(start);
  return status;
}

qsf::Status ParityRun::record(std::size_t n_rows) {
  if (!recorder_) return qsf::ok_status();
  const std::vector<float>& logits = comparing() ? reference_logits_ : ours_logits_;
  return recorder_->add(std::span<const float>(logits).first(n_rows * result_.n_vocab));
}

std::span<const float> ParityRun::row_of(const std::vector<float>& logits, std::size_t row) const {
  return std::span<const float>(logits).subspan(row * result_.n_vocab, result_.n_vocab);
}

qsf::Status ParityRun::compare_prompt() {
  const std::size_t most = ours_logits_.size() / result_.n_vocab;
  const auto tokens = std::span<const std::uint32_t>(result_.tokens).first(result_.n_positions);
  for (std::size_t done = 0; done < tokens.size();) {
    const auto part = tokens.subspan(done, std::min(most, tokens.size() - done));
    QSF_RETURN_IF_ERROR(evaluate_ours(part, false));
    if (comparing()) QSF_RETURN_IF_ERROR(evaluate_reference(part, false));
    QSF_RETURN_IF_ERROR(record(part.size()));
    for (std::size_t i = 0; i < part.size() && comparing(); ++i) {
      result_.rows.push_back(
          compare_row(row_of(ours_logits_, i), row_of(reference_logits_, i), result_.thresholds));
    }
    done += part.size();
    last_row_ = part.size() - 1;
  }
  return qsf::ok_status();
}

// Each side goes on with the tokens that it chose itself. As long as they are the same, the rows
// behind them are compared as well: they come from the kernels of generation.
qsf::Status ParityRun::compare_greedy() {
  for (std::uint32_t step = 0; step < result_.n_steps; ++step) {
    const std::span<const float> ours = row_of(ours_logits_, last_row_);
    const auto token = greedy_token(ours);
    if (token) result_.greedy.push_back(*token);
    std::optional<std::uint32_t> reference_token = token;
    if (comparing()) {
      const std::span<const float> reference = row_of(reference_logits_, last_row_);
      reference_token = greedy_token(reference);
      if (reference_token) result_.reference_greedy.push_back(*reference_token);
      if (all_zero(ours) || all_zero(reference)) {
        return qsf::corrupt("greedy step %u: the logits of one side are all zeros", step);
      }
    }
    result_.greedy_finite = token && reference_token;
    if (!result_.greedy_finite || step + 1 == result_.n_steps) break;
    const bool shared = result_.n_greedy_shared() == result_.greedy.size();
    QSF_RETURN_IF_ERROR(evaluate_ours({&*token, 1}, true));
    if (comparing()) QSF_RETURN_IF_ERROR(evaluate_reference({&*reference_token, 1}, true));
    QSF_RETURN_IF_ERROR(record(1));
    last_row_ = 0;
    if (comparing() && shared) {
      result_.rows.push_back(
          compare_row(row_of(ours_logits_, 0), row_of(reference_logits_, 0), result_.thresholds));
    }
  }
  return qsf::ok_status();
}

qsf::Status ParityRun::write_outputs() {
  const auto trace_of = [&](const std::string& engine, std::span<const TracePoint> points) {
    return Trace{engine, options_.model, result_.tokens, {points.begin(), points.end()}};
  };
  if (!options_.trace.empty()) {
    QSF_RETURN_IF_ERROR(write_trace(options_.trace, trace_of(kEngineName, observer_.points())));
  }
  if (!options_.trace_reference.empty()) {
    const bool child = options_.reference == "llama" && reference_ != nullptr;
    const Trace trace = child ? trace_of(reference_->describe().name, reference_->points())
                              : trace_of(kEngineName, reference_observer_.points());
    QSF_RETURN_IF_ERROR(write_trace(options_.trace_reference, trace));
  }
  if (!options_.kernel_records.empty()) {
    QSF_RETURN_IF_ERROR(write_bytes(options_.kernel_records, observer_.records()));
    kernel_records_sha256_ = sha256_of(observer_.records());
  }
  // A comparison that was not finished has no whole row to record.
  if (!recorder_ || !result_.failure.empty()) return qsf::ok_status();
  return recorder_->finish();
}

}  // namespace qsf_tools
