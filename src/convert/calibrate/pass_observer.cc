// SPDX-License-Identifier: MIT

#include "convert/calibrate/pass_observer.h"

#include <algorithm>

#include "engine/engine_plan.h"

namespace qsf {

void PassObserver::attach(Engine& engine) {
  engine_ = &engine;
  before_.reserve(std::size_t{engine.plan().rows_per_pass} * engine.spec().hidden);
}

void PassObserver::pass_began(std::span<const Row> rows) {
  n_rows_ = static_cast<std::uint32_t>(rows.size());
  layer_ = first_layer_;
  in_layer_ = false;
  place_.reset();
}

void PassObserver::operator_ended(Backend& backend, const OperatorEvent& event) {
  // Of embeddings, and of what end_layer() does itself.
  if (event.kind == OperatorKind::kUpload) return;
  if (cancel_ != nullptr && cancel_->load() && engine_ != nullptr) engine_->cancel();
  // A layer begins with a norm of the stream; so does one whose embeddings are normed in place,
  // since what the next norm takes is there by then.
  const bool norm = event.kind == OperatorKind::kNorm && !event.listed;
  if (norm && !in_layer_) begin_layer(backend, event);
  if (event.product != nullptr) take_product(backend, event);
  // With a norm after the sublayer, and with experts, the output is added by a separate operator.
  const bool added = event.kind == OperatorKind::kResidual && event.out.id == hidden_.id;
  if (added && place_ && place_->input == ProductInput::kDown) end_layer(backend);
}

void PassObserver::begin_layer(Backend& backend, const OperatorEvent& event) {
  in_layer_ = true;
  hidden_ = event.in;
  before_.clear();
  for (std::uint32_t row = 0; row < n_rows_; ++row) {
    const std::span<const float> values = backend.read_row(hidden_, row);
    before_.insert(before_.end(), values.begin(), values.end());
  }
}

// A matrix may arrive in several products, all of which read the same rows.
void PassObserver::take_product(Backend& backend, const OperatorEvent& event) {
  const std::optional<ProductInput> input = product_input_of(event.kind);
  if (!input) return;
  const MatmulArgs& args = *event.product;
  const InputPlace place = {*input, input == ProductInput::kHead ? 0 : layer_, args.expert};
  const bool again = place_ == place;
  place_ = place;
  if (!again && consumer_ != nullptr) {
    const std::uint32_t n_cols = event.parts.front().n_cols;
    for (std::uint32_t row = 0; row < event.n_rows; ++row) {
      consumer_->take_input(place, backend.read_row(args.in, row).first(n_cols));
    }
  }
  if (input != ProductInput::kDown || args.epilogue.add_to.id == Buffer::kNone) return;
  std::uint64_t n_done = args.targets.front().n_rows_done;
  for (const ProductPart& part : event.parts) n_done += part.n_rows;
  if (n_done == backend.read_row(hidden_, 0).size()) end_layer(backend);
}

void PassObserver::end_layer(Backend& backend) {
  const std::size_t n_cols = before_.size() / n_rows_;
  for (std::uint32_t row = 0; row < n_rows_; ++row) {
    const std::span<const float> in = std::span(before_).subspan(row * n_cols, n_cols);
    if (consumer_ != nullptr) consumer_->take_layer(layer_, in, backend.read_row(hidden_, row));
    if (skipped_ == layer_) backend.upload_row(hidden_, row, in);
  }
  in_layer_ = false;
  place_.reset();
  ++layer_;
}

}  // namespace qsf
