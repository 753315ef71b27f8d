// SPDX-License-Identifier: MIT

#include "convert/calibrate/collect_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/cosine.h"
#include "base/crc32.h"
#include "engine/engine_plan.h"
#include "engine/score_sink.h"
#include "format/qsf_reader.h"
#include "io/atomic_file.h"
#include "io/file.h"

namespace qsf {

ColumnSums::ColumnSums(const ModelSpec& spec)
    : places_per_layer_(kInputsPerLayer + 2 * std::size_t{spec.n_experts}),
      sums_(1 + spec.n_layers * places_per_layer_),
      cosines_(spec.n_layers) {
  const CalibratedModel shape = shape_of(spec);
  sums_[0].squares.resize(spec.hidden);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    for_each_place(shape, layer, [&](const InputPlace& place) {
      sums_[index(place)].squares.resize(input_cols(shape, place));
    });
  }
}

std::uint64_t ColumnSums::memory_bytes(const ModelSpec& spec) noexcept {
  const CalibratedModel shape = shape_of(spec);
  const std::uint64_t n_places = kInputsPerLayer + 2 * std::uint64_t{spec.n_experts};
  std::uint64_t n_cols = spec.hidden;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    for_each_place(shape, layer,
                   [&](const InputPlace& place) { n_cols += input_cols(shape, place); });
  }
  return n_cols * sizeof(double) + spec.n_layers * n_places * sizeof(Sums);
}

void ColumnSums::take_input(const InputPlace& place, std::span<const float> row) {
  Sums& sums = sums_[index(place)];
  QSF_CHECK(row.size() == sums.squares.size());
  for (std::size_t c = 0; c < row.size(); ++c) {
    const double value = row[c];
    sums.squares[c] += value * value;
    sums.largest = std::max(sums.largest, std::fabs(row[c]));
  }
  ++sums.n_rows;
}

void ColumnSums::take_layer(std::uint32_t layer, std::span<const float> in,
                            std::span<const float> out) {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (std::size_t c = 0; c < in.size(); ++c) {
    const double a = in[c];
    const double b = out[c];
    ab += a * b;
    aa += a * a;
    bb += b * b;
  }
  cosines_[layer].sum += cosine_of_sums(ab, aa, bb);
  ++cosines_[layer].n_rows;
}

std::vector<MutableByteSpan> ColumnSums::parts() {
  std::vector<MutableByteSpan> parts = {std::as_writable_bytes(std::span(cosines_))};
  for (Sums& sums : sums_) {
    parts.push_back(std::as_writable_bytes(std::span(sums.squares)));
    parts.push_back(std::as_writable_bytes(std::span(&sums.n_rows, 1)));
    parts.push_back(std::as_writable_bytes(std::span(&sums.largest, 1)));
  }
  return parts;
}

std::vector<float> ColumnSums::mean_squares(const InputPlace& place) const {
  const Sums& sums = sums_[index(place)];
  std::vector<float> means(sums.squares.size());
  if (sums.n_rows == 0) return means;
  for (std::size_t c = 0; c < means.size(); ++c) {
    means[c] = static_cast<float>(sums.squares[c] / static_cast<double>(sums.n_rows));
  }
  return means;
}

double ColumnSums::mean_cosine(std::uint32_t layer) const noexcept {
  const Cosines& cosines = cosines_[layer];
  return cosines.n_rows == 0 ? 1.0 : cosines.sum / static_cast<double>(cosines.n_rows);
}

// The file: magic and version, the numbers of all parts, their CRC. What writes it reads it, with
// the same model and text, so it does not state its length.

namespace {

constexpr std::string_view kMagicAndVersion = "QSFG\6";

template <typename T>
MutableByteSpan bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Status damaged(const std::string& path) {
  return corrupt("%s: from another run, or damaged; remove this file and run again", path.c_str());
}

}  // namespace

