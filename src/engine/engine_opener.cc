// SPDX-License-Identifier: MIT
//
// Opening a model: read and check the file's directories, plan every region of memory, map it,
// load.

#include "engine/engine_opener.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/process_memory.h"
#include "model/architecture.h"
#include "model/layer_cut.h"
#include "ops/make_backend.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {
namespace {

// Returns whether bf16 would reduce the accuracy of a model's float weights: its prompts then take
// f32 also on a matrix unit.
bool keeps_floats(const ModelSpec& spec) {
  return spec.default_type == QuantType::kF32 || spec.default_type == QuantType::kF16;
}

}  // namespace

EngineOpener::EngineOpener(const EngineOptions& options) : impl_(std::make_unique<Engine::Impl>()) {
  impl_->options = options;
}
EngineOpener::~EngineOpener() = default;

const ModelSpec& EngineOpener::spec() const {
  return impl_->reader->spec();
}

Result<std::unique_ptr<Engine::Impl>> EngineOpener::open(const std::string& path) {
  const std::uint64_t start = monotonic_ns();
  QSF_RETURN_IF_ERROR(prepare(path));
  log_plan();
  QSF_RETURN_IF_ERROR(make_spill_file());
  QSF_RETURN_IF_ERROR(map_memory());
  QSF_RETURN_IF_ERROR(load_tokenizer().with_context(path));
  QSF_RETURN_IF_ERROR(load_weights());
  QSF_RETURN_IF_ERROR(make_decoder());
  impl_->stats.load_ns = monotonic_ns() - start;
  return std::move(impl_);
}

Result<EnginePlan> EngineOpener::plan(const std::string& path, bool with_memory_rate) {
  QSF_RETURN_IF_ERROR(prepare(path));
  if (!with_memory_rate) return std::move(impl_->plan);
  // Nothing of the plan is mapped yet, so half of the free memory can be used for a moment, and of
  // a budget the part that the process does not hold yet.
  std::uint64_t most_bytes = machine_.limits.headroom_bytes / 2;
  if (const std::uint64_t budget = impl_->options.ram_budget_bytes; budget != 0) {
    const MemoryPlan& memory = impl_->plan.memory;
    most_bytes = std::min(most_bytes, budget - (memory.total_bytes() - memory.arena_bytes()));
  }
  impl_->plan.memory_bytes_per_second = measure_memory_rate(*impl_->threads, most_bytes);
  return std::move(impl_->plan);
}

// A resident model without a budget that the page cache holds is read from there. Else reads are
// direct; without a budget the page cache is filled afterwards, which keeps the model warm for the
// next run.
Status EngineOpener::prepare(const std::string& path) {
  QSF_RETURN_IF_ERROR(read_directories(path));
  machine_ = measure_machine();  // before a mapped file looks like a part of the program
  const bool bound = impl_->options.ram_budget_bytes != 0;
  // One read at a time takes the least memory, so that an error names the smallest budget that
  // works.
  QSF_RETURN_IF_ERROR(open_device(/*direct=*/bound, /*depth=*/1));
  QSF_RETURN_IF_ERROR(leave_out_sketch(make_plan_with_drafts()).with_context(path));
  if (impl_->draft_model != nullptr) {
    // In memory that is planned and not mapped yet.
    QSF_RETURN_IF_ERROR(
        impl_->draft_model->check_vocabulary(*impl_->reader, impl_->plan.memory.arena_bytes()));
  }
  const bool resident = impl_->plan.residency.everything_resident;
  if (!resident) QSF_RETURN_IF_ERROR(probe_disk());
  reads_once_ = resident && !bound;
  fills_cache_ = reads_once_ && is_cold();
  const unsigned wished = disk_.has_value() ? disk_->depth : kDefaultReadDepth;
  for (unsigned depth = wished;; depth /= 2) {
    QSF_RETURN_IF_ERROR(open_device(bound || !resident || fills_cache_, depth));
    Status status = make_plan();
    const bool fits = status.ok() && impl_->plan.residency.everything_resident == resident;
    if (!fits && depth > 1) continue;
    if (status.ok() && depth < wished) {
      impl_->plan.steps.push_back("reads at once: " + std::to_string(depth) + " instead of " +
                                  std::to_string(wished) + "; the disk may have to wait");
    }
    return std::move(status).with_context(path);
  }
}

