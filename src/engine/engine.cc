// SPDX-License-Identifier: MIT
//
// Opening a model: read and check the file's directories, plan every region of memory, map it,
// load.

#include "engine/engine.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "model/architecture.h"
#include "ops/make_backend.h"
#include "platform/clock.h"

namespace qsf {
namespace {

// Whether a model's weights are floats whose accuracy bf16 would take away: its prompts then stay
// in f32 also where a matrix unit could take them.
bool keeps_floats(const ModelSpec& spec) {
  return spec.default_type == QuantType::kF32 || spec.default_type == QuantType::kF16;
}

constexpr std::uint32_t kDefaultContext = 4096;
constexpr std::uint32_t kDefaultRowsPerPass = 512;
constexpr std::uint32_t kMaxSequences = 64;

// The regions of the plan, by what fills them.
struct Regions {
  RegionId weights;
  RegionId tokenizer_section;
  RegionId tokenizer_index;
  RegionId kv_tables;
  RegionId kv_cache;
  std::vector<RegionId> buffers;
  RegionId backend_scratch;
  RegionId sample_logits;
  RegionId sample_order;
};

[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...) {
  char text[160];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

Status check_options(const EngineOptions& options, const ModelSpec& spec) {
  if (options.n_threads > kMaxThreads) {
    return invalid_argument("threads: %u, expected 0 (automatic) to %u", options.n_threads,
                            kMaxThreads);
  }
  if (options.max_context > spec.max_positions) {
    return invalid_argument(
        "context: %u positions, but the model was trained for %u; ask for at most "
        "that",
        options.max_context, spec.max_positions);
  }
  if (options.n_sequences == 0 || options.n_sequences > kMaxSequences) {
    return invalid_argument("sequences: %u, expected 1 to %u", options.n_sequences, kMaxSequences);
  }
  return ok_status();
}

KvShape kv_shape(const ModelSpec& spec, const EngineOptions& options) {
  return {.n_layers = spec.n_layers,
          .n_kv_heads = spec.n_kv_heads,
          .head_dim = spec.head_dim,
          .k_type = options.k_type,
          .v_type = options.v_type};
}

}  // namespace

// Builds an Impl step by step; each step may fail and leaves nothing behind.
class EngineOpener {
 public:
  explicit EngineOpener(const EngineOptions& options) : impl_(std::make_unique<Engine::Impl>()) {
    impl_->options = options;
  }

  Result<std::unique_ptr<Engine::Impl>> open(const std::string& path) {
    const std::uint64_t start = monotonic_ns();
    QSF_RETURN_IF_ERROR(read_directories(path));
    QSF_RETURN_IF_ERROR(plan_memory());
    QSF_RETURN_IF_ERROR(load_tokenizer().with_context(path));
    QSF_RETURN_IF_ERROR(load_weights());
    QSF_RETURN_IF_ERROR(make_decoder());
    log_kernels();
    impl_->stats.load_ns = monotonic_ns() - start;
    impl_->stats.weight_bytes_read = impl_->pager->stats().bytes_read;
    return std::move(impl_);
  }

 private:
  const ModelSpec& spec() const { return impl_->reader->spec(); }

  KvLimits kv_limits() const {
    const std::uint32_t pages = kv_pages_for(impl_->max_context) * impl_->options.n_sequences;
    return {.n_pages = pages,
            .max_sequences = impl_->options.n_sequences,
            .max_slots = impl_->max_context};
  }
  PassLimits pass_limits() const {
    return {.max_rows = impl_->rows_per_pass,
            .max_decode_rows = std::min(impl_->options.n_sequences, impl_->rows_per_pass),
            .max_context = impl_->max_context,
            .n_heads = spec().n_heads,
            .n_kv_heads = spec().n_kv_heads,
            .head_dim = spec().head_dim,
            .rope_dims = spec().positions == PositionEncoding::kRope ? spec().rope_dims() : 0,
            .max_cols = Decoder::max_product_cols(spec())};
  }