std::vector<MutableByteSpan> RunState::parts() {
  std::vector<MutableByteSpan> parts = {bytes_of(n_summed), bytes_of(n_skipped),
                                        std::as_writable_bytes(std::span(losses)),
                                        std::as_writable_bytes(std::span(skip_losses))};
  for (const MutableByteSpan part : sums.parts()) parts.push_back(part);
  parts.push_back(choices.bytes());
  return parts;
}

Status RunState::read(const std::string& path, FileOps& ops) {
  const auto file = File::open(path, ops);
  if (!file && file.error().code() == StatusCode::kNotFound) return ok_status();
  if (!file) return Status(file.error());
  std::uint32_t crc = 0;
  std::uint32_t stored = 0;
  std::uint64_t n_bytes = kMagicAndVersion.size() + sizeof crc;
  for (const MutableByteSpan part : parts()) n_bytes += part.size();
  if (file->size_bytes() != n_bytes) return damaged(path);
  std::array<std::byte, kMagicAndVersion.size()> start;
  QSF_RETURN_IF_ERROR(file->read_exact_at(0, start));
  std::uint64_t at = start.size();
  for (const MutableByteSpan part : parts()) {
    QSF_RETURN_IF_ERROR(file->read_exact_at(at, part));
    crc = crc32(part, crc);
    at += part.size();
  }
  QSF_RETURN_IF_ERROR(file->read_exact_at(at, bytes_of(stored)));
  if (as_text(start) == kMagicAndVersion && crc == stored && n_summed <= losses.size() &&
      n_skipped <= losses.size() * skip_losses.size()) {
    return ok_status();
  }
  return damaged(path);
}

Status RunState::write(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, ops));
  QSF_RETURN_IF_ERROR(file.write_at(0, as_bytes(kMagicAndVersion)));
  std::uint64_t at = kMagicAndVersion.size();
  std::uint32_t crc = 0;
  for (const MutableByteSpan part : parts()) {
    QSF_RETURN_IF_ERROR(file.write_at(at, part));
    crc = crc32(part, crc);
    at += part.size();
  }
  QSF_RETURN_IF_ERROR(file.write_at(at, bytes_of(crc)));
  return file.commit();
}

namespace {

bool is_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// How often a run writes its state while it sums columns.
constexpr std::size_t kStatesPerPass = 16;

// The windows that run through the head too, for the loss and its input: an eighth, or all of few.
std::size_t n_head_windows(const ModelSpec& spec, std::size_t n_windows) noexcept {
  constexpr std::size_t kLeast = 16;
  if (!Engine::runs_in_parts(spec)) return n_windows;
  return std::max(n_windows / 8, std::min(n_windows, kLeast));
}

std::vector<ExpertCalibration> expert_means(const ColumnSums& sums, std::uint32_t layer,
                                            std::uint32_t n_experts) {
  std::vector<ExpertCalibration> experts;
  for (std::uint32_t e = 0; e < n_experts; ++e) {
    const InputPlace gate_up = {ProductInput::kGateUp, layer, e};
    const InputPlace down = {ProductInput::kDown, layer, e};
    QSF_CHECK(sums.n_rows(gate_up) == sums.n_rows(down));
    experts.push_back({.n_rows = sums.n_rows(gate_up),
                       .largest = sums.largest(down),
                       .gate_up_mean_squares = sums.mean_squares(gate_up),
                       .down_mean_squares = sums.mean_squares(down)});
  }
  return experts;
}

// Records the experts that the rows of windows choose.
class WindowChoices final : public RoutingHook {
 public:
  explicit WindowChoices(ExpertChoices& to) noexcept : to_(to) {}
  // The next passes run the window that begins with this token of the text.
  void begin_window(std::uint64_t first_token) noexcept { first_token_ = first_token; }
  void routed(std::uint32_t layer, const Row& row, std::span<const float> scores,
              std::span<ExpertChoice> chosen) override {
    static_cast<void>(scores);
    to_.add(layer, first_token_ + static_cast<std::uint64_t>(row.position), chosen);
  }