// Whether to read past the page cache: it holds little of the file, and has room for all of it. A
// read through it takes twice the memory and a copy, which is slower than a fast disk.
bool EngineOpener::is_cold() const {
  constexpr double kLittle = 0.5;
  const File& file = impl_->reader->file();
  const std::uint64_t bytes = file.size_bytes();
  return impl_->options.read_path != ReadPath::kMmap &&
         saturating_add(impl_->plan.memory.total_bytes(), bytes) < machine_.limits.headroom_bytes &&
         file.ops().cached_share(file.handle(), bytes) < kLittle;
}

// Reading all weights at once, a second thread clears and checks pages beside the first.
unsigned EngineOpener::n_queues() const {
  constexpr unsigned kQueuesOfRing = 2;
  const unsigned n = impl_->device->n_queues();
  const bool is_ring = impl_->device->path() == ReadPath::kUring;
  return reads_once_ && is_ring && has_threads() ? kQueuesOfRing : n;
}

// Measures the best way to read the disk, or takes the stored result. The plan's memory is not
// mapped yet, so the budget has room for the measurement.
Status EngineOpener::probe_disk() {
  const File& file = impl_->reader->file();
  if (file.size_bytes() < kLeastRememberedBytes || file.ops().storage(file.handle()).is_remote) {
    return ok_status();
  }
  const std::uint64_t n_bytes =
      std::min(kProbeMemoryBytes, impl_->plan.memory.arena_bytes() & ~(kTileAlign - 1));
  QSF_ASSIGN_OR_RETURN(const MutableByteSpan memory, map_pages(n_bytes, HugePages::kAllow));
  const auto probe = remembered_disk_probe(file, {.device = {.path = impl_->options.read_path}},
                                           memory, default_probe_folder());
  unmap_pages(memory);
  // A disk that cannot be measured is read in the usual way; reading it reports the error.
  if (!probe.has_value()) return ok_status();
  disk_ = probe->best;
  // With one read at a time the disk would idle while the reading thread processes a tile, and with
  // two while other programs hold the cores for a moment.
  constexpr unsigned kLeastDepth = 4;
  disk_->depth = std::max(disk_->depth, kLeastDepth);
  return ok_status();
}

Status EngineOpener::read_directories(const std::string& path) {
  FileOps* const ops = impl_->options.file_ops;
  QSF_ASSIGN_OR_RETURN(File file, File::open(path, ops != nullptr ? *ops : system_file_ops()));
  // What the system reads ahead, megabytes on some disks, may arrive after load_weights() dropped
  // the file's pages, and would stay beside the budget.
  file.expect_random_reads();
  QSF_ASSIGN_OR_RETURN(QsfReader reader, QsfReader::open(std::move(file)));
  impl_->reader.emplace(std::move(reader));
  QSF_RETURN_IF_ERROR(check_tensors(*impl_->reader));
  if (const std::uint32_t n_used = impl_->options.experts_used; n_used != 0) {
    QSF_RETURN_IF_ERROR(impl_->reader->use_experts(n_used));
  }
  QSF_RETURN_IF_ERROR(leave_out_layers());
  QSF_RETURN_IF_ERROR(take_cut().with_context(path));
  QSF_RETURN_IF_ERROR(
      check_expert_preference(impl_->options.expert_preference, spec()).with_context(path));
  if (spec().has_state()) {
    leave_out_prefix_cache("layers of this model have a state that its pages do not hold");
  }
  if (spec().mtp_block) {
    return unsupported(
        "%s: a block for multi-token prediction, which drafts for the model it is of; name it as "
        "the draft model of that",
        path.c_str());
  }
  if (spec().bidirectional) QSF_RETURN_IF_ERROR(attend_bidirectionally().with_context(path));
  QSF_RETURN_IF_ERROR(impl_->open_adapters());
  choose_drafts();
  QSF_RETURN_IF_ERROR(check_options(impl_->options, spec()).with_context(path));
  if (const SectionInfo* section = tokenizer_section()) {
    std::array<std::byte, kSectionHeaderBytes> header{};
    const std::size_t n_bytes = std::min<std::size_t>(section->bytes, header.size());
    const MutableByteSpan read = MutableByteSpan(header).first(n_bytes);
    QSF_RETURN_IF_ERROR(impl_->reader->file().read_exact_at(section->file_offset, read));
    Result<std::size_t> index_bytes = Tokenizer::index_bytes(read, section->bytes);
    if (!index_bytes.has_value()) return std::move(index_bytes).error().with_context(path);
    tokenizer_index_bytes_ = *index_bytes;
  }
  const EngineOptions& options = impl_->options;
  QSF_ASSIGN_OR_RETURN(
      impl_->threads,
      ThreadPool::create(options.n_threads != 0 ? options.n_threads : default_thread_count(),
                         {.pin = options.pin}));
  QSF_ASSIGN_OR_RETURN(impl_->backend,
                       make_cpu_backend(*impl_->threads, options.exact || keeps_floats(spec())));
  impl_->backend->set_observer(options.observer);
  return open_draft_model();
}

