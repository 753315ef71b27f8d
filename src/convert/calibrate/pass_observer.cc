// SPDX-License-Identifier: MIT

#include "convert/calibrate/pass_observer.h"

#include "engine/engine_plan.h"
#include "format/tensor_rules.h"

namespace qsf {

void PassObserver::attach(Engine& engine) {
  engine_ = &engine;
  before_.reserve(std::size_t{engine.plan().rows_per_pass} * engine.spec().hidden);
}

void PassObserver::set_matrices(const QsfReader& reader) {
  const CalibratedModel model = shape_of(reader.spec());
  places_.clear();
  for (const SectionDirectory& section : reader.directories()) {
    std::vector<std::optional<InputPlace>>& places = places_.emplace_back();
    places.reserve(section.tensors.size());
    for (const TensorInfo& tensor : section.tensors) {
      const std::uint32_t expert = is_expert(tensor.kind) ? tensor.expert : InputPlace::kNoExpert;
      places.push_back(input_place_of(reader.spec(), model, section.layer, tensor.kind, expert));
    }
  }
}

void PassObserver::pass_began(std::span<const Row> rows) {
  n_rows_ = static_cast<std::uint32_t>(rows.size());
  layer_.reset();
  taken_ = 0;
  of_expert_.reset();
}

void PassObserver::operator_ended(Backend& backend, const OperatorEvent& event) {
  // Of embeddings, and of what end_layer() does itself.
  if (event.kind == OperatorKind::kUpload) return;
  if (cancel_ != nullptr && cancel_->load() && engine_ != nullptr) engine_->cancel();
  if (event.product != nullptr && consumer_ != nullptr) take_product(backend, event);
}

void PassObserver::layer_reached(Backend& backend, std::uint32_t layer, Buffer hidden) {
  if (consumer_ == nullptr && !skipped_) return;
  hidden_ = hidden;
  if (layer_) end_layer(backend);
  layer_ = layer;
  taken_ = 0;
  of_expert_.reset();
  before_.clear();
  for (std::uint32_t row = 0; row < n_rows_; ++row) {
    const std::span<const float> values = backend.read_row(hidden_, row);
    before_.insert(before_.end(), values.begin(), values.end());
  }
}

// A matrix may arrive in several products, and a layer may multiply the same rows at two times.
bool PassObserver::is_new(const InputPlace& place) {
  if (place.expert != InputPlace::kNoExpert) {
    const bool again = of_expert_ == place;
    of_expert_ = place;
    return !again;
  }
  const std::uint32_t bit = 1U << static_cast<unsigned>(place.input);
  const bool again = (taken_ & bit) != 0;
  taken_ |= bit;
  return !again;
}

void PassObserver::take_product(Backend& backend, const OperatorEvent& event) {
  const MatmulArgs& args = *event.product;
  // Of the router of a later layer.
  if (event.kind == OperatorKind::kGuess || args.section >= places_.size()) return;
  const auto& place = places_[args.section][args.tiles.front().tensor];
  if (!place || !is_new(*place)) return;
  for (std::uint32_t row = 0; row < event.n_rows; ++row) {
    consumer_->take_input(*place, input_row(backend, event, row));
  }
}

std::span<const float> PassObserver::input_row(Backend& backend, const OperatorEvent& event,
                                               std::uint32_t row) {
  const MatmulArgs& args = *event.product;
  const std::span<const float> all = backend.read_row(args.in, row);
  const std::uint32_t n_cols = event.parts.front().n_cols;
  if (args.parts.n_parts == 0) return all.first(n_cols);
  joined_.clear();
  for (std::uint32_t part = 0; part < args.parts.n_parts; ++part) {
    const auto of_part = all.subspan(std::size_t{part} * args.parts.in_stride, n_cols);
    joined_.insert(joined_.end(), of_part.begin(), of_part.end());
  }
  return joined_;
}

void PassObserver::end_layer(Backend& backend) {
  const std::size_t n_cols = before_.size() / n_rows_;
  for (std::uint32_t row = 0; row < n_rows_; ++row) {
    const std::span<const float> in = std::span(before_).subspan(row * n_cols, n_cols);
    if (consumer_ != nullptr) consumer_->take_layer(*layer_, in, backend.read_row(hidden_, row));
    if (skipped_ == layer_) backend.upload_row(hidden_, row, in);
  }
}

}  // namespace qsf