 private:
  ExpertChoices& to_;
  std::uint64_t first_token_ = 0;
};

// Hands rows to one consumer and, if there is one, to another.
class TwoConsumers final : public RowConsumer {
 public:
  TwoConsumers(RowConsumer& first, RowConsumer* second) noexcept : first_(first), second_(second) {}
  void take_input(const InputPlace& place, std::span<const float> row) override {
    first_.take_input(place, row);
    if (second_ != nullptr) second_->take_input(place, row);
  }
  void take_layer(std::uint32_t layer, std::span<const float> in,
                  std::span<const float> out) override {
    first_.take_layer(layer, in, out);
    if (second_ != nullptr) second_->take_layer(layer, in, out);
  }

 private:
  RowConsumer& first_;
  RowConsumer* second_;
};

// Sets the results of the sums of all windows.
void fill_means(const RunState& state, const ModelSpec& spec, Calibration& calibration) {
  const InputPlace head = {ProductInput::kHead};
  for (const double loss : state.losses) calibration.loss += loss;
  calibration.loss /= static_cast<double>(state.sums.n_rows(head));
  calibration.layers.resize(state.skip_losses.size());
  for (std::uint32_t layer = 0; layer < calibration.layers.size(); ++layer) {
    LayerCalibration& to = calibration.layers[layer];
    to.cosine = state.sums.mean_cosine(layer);
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const InputPlace place = {static_cast<ProductInput>(i), layer};
      to.mean_squares[i] = state.sums.mean_squares(place);
      QSF_CHECK(to.mean_squares[i].empty() || state.sums.n_rows(place) == calibration.n_rows);
    }
    if (spec.has_experts(layer)) to.experts = expert_means(state.sums, layer, spec.n_experts);
  }
  calibration.head_mean_squares = state.sums.mean_squares(head);
  calibration.expert_hits = state.choices.hits();
}

// The last layer up to `first` from which layers up to `last` have their keys and values.
std::uint32_t first_with_kv(const ModelSpec& spec, std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t layer = last; layer-- > first;) {
    first = std::min(first, spec.attention_of(layer).kv_layer);
  }
  return first;
}

// Tells the least budget, in whole MB, in which the model runs beside other bytes.
Status too_small(const std::string& path, EngineOptions engine, std::uint64_t other_bytes) {
  constexpr std::uint64_t kMegabyte = 1'000'000;
  // With more memory there are more threads, and each leaves something in the heap.
  constexpr std::uint64_t kHeapMegabytes = 2;
  const auto fits = [&](std::uint64_t n_megabytes) {
    engine.ram_budget_bytes = n_megabytes * kMegabyte;
    return Engine::plan_file(path, engine).has_value();
  };
  std::uint64_t least = engine.ram_budget_bytes / kMegabyte;  // too little, as it was found
  std::uint64_t most = least + 1;
  while (!fits(most)) {
    least = most;
    most *= 2;
    if (most > UINT64_MAX / kMegabyte / 2) return Engine::plan_file(path, engine).error();
  }
  while (most - least > 1) {
    const std::uint64_t middle = least + (most - least) / 2;
    (fits(middle) ? most : least) = middle;
  }
  return out_of_budget(
      "calibration in windows of %u tokens needs %llu MB; raise the budget or use shorter windows",
      engine.max_context,
      static_cast<unsigned long long>(most + ceil_div(other_bytes, kMegabyte) + kHeapMegabytes));
}

// Squares can leave the range of f32 where the values themselves do not, and so can differences of
// logits, which are finite where score() gives losses at all.
Status check_finite(const Calibration& calibration) {
  bool finite = is_finite(calibration.head_mean_squares) && is_loss(calibration.loss);
  for (const LayerCalibration& layer : calibration.layers) {
    for (const std::vector<float>& means : layer.mean_squares) finite = finite && is_finite(means);
    for (const ExpertCalibration& expert : layer.experts) {
      finite = finite && std::isfinite(expert.largest) && is_finite(expert.gate_up_mean_squares) &&
               is_finite(expert.down_mean_squares);
    }
    finite = finite && is_loss(layer.skip_loss);
  }
  if (finite) return ok_status();
  return corrupt(
      "the model's activations exceed 1e19, or its losses 3e38; its weights are damaged");
}

}  // namespace