// All that follows sees a model of the layers that run here.
Status EngineOpener::take_cut() {
  const LayerCut* const cut = impl_->options.cut;
  if (cut == nullptr) return ok_status();
  QSF_RETURN_IF_ERROR(check_cut(*cut, spec()));
  EngineOptions& options = impl_->options;
  options.record_passes = cut->has_ends;
  leave_out_prefix_cache("layers of this model run in other processes");
  Result<std::vector<std::uint32_t>> left_out =
      impl_->reader->use_layers(cut->layers, KeptLayers::kPart);
  return left_out.has_value() ? ok_status() : std::move(left_out).error();
}

// Null for a model without one, and where texts are none of this engine's business.
const SectionInfo* EngineOpener::tokenizer_section() const {
  const LayerCut* const cut = impl_->options.cut;
  return cut == nullptr || cut->has_ends ? impl_->reader->find_section("tokenizer") : nullptr;
}

Status EngineOpener::open_draft_model() {
  const EngineOptions& options = impl_->options;
  if (options.draft_model_path.empty() || options.speculation == SpeculationKind::kOff) {
    return ok_status();
  }
  QSF_ASSIGN_OR_RETURN(impl_->draft_model, DraftModel::open(options, spec(), *impl_->threads));
  return ok_status();
}

// All that follows sees a model without these layers, and so do session files.
Status EngineOpener::leave_out_layers() {
  const float quality = impl_->options.quality;
  if (quality == 1.0F) return ok_status();
  const std::uint32_t n_layers = spec().n_layers;
  QSF_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> left_out,
                       impl_->reader->use_quality(quality));
  if (left_out.empty()) return ok_status();
  char text[80];
  std::snprintf(text, sizeof text, "quality %g: %u of %u layers, without", double{quality},
                spec().n_layers, n_layers);
  std::string line = text;
  for (const std::uint32_t layer : left_out) line += " " + std::to_string(layer);
  impl_->options.log.info(line);
  return ok_status();
}

Status EngineOpener::open_device(bool direct, unsigned depth) {
  impl_->device.reset();
  QSF_ASSIGN_OR_RETURN(
      ReadDevice device,
      ReadDevice::open(impl_->reader->file(),
                       {.path = impl_->options.read_path,
                        .direct = direct,
                        .keep_cached = impl_->options.ram_budget_bytes == 0,
                        .fill_cache = fills_cache_,
                        .depth = depth,
                        .block_bytes = disk_.has_value() ? disk_->block_bytes : 0}));
  impl_->device.emplace(std::move(device));
  return ok_status();
}

Status EngineOpener::make_plan() {
  // Half of the ring is filled while the other half is in use. A ring of all these bytes leaves the
  // caches of the cores before it is written again, which is faster: decision 014 has the
  // measurements. Of a small budget it takes an eighth.
  constexpr std::uint64_t kLeastRingBytes = std::uint64_t{4} << 20;
  constexpr std::uint64_t kMostRingBytes = std::uint64_t{32} << 20;
  const std::uint64_t budget_bytes = impl_->options.ram_budget_bytes;
  std::uint64_t ring_bytes = 0;
  if (disk_.has_value()) {
    const std::uint64_t in_flight_bytes = std::uint64_t{disk_->depth} * disk_->block_bytes;
    const std::uint64_t wanted = budget_bytes == 0 ? kMostRingBytes : budget_bytes / 8;
    ring_bytes = std::clamp(std::max(wanted, 2 * in_flight_bytes), kLeastRingBytes, kMostRingBytes);
  }
  if (impl_->options.cut != nullptr) {
    ring_bytes = std::max(ring_bytes, impl_->options.cut->ring_bytes);
  }
  QSF_ASSIGN_OR_RETURN(impl_->plan,
                       plan_engine({.reader = *impl_->reader,
                                    .backend = *impl_->backend,
                                    .options = impl_->options,
                                    .n_threads = impl_->threads->n_threads(),
                                    .adapters = impl_->adapter_files,
                                    .tokenizer_index_bytes = tokenizer_index_bytes_,
                                    .machine = machine_,
                                    .reading = {.n_queues = n_queues(),
                                                .ring_bytes = ring_bytes,
                                                .mapped = impl_->device->path() == ReadPath::kMmap},
                                    .draft_model = impl_->draft_model.get()}));
  if (disk_.has_value()) impl_->plan.disk_bytes_per_second = disk_->bytes_per_second;
  impl_->max_context = impl_->plan.max_context;
  impl_->rows_per_pass = impl_->plan.rows_per_pass;
  describe_reading();
  return ok_status();
}

