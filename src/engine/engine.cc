// SPDX-License-Identifier: MIT
//
// What an engine tells about itself; engine_opener.cc makes one.

#include "engine/engine.h"

#include <utility>

#include "engine/engine_impl.h"
#include "engine/engine_opener.h"

namespace qsf {

Engine::Engine(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path,
                                             const EngineOptions& options) {
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, EngineOpener(options).open(path));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<EnginePlan> Engine::plan_file(const std::string& path, const EngineOptions& options) {
  return EngineOpener(options).plan(path);
}

const ModelSpec& Engine::spec() const noexcept {
  return impl_->reader->spec();
}
const Tokenizer* Engine::tokenizer() const noexcept {
  return impl_->tokenizer.has_value() ? &*impl_->tokenizer : nullptr;
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
  if (impl_->spilled != nullptr) {
    const KvSpillStats spill = impl_->spilled->stats();
    stats.kv_bytes_read = spill.bytes_read;
    stats.kv_bytes_written = spill.bytes_written;
    stats.read_wait_ns += spill.wait_ns;
  }
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
const LogSink& Engine::log() const noexcept {
  return impl_->options.log;
}
void Engine::cancel() noexcept {
  impl_->cancel.store(true, std::memory_order_relaxed);
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
  return std::unique_ptr<Session>(new Session(*impl_, sequence));
}

}  // namespace qsf