Result<std::unique_ptr<StatisticsCollector>> StatisticsCollector::open(
    const std::string& path, const CollectOptions& options) {
  if (options.context < 2) {
    return invalid_argument("windows of %u tokens, expected at least 2", options.context);
  }
  std::unique_ptr<StatisticsCollector> collector(new StatisticsCollector(path, options));
  std::uint64_t own_bytes = 0;
  {
    QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
    const ModelSpec& spec = reader.spec();
    QSF_RETURN_IF_ERROR(check_calibrated(spec).with_context(path));
    collector->observer_.set_matrices(reader);
    // In the end the f32 means are in memory beside the sums; rows are in front of a layer, and
    // behind it without it.
    own_bytes = 2 * ColumnSums::memory_bytes(spec) +
                PassObserver::memory_bytes(spec, options.context) +
                2 * sizeof(float) * std::uint64_t{options.context} * spec.hidden +
                ExpertChoices::memory_bytes(spec);
    if (options.consumer_bytes != 0) {
      own_bytes += options.consumer_bytes +
                   SavedHiddenRows::memory_bytes(std::uint64_t{options.context} * spec.hidden);
    }
  }
  EngineOptions engine;
  engine.n_threads = options.n_threads;
  engine.max_context = options.context;
  engine.k_type = KvType::kF32;
  engine.v_type = KvType::kF32;
  engine.exact = options.exact;
  engine.preload = false;  // so that a cancellation does not wait for all weights
  engine.observer = &collector->observer_;
  engine.log = options.log;
  if (options.ram_budget_bytes != 0) {
    engine.ram_budget_bytes = options.ram_budget_bytes > own_bytes
                                  ? options.ram_budget_bytes - own_bytes
                                  : std::uint64_t{1};
  }
  auto opened = Engine::open(path, engine);
  if (!opened && opened.error().code() == StatusCode::kOutOfBudget) {
    return too_small(path, engine, own_bytes + options.other_bytes);
  }
  if (!opened) return std::move(opened).error();
  collector->engine_ = std::move(*opened);
  collector->observer_.attach(*collector->engine_);
  return collector;
}

std::span<const TokenId> StatisticsCollector::window(std::span<const TokenId> tokens,
                                                     std::size_t index) const {
  const std::size_t first = index * options_.context;
  return tokens.subspan(first, std::min<std::size_t>(options_.context, tokens.size() - first));
}

Status StatisticsCollector::score(std::span<const TokenId> window, double& loss) {
  log_probs_.resize(window.size() - 1);
  QSF_RETURN_IF_ERROR(engine_->score(window, 1, log_probs_));
  for (const double log_prob : log_probs_) loss -= log_prob;
  report(log_probs_.size());
  return ok_status();
}

void StatisticsCollector::report(std::size_t n_rows) {
  done_rows_ += n_rows;
  if (!options_.on_progress) return;
  options_.on_progress({.skipped_layer = skipped_,
                        .first_layer = first_layer_,
                        .done_rows = done_rows_,
                        .total_rows = total_rows_});
}