// With kAuto a draft model takes no memory that the model needs more. It stays where a model is
// streamed with and without it and passes become little longer: its drafts yield 2 tokens a pass
// and more (docs/speculation.md), copies 1.2 in a text that does not repeat itself.
Status EngineOpener::make_plan_with_drafts() {
  constexpr double kMostLonger = 1.5;
  if (impl_->draft_model == nullptr) return make_plan_with_lookup();
  Status status = make_plan();
  if (impl_->options.speculation != SpeculationKind::kAuto) return status;
  const Residency with = impl_->plan.residency;
  const std::uint32_t max_drafts = impl_->options.max_drafts;
  std::string path = std::exchange(impl_->options.draft_model_path, std::string());
  std::unique_ptr<DraftModel> model = std::move(impl_->draft_model);
  Status without_model = make_plan_with_lookup();
  const Residency& without = impl_->plan.residency;
  if (!status.ok() || !without_model.ok()) {
    leave_out_draft_model(path, "its memory does not fit the budget");
    return without_model;
  }
  const auto bytes_of_pass = [](const Residency& r) {
    return static_cast<double>(r.streamed_bytes + r.expert_read_bytes());
  };
  if (bytes_of_pass(with) > kMostLonger * bytes_of_pass(without)) {
    leave_out_draft_model(path, "passes would read half as much again of the file, or more");
    return without_model;
  }
  impl_->options.speculation = SpeculationKind::kAuto;
  impl_->options.max_drafts = max_drafts;
  impl_->options.draft_model_path = std::move(path);
  impl_->draft_model = std::move(model);
  return make_plan();
}

// A speculation that nobody asked for takes no memory that a plan cannot do without.
Status EngineOpener::make_plan_with_lookup() {
  Status status = make_plan();
  const bool fits = status.ok() && impl_->plan.residency.everything_resident;
  if (fits || impl_->options.speculation != SpeculationKind::kAuto) return status;
  const std::uint32_t max_drafts = impl_->options.max_drafts;
  leave_out_speculation("its memory does not fit the budget");
  Status without = make_plan();
  if (!status.ok() || (without.ok() && impl_->plan.residency.everything_resident)) return without;
  impl_->options.speculation = SpeculationKind::kAuto;
  impl_->options.max_drafts = max_drafts;
  return make_plan();
}

// Takes what was planned with a sketch of the head, or plans without it where weights would not all
// stay in memory: of a head that is read from the disk nearly all tiles would be read.
Status EngineOpener::leave_out_sketch(Status planned) {
  HeadMode& mode = impl_->options.head_mode;
  const bool has_sketch = has_sketched_head(*impl_->reader, impl_->options);
  if (mode == HeadMode::kApproximate && !has_sketch) {
    const char* const reason = SketchedHead::why_unbounded(*impl_->reader);
    return unsupported(
        "head approx: %s; use full",
        reason != nullptr ? reason : "the file has no sketch of it, which --head-sketch makes");
  }
  if (!has_sketch || (planned.ok() && impl_->plan.residency.everything_resident)) return planned;
  mode = HeadMode::kFull;
  impl_->options.log.info("head: read in full, as not all weights stay in memory");
  return make_plan_with_drafts();
}