  Status read_directories(const std::string& path) {
    QSF_ASSIGN_OR_RETURN(QsfReader reader, QsfReader::open(path));
    impl_->reader.emplace(std::move(reader));
    QSF_RETURN_IF_ERROR(check_tensors(*impl_->reader));
    QSF_RETURN_IF_ERROR(check_options(impl_->options, spec()).with_context(path));
    const EngineOptions& options = impl_->options;
    impl_->max_context = options.max_context != 0 ? options.max_context
                                                  : std::min(spec().max_positions, kDefaultContext);
    impl_->rows_per_pass =
        std::min(options.rows_per_pass != 0 ? options.rows_per_pass : kDefaultRowsPerPass,
                 impl_->max_context);
    QSF_ASSIGN_OR_RETURN(
        impl_->threads,
        ThreadPool::create(options.n_threads != 0 ? options.n_threads : default_thread_count(),
                           {.pin = options.pin}));
    QSF_ASSIGN_OR_RETURN(impl_->backend,
                         make_cpu_backend(*impl_->threads, options.exact || keeps_floats(spec())));
    return ok_status();
  }

  // Computes every region and maps them at once.
  Status plan_memory() {
    MemoryPlan& plan = impl_->plan;
    const unsigned n_threads = impl_->threads->n_threads();
    QSF_ASSIGN_OR_RETURN(ReadDevice device,
                         ReadDevice::open(impl_->reader->file(), {.direct = false}));
    impl_->device.emplace(std::move(device));
    QSF_ASSIGN_OR_RETURN(
        residency_, WeightPager::plan(*impl_->reader, {.n_queues = impl_->device->n_queues()}));
    regions_.weights = plan.add("weights", residency_.region_bytes,
                                "every tile, ready for the kernels; norms and biases as f32");
    QSF_RETURN_IF_ERROR(plan_tokenizer());
    plan_kv();
    plan_activations();
    plan.add_external("directories", impl_->reader->heap_bytes() + residency_.table_bytes,
                      "tensors and tiles of the file, and where each tile lies in memory");
    plan.add_external(
        "thread_stacks",
        std::uint64_t{n_threads - 1 + residency_.limits.n_queues} * thread_stack_bytes(),
        printed("%u worker threads and %u reading threads of %zu bytes", n_threads - 1,
                residency_.limits.n_queues, thread_stack_bytes()));
    plan.add_external(
        "sequences",
        std::uint64_t{impl_->max_context} * impl_->options.n_sequences * sizeof(TokenId) +
            impl_->rows_per_pass * (sizeof(Row) + sizeof(std::uint32_t)),
        "the tokens of every sequence and the rows of a pass");
    Result<Arena> arena = Arena::create(plan);
    if (!arena.has_value()) {
      return out_of_budget("%s: %s; ask for a smaller context or fewer sequences",
                           impl_->reader->file().path().c_str(), arena.error().message().c_str());
    }
    impl_->arena.emplace(std::move(*arena));
    return ok_status();
  }

  void log_kernels() const {
    const std::string lines = impl_->backend->describe();
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', at), lines.size());
      impl_->options.log.info(std::string_view(lines).substr(at, end - at));
      at = end + 1;
    }
  }

  Status plan_tokenizer() {
    if (impl_->reader->tokenizer_bytes() == 0) return ok_status();  // token ids in, numbers out
    QSF_ASSIGN_OR_RETURN(tokenizer_bytes_, impl_->reader->read_tokenizer());
    QSF_ASSIGN_OR_RETURN(const std::size_t index_bytes, Tokenizer::index_bytes(tokenizer_bytes_));
    regions_.tokenizer_section = impl_->plan.add("tokenizer", tokenizer_bytes_.size(),
                                                 "vocabulary and merges as stored in the file");
    regions_.tokenizer_index =
        impl_->plan.add("tokenizer_index", index_bytes, "hash slots of vocabulary and merges");
    return ok_status();
  }

  void plan_kv() {
    const KvLimits limits = kv_limits();
    regions_.kv_tables = impl_->plan.add("kv_tables", KvCache::region_bytes(limits),
                                         "page tables and the position of every slot");
    const std::uint64_t kv_bytes =
        impl_->backend->kv_bytes(kv_shape(spec(), impl_->options), limits.n_pages);
    regions_.kv_cache = impl_->plan.add(
        "kv_cache", kv_bytes,
        printed("%u sequences of %u positions, %llu bytes each", impl_->options.n_sequences,
                impl_->max_context,
                static_cast<unsigned long long>(kv_bytes / limits.n_pages / kKvPageSlots)));
  }