Result<Calibration> StatisticsCollector::run(std::span<const TokenId> tokens,
                                             const std::string& state_path, RowConsumer* also) {
  QSF_CHECK(tokens.size() >= 2 && (also == nullptr || state_path.empty()));
  const auto n_layers = engine_->spec().n_layers;
  const std::size_t n_windows = ceil_div(tokens.size(), options_.context);
  // Skipping every layer in turn takes a quarter of the windows of the sums in total, or one for
  // each layer where those are fewer: they rank layers, no more.
  const std::size_t n_skip_windows = std::max<std::size_t>(n_windows / n_layers / 4, 1);
  Calibration calibration;
  calibration.context = options_.context;
  done_rows_ = 0;
  for (std::size_t i = 0; i < n_windows; ++i) {
    const std::size_t n_rows = window(tokens, i).size() - 1;
    calibration.n_rows += n_rows;
    if (i < n_skip_windows) calibration.n_skip_rows += n_rows;
  }
  RunState state(engine_->spec(), n_windows, calibration.n_rows);
  if (!state_path.empty()) QSF_RETURN_IF_ERROR(state.read(state_path));
  for (std::size_t i = 0; i < state.n_summed; ++i) done_rows_ += window(tokens, i).size() - 1;
  for (std::size_t k = 0; k < state.n_skipped; ++k) {
    done_rows_ += window(tokens, k / n_layers).size() - 1;
  }
  total_rows_ = calibration.n_rows + n_layers * calibration.n_skip_rows;
  QSF_RETURN_IF_ERROR(sum_columns(tokens, state, state_path, also));
  fill_means(state, engine_->spec(), calibration);
  QSF_RETURN_IF_ERROR(check_finite(calibration));
  QSF_RETURN_IF_ERROR(leave_out_layers(tokens, n_skip_windows, state, state_path));
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    calibration.layers[layer].skip_loss =
        state.skip_losses[layer] / static_cast<double>(calibration.n_skip_rows);
  }
  QSF_RETURN_IF_ERROR(check_finite(calibration));
  return calibration;
}

Status StatisticsCollector::save_hidden_rows(std::size_t n_tokens, const std::string& folder) {
  const std::size_t n_windows = ceil_div(n_tokens, options_.context);
  const std::size_t window_floats = std::size_t{options_.context} * spec().hidden;
  QSF_ASSIGN_OR_RETURN(
      kept_, folder.empty() ? SavedHiddenRows::create(path_ + ".rows", n_windows, window_floats)
                            : SavedHiddenRows::open_in(folder, n_windows, window_floats));
  return ok_status();
}

Status StatisticsCollector::run_layers(std::span<const TokenId> tokens, std::uint32_t first,
                                       std::uint32_t last, RowConsumer& consumer) {
  QSF_CHECK(tokens.size() >= 2 && first < last && last <= spec().n_layers);
  const std::size_t n_windows = ceil_div(tokens.size(), options_.context);
  std::uint32_t begin = 0;
  if (kept_ != nullptr) {
    QSF_ASSIGN_OR_RETURN(begin, kept_->start(first_with_kv(spec(), first, last)));
  }
  done_rows_ = 0;
  total_rows_ = tokens.size() - n_windows;
  first_layer_ = first;
  observer_.set_consumer(&consumer);
  Status status;
  for (std::size_t i = 0; i < n_windows && status.ok(); ++i) {
    status = run_window_layers(tokens, i, begin, last);
  }
  observer_.set_consumer(nullptr);
  first_layer_.reset();
  QSF_RETURN_IF_ERROR(std::move(status));
  if (kept_ != nullptr && last < spec().n_layers) return kept_->finish(last);
  return ok_status();
}

Status StatisticsCollector::run_head(std::span<const TokenId> tokens, RowConsumer& consumer) {
  QSF_CHECK(tokens.size() >= 2);
  const std::size_t n_windows = n_head_windows(spec(), ceil_div(tokens.size(), options_.context));
  done_rows_ = 0;
  total_rows_ = std::min(tokens.size(), n_windows * options_.context) - n_windows;
  observer_.set_consumer(&consumer);
  Status status;
  for (std::size_t i = 0; i < n_windows && status.ok(); ++i) {
    double loss = 0.0;
    status = score(window(tokens, i), loss);
  }
  observer_.set_consumer(nullptr);
  return status;
}