Status EngineOpener::make_head() {
  if (!has_sketched_head(*impl_->reader, impl_->options)) return ok_status();
  QSF_ASSIGN_OR_RETURN(
      SketchedHead head,
      SketchedHead::create(*impl_->reader, impl_->decoder->head_matrix(), *impl_->backend,
                           impl_->arena->carve(impl_->plan.regions.head_sketch),
                           impl_->options.head_mode));
  impl_->head.emplace(std::move(head));
  impl_->decoder->set_sketched_head(&*impl_->head);
  return ok_status();
}

Status EngineOpener::map_memory() {
  Result<Arena> arena = Arena::create(impl_->plan.memory);
  if (!arena.has_value()) {
    return out_of_budget("%s: %s; ask for a smaller context or fewer sequences",
                         impl_->reader->file().path().c_str(), arena.error().message().c_str());
  }
  impl_->arena.emplace(std::move(*arena));
  return ok_status();
}

Status EngineOpener::load_tokenizer() {
  const SectionInfo* section = tokenizer_section();
  if (section == nullptr) return ok_status();  // takes token ids alone
  const PlanRegions& regions = impl_->plan.regions;
  const MutableByteSpan bytes = impl_->arena->carve(regions.tokenizer_section);
  QSF_RETURN_IF_ERROR(impl_->reader->read_section(*section, bytes));
  QSF_ASSIGN_OR_RETURN(Tokenizer tokenizer,
                       Tokenizer::open(bytes, impl_->arena->carve(regions.tokenizer_index)));
  if (tokenizer.n_tokens() > spec().n_vocab) {
    return corrupt("the tokenizer has %u tokens, but the embedding has %u rows",
                   tokenizer.n_tokens(), spec().n_vocab);
  }
  impl_->options.log.info("tokenizer: " + std::to_string(tokenizer.heap_bytes()) +
                          " bytes of compiled expressions");
  impl_->tokenizer.emplace(std::move(tokenizer));
  if (impl_->options.grammar.max_grammars == 0) return ok_status();
  impl_->grammar_texts.emplace(*impl_->tokenizer, spec());
  QSF_ASSIGN_OR_RETURN(impl_->grammars,
                       GrammarEngine::create(impl_->options.grammar, *impl_->grammar_texts,
                                             impl_->arena->carve(regions.grammar)));
  return ok_status();
}

Status EngineOpener::load_weights() {
  // Header, directories and tokenizer were read through the page cache, which counts against a
  // budget.
  if (impl_->options.ram_budget_bytes != 0) impl_->reader->file().drop_cached();
  QSF_ASSIGN_OR_RETURN(impl_->pager,
                       WeightPager::open(*impl_->reader, *impl_->device, impl_->plan.residency,
                                         impl_->arena->carve(impl_->plan.regions.weights),
                                         {.cancel = &impl_->cancel, .work = impl_->backend.get()}));
  const std::string note = impl_->pager->reading_note();
  if (!note.empty()) impl_->plan.reading_mode.append("; ").append(note);
  if (!impl_->options.preload) return ok_status();
  return impl_->pager->load(impl_->options.on_load_progress, impl_->options.load_progress_user);
}

// Before any weight is read, so that an existing file or a full disk is reported at once. A file in
// memory (tmpfs) would only move keys and values out of the plan.
Status EngineOpener::make_spill_file() {
  const EngineOptions& options = impl_->options;
  const std::string& path = options.kv_spill_path;
  if (path.empty()) return ok_status();
  const std::uint32_t n_pages =
      kv_limits(options, impl_->plan.max_context, impl_->plan.rows_per_pass).n_pages;
  const std::uint64_t n_bytes = SpilledKvStore::file_bytes(kv_shape(spec(), options), n_pages);
  QSF_ASSIGN_OR_RETURN(spill_file_, ScratchFile::create(path, n_bytes, options.read_path));
  const ReadDevice& device = spill_file_->device();
  if (device.is_in_memory() && options.ram_budget_bytes != 0) {
    return invalid_argument(
        "%s: kv_spill with a memory budget: this file system is in memory (tmpfs); name a file on "
        "a disk",
        path.c_str());
  }
  std::string line = "keys and values: in " + path + ", read by ";
  line.append(read_path_name(device.path()));
  line.append(device.is_direct() ? ", direct" : ", through the page cache");
  if (!device.fall_back().empty()) line.append("; ").append(device.fall_back());
  if (device.is_in_memory()) {
    options.log.warning(line);
  } else {
    options.log.info(line);
  }
  return ok_status();
}