  void plan_activations() {
    for (const BufferShape& shape : Decoder::buffer_shapes(spec(), impl_->rows_per_pass)) {
      regions_.buffers.push_back(impl_->plan.add(
          "rows_" + std::string(shape.name),
          impl_->backend->buffer_bytes(shape.n_rows, shape.n_cols),
          printed("%u rows of %u f32, padded to whole blocks", shape.n_rows, shape.n_cols)));
    }
    regions_.backend_scratch =
        impl_->plan.add("scratch", impl_->backend->scratch_bytes(pass_limits()),
                        "rotation angles, partial attention states, rows as int8 and bf16");
    regions_.sample_logits =
        impl_->plan.add("sample_logits", std::uint64_t{spec().n_vocab} * sizeof(float),
                        "the logits of the row being sampled");
    regions_.sample_order = impl_->plan.add(
        "sample_order", std::uint64_t{spec().n_vocab} * sizeof(std::uint32_t), "its candidates");
  }

  Status load_tokenizer() {
    if (tokenizer_bytes_.empty()) return ok_status();
    const MutableByteSpan section = impl_->arena->carve(regions_.tokenizer_section);
    std::copy(tokenizer_bytes_.begin(), tokenizer_bytes_.end(), section.begin());
    std::vector<std::byte>().swap(tokenizer_bytes_);
    QSF_ASSIGN_OR_RETURN(Tokenizer tokenizer,
                         Tokenizer::open(section, impl_->arena->carve(regions_.tokenizer_index)));
    if (tokenizer.n_tokens() > spec().n_vocab) {
      return corrupt("the tokenizer has %u tokens, but the embedding has %u rows",
                     tokenizer.n_tokens(), spec().n_vocab);
    }
    impl_->plan.add_external("tokenizer_expressions", tokenizer.heap_bytes(),
                             "compiled pre-tokeniser expressions");
    impl_->tokenizer.emplace(std::move(tokenizer));
    return ok_status();
  }

  Status load_weights() {
    kv_memory_ = impl_->arena->carve(regions_.kv_cache);
    QSF_ASSIGN_OR_RETURN(impl_->pager, WeightPager::open(*impl_->reader, *impl_->device, residency_,
                                                         impl_->arena->carve(regions_.weights),
                                                         {.cancel = &impl_->cancel}));
    return impl_->pager->load(impl_->options.on_load_progress, impl_->options.load_progress_user);
  }

  Status make_decoder() {
    Backend& backend = *impl_->backend;
    const KvShape shape = kv_shape(spec(), impl_->options);
    QSF_ASSIGN_OR_RETURN(
        KvCache kv, KvCache::create(shape, kv_limits(), impl_->arena->carve(regions_.kv_tables)));
    impl_->kv.emplace(std::move(kv));
    backend.attach_kv(shape, kv_memory_);
    backend.attach_scratch(pass_limits(), impl_->arena->carve(regions_.backend_scratch));

    const std::vector<BufferShape> shapes = Decoder::buffer_shapes(spec(), impl_->rows_per_pass);
    std::vector<Buffer> made;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      made.push_back(backend.create_buffer(shapes[i].n_rows, shapes[i].n_cols,
                                           impl_->arena->carve(regions_.buffers[i])));
    }
    const DecoderBuffers buffers = {made[0], made[1], made[2], made[3], made[4],
                                    made[5], made[6], made[7], made[8], made[9]};
    QSF_ASSIGN_OR_RETURN(Decoder decoder,
                         Decoder::create(*impl_->reader, *impl_->pager, backend, buffers,
                                         impl_->rows_per_pass, impl_->max_context));
    impl_->decoder.emplace(std::move(decoder));
    impl_->rows.reserve(impl_->rows_per_pass);

    const MutableByteSpan logits = impl_->arena->carve(regions_.sample_logits);
    const MutableByteSpan order = impl_->arena->carve(regions_.sample_order);
    impl_->sample_logits = {reinterpret_cast<float*>(logits.data()), spec().n_vocab};
    impl_->sample_order = {reinterpret_cast<std::uint32_t*>(order.data()), spec().n_vocab};
    return ok_status();
  }

  std::unique_ptr<Engine::Impl> impl_;
  Residency residency_;
  Regions regions_;
  std::vector<std::byte> tokenizer_bytes_;
  MutableByteSpan kv_memory_;
};

Engine::Engine(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path,
                                             const EngineOptions& options) {
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, EngineOpener(options).open(path));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
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
const MemoryPlan& Engine::plan() const noexcept {
  return impl_->plan;
}
const EngineStats& Engine::stats() const noexcept {
  return impl_->stats;
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