Status StatisticsCollector::run_window_layers(std::span<const TokenId> tokens, std::size_t index,
                                              std::uint32_t first, std::uint32_t last) {
  // The last token predicts nothing and is no row, as in run().
  const std::span<const TokenId> inputs = window(tokens, index);
  const std::size_t n_rows = inputs.size() - 1;
  if (kept_ == nullptr) hidden_.resize(n_rows * spec().hidden);
  const std::span<float> hidden =
      (kept_ == nullptr ? std::span(hidden_) : kept_->window()).first(n_rows * spec().hidden);
  if (first > 0) QSF_RETURN_IF_ERROR(kept_->read(index));
  QSF_RETURN_IF_ERROR(engine_->run_layers(inputs.first(n_rows), first, last, hidden));
  if (!is_finite(hidden)) {
    return corrupt("the model's activations are not finite; its weights are damaged");
  }
  if (kept_ != nullptr && last < spec().n_layers) QSF_RETURN_IF_ERROR(kept_->write(index));
  report(n_rows);
  return ok_status();
}

Status StatisticsCollector::sum_columns(std::span<const TokenId> tokens, RunState& state,
                                        const std::string& state_path, RowConsumer* also) {
  const std::size_t n_windows = state.losses.size();
  const std::size_t n_with_head = n_head_windows(spec(), n_windows);
  const std::size_t n_between_writes = ceil_div(n_windows, kStatesPerPass);
  TwoConsumers both(state.sums, also);
  observer_.set_consumer(&both);
  WindowChoices choices(state.choices);
  engine_->set_routing_hook(&choices);
  Status status;
  while (state.n_summed < n_windows && status.ok()) {
    // Each window has one row less than tokens.
    choices.begin_window(state.n_summed * (std::uint64_t{options_.context} - 1));
    status = state.n_summed < n_with_head
                 ? score(window(tokens, state.n_summed), state.losses[state.n_summed])
                 : run_window_layers(tokens, state.n_summed, 0, spec().n_layers);
    if (!status.ok()) break;
    ++state.n_summed;
    if (state_path.empty() || state.n_summed % n_between_writes != 0) continue;
    status = state.write(state_path);
  }
  engine_->set_routing_hook(nullptr);
  observer_.set_consumer(nullptr);
  return status;
}

Status StatisticsCollector::score_without(std::size_t index, std::span<const TokenId> window,
                                          double& loss) {
  const std::uint32_t layer = *skipped_;
  const std::span<const TokenId> inputs = window.first(window.size() - 1);
  front_.rows.resize(inputs.size() * spec().hidden);
  if (front_.window != index || front_.layer > layer) front_.layer = 0;
  front_.window = index;
  if (front_.layer < layer) {
    QSF_RETURN_IF_ERROR(engine_->run_layers(inputs, front_.layer, layer, front_.rows));
    front_.layer = layer;
  }
  hidden_ = front_.rows;
  log_probs_.resize(inputs.size());
  ScoreSink sink(spec().n_vocab, options_.context);
  sink.begin(window.subspan(1), log_probs_);
  observer_.set_skipped(layer);
  Status status = engine_->run_layers(inputs, layer, spec().n_layers, hidden_, &sink);
  observer_.set_skipped(std::nullopt);
  QSF_RETURN_IF_ERROR(std::move(status));
  for (const double log_prob : log_probs_) loss -= log_prob;
  report(log_probs_.size());
  return ok_status();
}

Status StatisticsCollector::leave_out_layers(std::span<const TokenId> tokens, std::size_t n_windows,
                                             RunState& state, const std::string& state_path) {
  const std::size_t n_layers = state.skip_losses.size();
  front_.layer = 0;  // no rows of an earlier run
  Status status;
  while (state.n_skipped < n_windows * n_layers && status.ok()) {
    const std::size_t i = state.n_skipped / n_layers;
    const auto layer = static_cast<std::uint32_t>(state.n_skipped % n_layers);
    skipped_ = layer;
    double cost = state.skip_losses[layer] - state.losses[i];
    if (Engine::runs_in_parts(spec())) {
      status = score_without(i, window(tokens, i), cost);
    } else {
      observer_.set_skipped(layer);
      status = score(window(tokens, i), cost);
      observer_.set_skipped(std::nullopt);
    }
    if (!status.ok()) break;
    state.skip_losses[layer] = cost;
    ++state.n_skipped;
    if (!state_path.empty()) status = state.write(state_path);
  }
  skipped_.reset();
  return status;
}

}  // namespace qsf