Status EngineOpener::make_kv_store(const KvShape& shape) {
  const EngineOptions& options = impl_->options;
  const MutableByteSpan memory = impl_->arena->carve(impl_->plan.regions.kv_cache);
  // Within a budget memory is populated before work starts, so that a growing text takes no more.
  if (options.ram_budget_bytes != 0) touch_pages(memory);
  if (spill_file_ == nullptr) {
    impl_->kv_store = std::make_unique<ResidentKvStore>(shape, memory);
    return ok_status();
  }
  const std::uint32_t n_pages =
      kv_limits(options, impl_->plan.max_context, impl_->plan.rows_per_pass).n_pages;
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<SpilledKvStore> store,
                       SpilledKvStore::open(shape, n_pages, std::move(spill_file_), memory));
  impl_->spilled = store.get();
  impl_->kv_store = std::move(store);
  return ok_status();
}

Status EngineOpener::make_prefix_cache(const KvShape& shape) {
  const EngineOptions& options = impl_->options;
  if (!options.prefix_cache) return ok_status();
  const MutableByteSpan memory = impl_->arena->carve(impl_->plan.regions.prefix_cache);
  if (options.ram_budget_bytes != 0) touch_pages(memory);
  const std::uint32_t n_pages = impl_->kv->limits().n_pages;
  impl_->prefix_tree.emplace(*impl_->kv, memory);
  if (options.prefix_folder.empty()) return ok_status();
  // The pages lie in memory, one behind the other: a KV cache in a file has no folder.
  std::byte* const pages = impl_->kv_store->acquire_layer(0).base;
  QSF_ASSIGN_OR_RETURN(
      impl_->prefix_folder,
      PrefixFolder::open(
          {.folder = options.prefix_folder,
           .max_bytes = options.prefix_folder_bytes,
           .drop_cached = options.ram_budget_bytes != 0,
           .log = options.log},
          {pages, static_cast<std::size_t>(ResidentKvStore::region_bytes(shape, n_pages))},
          shape.page_bytes(),
          memory.subspan(static_cast<std::size_t>(PrefixTree::region_bytes(n_pages))),
          impl_->file_ops()));
  impl_->prefix_tree->set_folder(impl_->prefix_folder.get());
  return ok_status();
}

namespace {

// Creates the state of each sequence, in equal parts of a region.
template <typename State, typename Shape>
Status create_each(std::vector<State>& states, std::uint32_t n_sequences, const Shape& shape,
                   MutableByteSpan memory) {
  const std::size_t n_bytes = memory.size() / n_sequences / kRegionAlign * kRegionAlign;
  for (std::uint32_t i = 0; i < n_sequences; ++i) {
    QSF_ASSIGN_OR_RETURN(State state, State::create(shape, memory.subspan(i * n_bytes, n_bytes)));
    states.push_back(std::move(state));
  }
  return ok_status();
}

}  // namespace

Status EngineOpener::make_sparse_prefill_states() {
  const EngineOptions& options = impl_->options;
  const std::uint32_t context = impl_->plan.max_context;
  if (!sparse_prefill_limits(options, context).has_value()) return ok_status();
  const SparsePrefillShape shape = sparse_prefill_shape(spec(), options, context);
  const MutableByteSpan memory = impl_->arena->carve(impl_->plan.regions.sparse_prefill_state);
  QSF_RETURN_IF_ERROR(create_each(impl_->sparse_prefill, options.n_sequences, shape, memory));
  impl_->backend->attach_sparse_prefill(impl_->sparse_prefill);
  return ok_status();
}

Status EngineOpener::make_h2o_evictions() {
  const EngineOptions& options = impl_->options;
  if (options.kv_policy.policy != KvPolicy::kH2o) return ok_status();
  const H2oEvictionShape shape = eviction_shape(spec(), options, impl_->plan.max_context);
  const MutableByteSpan memory = impl_->arena->carve(impl_->plan.regions.h2o_eviction);
  QSF_RETURN_IF_ERROR(create_each(impl_->h2o_eviction, options.n_sequences, shape, memory));
  impl_->backend->attach_h2o_eviction(impl_->h2o_eviction);
  return ok_status();
}

// The model's own mask is that of a prompt that attends to all of itself.
Status EngineOpener::attend_bidirectionally() {
  EngineOptions& options = impl_->options;
  const bool as_trained =
      options.attention == AttentionKind::kStandard ||
      (options.attention == AttentionKind::kSymmetric && options.prompt_mask.window == 0);
  if (!as_trained || options.kv_policy.policy != KvPolicy::kFull) {
    return unsupported(
        "attention %s with kv policy %s: rows of this model attend to both sides, as it was "
        "trained; use full and full",
        attention_kind_name(options.attention).data(),
        std::string(kv_policy_name(options.kv_policy.policy)).c_str());
  }
  options.attention = AttentionKind::kSymmetric;
  leave_out_prefix_cache("texts of this model that begin alike share no rows");
  return ok_status();
}

// Pages hold keys and values alone, of texts that begin alike.
void EngineOpener::leave_out_prefix_cache(const char* reason) {
  EngineOptions& options = impl_->options;
  if (!options.prefix_cache) return;
  options.log.warning(std::string("prefix cache: off, because ") + reason);
  options.prefix_cache = options.reuse_answers = false;
  options.prefix_folder.clear();
  options.prefix_folder_bytes = 0;
  impl_->ignores_prefix_keys = true;
}

void EngineOpener::choose_drafts() {
  EngineOptions& options = impl_->options;
  options.max_drafts = chosen_drafts(options, spec());
  if (options.speculation != SpeculationKind::kAuto || options.max_drafts != 0) return;
  const char* const obstacle = speculation_obstacle(options, spec());
  leave_out_speculation(obstacle != nullptr ? obstacle : "its memory does not fit the budget");
}

void EngineOpener::leave_out_draft_model(const std::string& path, const char* reason) {
  impl_->options.log.warning("draft model " + path + ": left out, because " + reason);
}

void EngineOpener::leave_out_speculation(const char* reason) {
  EngineOptions& options = impl_->options;
  if (const std::string path = std::exchange(options.draft_model_path, std::string());
      !path.empty()) {
    leave_out_draft_model(path, reason);
  }
  options.log.info(std::string("speculation: off, because ") + reason);
  options.speculation = SpeculationKind::kOff;
  options.max_drafts = 0;
}

Status EngineOpener::make_speculation() {
  const EngineOptions& options = impl_->options;
  if (options.speculation == SpeculationKind::kOff) return ok_status();
  const PlanRegions& regions = impl_->plan.regions;
  const MutableByteSpan texts = impl_->arena->carve(regions.draft_texts);
  const MutableByteSpan logits = impl_->arena->carve(regions.draft_logits);
  // Within a budget memory is populated before work starts, so that a growing text takes no more.
  if (options.ram_budget_bytes != 0) {
    touch_pages(texts);
    touch_pages(logits);
  }
  if (impl_->draft_model != nullptr) {
    QSF_RETURN_IF_ERROR(impl_->draft_model->load(impl_->plan.max_context, *impl_->arena,
                                                 regions.draft_model, impl_->cancel));
  }
  impl_->speculation.emplace(options, impl_->plan.max_context, spec().n_vocab, texts,
                             std::span(reinterpret_cast<float*>(logits.data()),
                                       std::size_t{options.max_drafts} * spec().n_vocab),
                             impl_->draft_model.get());
  return ok_status();
}

void EngineOpener::make_states() {
  const StateShape shape = state_shape(spec());
  if (shape.n_layers == 0) return;
  const MutableByteSpan memory = impl_->arena->carve(impl_->plan.regions.states);
  impl_->states.emplace(StateCache::create(shape, impl_->options.n_sequences, memory));
  // Within a budget memory is populated before work starts, so that a growing text takes no more.
  if (impl_->options.ram_budget_bytes != 0) touch_pages(memory);
  impl_->backend->attach_states(*impl_->states);
}

Status EngineOpener::make_decoder() {
  Backend& backend = *impl_->backend;
  const EnginePlan& plan = impl_->plan;
  const KvShape shape = kv_shape(spec(), impl_->options);
  QSF_ASSIGN_OR_RETURN(
      KvCache kv,
      KvCache::create(shape, kv_limits(impl_->options, plan.max_context, plan.rows_per_pass),
                      impl_->arena->carve(plan.regions.kv_tables)));
  impl_->kv.emplace(std::move(kv));
  impl_->n_shareable.resize(impl_->options.n_sequences);
  impl_->sequence_adapters.resize(impl_->options.n_sequences);
  QSF_RETURN_IF_ERROR(make_kv_store(shape));
  QSF_RETURN_IF_ERROR(make_prefix_cache(shape));
  backend.attach_kv(*impl_->kv_store);
  QSF_RETURN_IF_ERROR(make_sparse_prefill_states());
  QSF_RETURN_IF_ERROR(make_h2o_evictions());
  make_states();
  backend.attach_scratch(pass_limits(spec(), impl_->options, plan.max_context, plan.rows_per_pass),
                         impl_->arena->carve(plan.regions.backend_scratch));

  const DecoderOptions options = decoder_options(impl_->options, impl_->adapter_files);
  const std::vector<BufferShape> shapes =
      Decoder::buffer_shapes(spec(), plan.rows_per_pass, options);
  std::vector<Buffer> made;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    made.push_back(backend.create_buffer(shapes[i].n_rows, shapes[i].n_cols,
                                         impl_->arena->carve(plan.regions.buffers[i])));
  }
  QSF_ASSIGN_OR_RETURN(
      Decoder decoder,
      Decoder::create(*impl_->reader, *impl_->pager, backend,
                      Decoder::name_buffers(spec(), made, options), plan.rows_per_pass,
                      longest_distance(impl_->options, plan.max_context)));
  decoder.prefer_experts(impl_->options.expert_preference);
  if (!impl_->adapter_files.empty()) {
    QSF_RETURN_IF_ERROR(impl_->load_adapters(impl_->arena->carve(plan.regions.adapters)));
    decoder.set_adapters(&impl_->adapter_set);
  }
  if (impl_->options.cut != nullptr) {
    const MutableByteSpan rows = impl_->arena->carve(plan.regions.relayed_rows);
    decoder.set_cut(impl_->options.cut, {reinterpret_cast<float*>(rows.data()),
                                         std::size_t{plan.rows_per_pass} * spec().hidden});
  }
  impl_->decoder.emplace(std::move(decoder));
  QSF_RETURN_IF_ERROR(make_head());
  impl_->passes.resize(impl_->options.max_passes_in_flight);
  for (PassInFlight& pass : impl_->passes) {
    pass.rows.reserve(plan.rows_per_pass);
    pass.outputs.reserve(plan.rows_per_pass);
    pass.parts.reserve(impl_->options.n_sequences);
    pass.planned.reserve(impl_->options.n_sequences);
    pass.members.reserve(impl_->options.n_sequences);
  }

  const MutableByteSpan logits = impl_->arena->carve(plan.regions.sample_logits);
  const MutableByteSpan order = impl_->arena->carve(plan.regions.sample_order);
  const MutableByteSpan kept = impl_->arena->carve(plan.regions.sample_kept);
  impl_->sample_logits = {reinterpret_cast<float*>(logits.data()),
                          std::size_t{impl_->options.n_sequences} * spec().n_vocab};
  impl_->sample_order = {reinterpret_cast<std::uint32_t*>(order.data()), spec().n_vocab};
  impl_->sample_kept = {reinterpret_cast<float*>(kept.data()), spec().n_vocab};
  QSF_RETURN_IF_ERROR(make_speculation());
  impl_->watch.emplace(plan.memory.total_bytes(), std::string());
  return ok_status();
}

void EngineOpener::describe_reading() {
  const ReadDevice& device = *impl_->device;
  const Residency& residency = impl_->plan.residency;
  std::string& mode = impl_->plan.reading_mode;
  char text[200];
  if (residency.mapped_bytes != 0) {
    mode = "mapped; the kernel decides which weights stay in memory";
  } else if (residency.everything_resident) {
    mode = "resident";
  } else {
    std::snprintf(text, sizeof text, "streamed; %.1f %% of the weights stay in memory",
                  100 * residency.resident_share);
    mode = text;
  }
  std::snprintf(text, sizeof text, "; %s, %s, depth %u",
                std::string(read_path_name(device.path())).c_str(),
                device.is_direct() ? "direct" : "through the page cache", device.depth());
  mode += text;
  if (!device.fall_back().empty()) mode.append("; ").append(device.fall_back());
}

void EngineOpener::log_plan() const {
  const LogSink& log = impl_->options.log;
  for (const std::string& step : impl_->plan.steps) log.warning(step);
  const std::string lines = impl_->backend->describe();
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    log.info(std::string_view(lines).substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace qsf
