// SPDX-License-Identifier: MIT

#include "engine/draft_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "engine/engine_plan.h"
#include "kv/kv_policy.h"
#include "model/weights.h"
#include "ops/make_backend.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {
namespace {

// Rows of a pass over a prompt. Weights are resident, so that more would gain little.
constexpr std::uint32_t kPromptRows = 64;
// What a mean of times keeps at each pass.
constexpr double kKeepTime = 0.8;

// What holds for a model of its own size: it has no file, cache or grammar beside its own.
EngineOptions options_for(const EngineOptions& options) {
  EngineOptions own = options;
  own.max_context = 0;
  own.prefix_cache = own.reuse_answers = false;
  own.prefix_folder.clear();
  own.kv_spill_path.clear();
  own.prefix_folder_bytes = 0;
  own.caller_memory.clear();
  own.grammar = {};
  own.experts_used = 0;
  own.expert_preference = 0.0F;
  own.attention = AttentionKind::kStandard;
  own.observer = nullptr;
  own.on_load_progress = nullptr;
  if (own.read_path == ReadPath::kMmap) own.read_path = ReadPath::kPread;
  return own;
}

// Memory for the time of a call.
class TemporaryPages {
 public:
  static Result<TemporaryPages> map(std::uint64_t n_bytes) {
    QSF_ASSIGN_OR_RETURN(const MutableByteSpan bytes, map_pages(n_bytes, HugePages::kNever));
    return TemporaryPages(bytes);
  }
  TemporaryPages(TemporaryPages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  TemporaryPages& operator=(TemporaryPages&&) = delete;
  ~TemporaryPages() { unmap_pages(bytes_); }
  MutableByteSpan bytes() const noexcept { return bytes_; }

 private:
  explicit TemporaryPages(MutableByteSpan bytes) noexcept : bytes_(bytes) {}
  MutableByteSpan bytes_;
};

Result<SectionView> read_vocabulary(const QsfReader& reader, MutableByteSpan bytes) {
  QSF_RETURN_IF_ERROR(reader.read_section(*reader.find_section("tokenizer"), bytes));
  Result<SectionView> section = SectionView::parse(bytes);
  if (!section.has_value()) {
    return std::move(section).error().with_context(reader.file().path());
  }
  return section;
}

// A token's text for messages.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string printable;
  for (const char c : text.substr(0, kMost)) printable += c >= ' ' && c <= '~' ? c : '?';
  return printable;
}

// Takes the rows' logits into a span that is as wide as the model's, or wider.
class DraftLogits final : public LogitsSink {
 public:
  explicit DraftLogits(std::span<float> logits) noexcept : logits_(logits) {}
  void consume(std::uint32_t /*row*/, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    if (first_token >= logits_.size()) return;
    const std::size_t n = std::min(logits.size(), logits_.size() - first_token);
    std::copy_n(logits.begin(), n, logits_.begin() + first_token);
  }

 private:
  std::span<float> logits_;
};

}  // namespace

DraftModel::DraftModel(const EngineOptions& options, std::uint32_t n_vocab)
    : options_(options_for(options)),
      n_vocab_(n_vocab),
      sequences_(options.n_sequences),
      times_(options.max_drafts + 1) {
  rows_.reserve(rows_per_pass());
}

DraftModel::~DraftModel() = default;

std::uint32_t DraftModel::rows_per_pass() const noexcept {
  return std::max(kPromptRows, options_.max_drafts + 1);
}

Result<std::unique_ptr<DraftModel>> DraftModel::open(const EngineOptions& options,
                                                     const ModelSpec& model, ThreadPool& threads) {
  QSF_CHECK(options.max_drafts > 0);
  std::unique_ptr<DraftModel> draft(new DraftModel(options, model.n_vocab));
  QSF_RETURN_IF_ERROR(draft->open_file(threads).with_context("draft model"));
  const ModelSpec& own = draft->reader_->spec();
  if (own.mtp_block && own.hidden != model.hidden) {
    return invalid_argument(
        "draft model %s: predicts further tokens of a model of %u columns, expected %u; convert "
        "the block of the same model",
        options.draft_model_path.c_str(), own.hidden, model.hidden);
  }
  return draft;
}

Status DraftModel::open_file(ThreadPool& threads) {
  FileOps* const ops = options_.file_ops;
  QSF_ASSIGN_OR_RETURN(
      File file, File::open(options_.draft_model_path, ops != nullptr ? *ops : system_file_ops()));
  file.expect_random_reads();
  QSF_ASSIGN_OR_RETURN(QsfReader reader, QsfReader::open(std::move(file)));
  reader_.emplace(std::move(reader));
  QSF_RETURN_IF_ERROR(check_tensors(*reader_));
  const ModelSpec& spec = reader_->spec();
  const std::string& path = options_.draft_model_path;
  if (spec.bidirectional) {
    return unsupported("%s: its rows attend to both sides, so it generates no text", path.c_str());
  }
  QSF_RETURN_IF_ERROR(check_options(options_, spec).with_context(path));
  const bool bound = options_.ram_budget_bytes != 0;
  // Read once: one read at a time takes the least memory.
  QSF_ASSIGN_OR_RETURN(
      ReadDevice device,
      ReadDevice::open(
          reader_->file(),
          {.path = options_.read_path, .direct = bound, .keep_cached = !bound, .depth = 1}));
  device_.emplace(std::move(device));
  QSF_ASSIGN_OR_RETURN(residency_, WeightPager::plan(*reader_, {.n_queues = device_->n_queues()}));
  const bool keeps_floats =
      spec.default_type == QuantType::kF32 || spec.default_type == QuantType::kF16;
  QSF_ASSIGN_OR_RETURN(backend_, make_cpu_backend(threads, options_.exact || keeps_floats));
  return ok_status();
}

Status DraftModel::check_vocabulary(const QsfReader& model, std::uint64_t most_bytes) const {
  const std::string& path = reader_->file().path();
  for (const QsfReader* const reader : {&model, &*reader_}) {
    if (reader->find_section("tokenizer") != nullptr) continue;
    return unsupported(
        "draft model %s: %s has no tokenizer, so the vocabularies cannot be compared; convert it "
        "again from a folder with a tokenizer",
        path.c_str(), reader->file().path().c_str());
  }
  const std::uint64_t model_bytes = align_up(model.tokenizer_bytes(), kRegionAlign);
  const std::uint64_t n_bytes = model_bytes + reader_->tokenizer_bytes();
  if (n_bytes > most_bytes) {
    return out_of_budget(
        "draft model %s: the vocabularies take %llu bytes while they are compared, and %llu are "
        "planned; use a larger budget",
        path.c_str(), static_cast<unsigned long long>(n_bytes),
        static_cast<unsigned long long>(most_bytes));
  }
  QSF_ASSIGN_OR_RETURN(const TemporaryPages pages, TemporaryPages::map(n_bytes));
  const MutableByteSpan bytes = pages.bytes();
  QSF_ASSIGN_OR_RETURN(const SectionView ours,
                       read_vocabulary(model, bytes.first(model.tokenizer_bytes())));
  Result<SectionView> read =
      read_vocabulary(*reader_, bytes.subspan(model_bytes, reader_->tokenizer_bytes()));
  if (!read.has_value()) return std::move(read).error().with_context("draft model");
  const SectionView& theirs = *read;
  for (std::uint32_t id = 0; id < std::min(ours.n_tokens(), theirs.n_tokens()); ++id) {
    if (ours.token_text(id) == theirs.token_text(id)) continue;
    return invalid_argument(
        "draft model %s: another vocabulary: token %u is \"%s\", expected \"%s\" as in %s; use a "
        "model of the same family",
        path.c_str(), id, shown(theirs.token_text(id)).c_str(), shown(ours.token_text(id)).c_str(),
        model.file().path().c_str());
  }
  if (theirs.n_tokens() > reader_->spec().n_vocab) {
    return corrupt("draft model %s: the tokenizer has %u tokens, but the embedding has %u rows",
                   path.c_str(), theirs.n_tokens(), reader_->spec().n_vocab);
  }
  if (ours.n_tokens() == theirs.n_tokens()) return ok_status();
  return invalid_argument(
      "draft model %s: another vocabulary: %u tokens, expected %u as in %s; use a model of the "
      "same family",
      path.c_str(), theirs.n_tokens(), ours.n_tokens(), model.file().path().c_str());
}

std::uint32_t DraftModel::context_for(std::uint32_t max_context) const noexcept {
  if (options_.kv_policy.rope_reindex) return max_context;
  return std::min(max_context, reader_->spec().max_positions);
}

// One row behind those of a pass has no next token yet.
std::uint64_t DraftModel::hidden_bytes(std::uint32_t n_rows, std::uint32_t n_cols) const noexcept {
  return HiddenRows::region_bytes(options_.n_sequences, n_rows + 1, n_cols) +
         n_cols * sizeof(float);
}

std::vector<Region> DraftModel::regions(std::uint32_t max_context) const {
  const ModelSpec& spec = reader_->spec();
  const std::uint32_t context = context_for(max_context);
  const std::uint32_t n_rows = rows_per_pass();
  const KvLimits limits = kv_limits(options_, context, n_rows);
  std::vector<Region> all;
  const auto add = [&all](std::string name, std::uint64_t bytes, std::string reason) {
    all.push_back({"draft_model_" + name, bytes, std::move(reason)});
  };
  // Tiles begin at a page of memory.
  add("weights", residency_.region_bytes + kTileAlign,
      "every tile of " + options_.draft_model_path);
  add("kv_tables", KvCache::region_bytes(limits), "page tables and the position of every slot");
  add("kv_cache", backend_->kv_bytes(kv_shape(spec, options_), limits.n_pages),
      std::to_string(std::uint64_t{limits.n_pages} * kKvPageSlots) + " positions of " +
          std::to_string(options_.n_sequences) + " sequences");
  for (const BufferShape& shape :
       Decoder::buffer_shapes(spec, n_rows, {.rope_reindex = options_.kv_policy.rope_reindex})) {
    add("rows_" + std::string(shape.name), backend_->buffer_bytes(shape.n_rows, shape.n_cols),
        std::to_string(shape.n_rows) + " rows of " + std::to_string(shape.n_cols) + " f32");
  }
  add("scratch", backend_->scratch_bytes(pass_limits(spec, options_, context, n_rows)),
      "rotation angles, partial attention states, rows as int8 and bf16");
  add("logits", std::uint64_t{n_vocab_} * sizeof(float), "that a drafted token is drawn from");
  add("tokens", std::uint64_t{options_.n_sequences} * context * sizeof(TokenId),
      "of the rows in its KV cache");
  if (spec.mtp_block) {
    add("hidden", hidden_bytes(n_rows, spec.hidden),
        std::to_string(n_rows + 1) + " rows of the model of " +
            std::to_string(options_.n_sequences) + " sequences");
  }
  add("directories",
      reader_->heap_bytes() + residency_.table_bytes +
          std::uint64_t{spec.n_layers} * spec.n_experts * sizeof(ExpertWeights) +
          n_rows * (sizeof(Row) + sizeof(std::uint32_t)) + ExpertRows::heap_bytes(spec, n_rows),
      "tensors and tiles of its file, and the rows of a pass");
  all.back().external = true;
  return all;
}

std::uint64_t DraftModel::region_bytes(std::uint32_t max_context) const {
  std::uint64_t sum = 0;
  for (const Region& region : regions(max_context)) {
    sum = saturating_add(sum, align_up(region.bytes, kRegionAlign));
  }
  return sum;
}

Status DraftModel::load(std::uint32_t max_context, Arena& arena, std::span<const RegionId> regions,
                        const std::atomic<bool>& cancel) {
  context_ = context_for(max_context);
  cancel_ = &cancel;
  if (options_.ram_budget_bytes != 0) reader_->file().drop_cached();
  const MutableByteSpan weights = arena.carve(regions.front());
  const std::size_t unaligned = reinterpret_cast<std::uintptr_t>(weights.data()) % kTileAlign;
  const std::size_t skipped = unaligned == 0 ? 0 : kTileAlign - unaligned;
  QSF_ASSIGN_OR_RETURN(pager_, WeightPager::open(*reader_, *device_, residency_,
                                                 weights.subspan(skipped, residency_.region_bytes),
                                                 {.cancel = cancel_, .work = backend_.get()}));
  QSF_RETURN_IF_ERROR(pager_->load().with_context("draft model"));
  return make_decoder(arena, regions.subspan(1));
}

Status DraftModel::make_decoder(Arena& arena, std::span<const RegionId> regions) {
  const ModelSpec& spec = reader_->spec();
  const std::uint32_t n_rows = rows_per_pass();
  const DecoderOptions decoder_options = {.rope_reindex = options_.kv_policy.rope_reindex};
  const KvShape shape = kv_shape(spec, options_);
  std::size_t n_carved = 0;
  // Within a budget memory is populated before work starts, so that a growing text takes no more.
  const auto carve = [&] {
    const MutableByteSpan memory = arena.carve(regions[n_carved++]);
    if (options_.ram_budget_bytes != 0) touch_pages(memory);
    return memory;
  };
  QSF_ASSIGN_OR_RETURN(KvCache kv,
                       KvCache::create(shape, kv_limits(options_, context_, n_rows), carve()));
  kv_.emplace(std::move(kv));
  for (std::uint32_t i = 0; i < options_.n_sequences; ++i) {
    QSF_ASSIGN_OR_RETURN(const SequenceId created, kv_->create_sequence());
    QSF_CHECK(created == i);
  }
  kv_store_ = std::make_unique<ResidentKvStore>(shape, carve());
  backend_->attach_kv(*kv_store_);
  std::vector<Buffer> buffers;
  for (const BufferShape& buffer : Decoder::buffer_shapes(spec, n_rows, decoder_options)) {
    buffers.push_back(backend_->create_buffer(buffer.n_rows, buffer.n_cols, carve()));
  }
  backend_->attach_scratch(pass_limits(spec, options_, context_, n_rows), carve());
  QSF_ASSIGN_OR_RETURN(Decoder decoder,
                       Decoder::create(*reader_, *pager_, *backend_,
                                       Decoder::name_buffers(spec, buffers, decoder_options),
                                       n_rows, longest_distance(options_, context_)));
  decoder_.emplace(std::move(decoder));
  const MutableByteSpan logits = carve();
  const MutableByteSpan tokens = carve();
  logits_ = {reinterpret_cast<float*>(logits.data()), n_vocab_};
  tokens_ = {reinterpret_cast<TokenId*>(tokens.data()),
             std::size_t{options_.n_sequences} * context_};
  if (!spec.mtp_block) return ok_status();
  const MutableByteSpan hidden = carve();
  const std::size_t row_bytes = spec.hidden * sizeof(float);
  hidden_.emplace(options_.n_sequences, n_rows + 1, spec.hidden,
                  hidden.first(hidden.size() - row_bytes));
  drafted_row_ = {reinterpret_cast<float*>(hidden.last(row_bytes).data()), spec.hidden};
  return ok_status();
}

void DraftModel::begin(SequenceId sequence) noexcept {
  sequences_[sequence].is_new = true;
  if (!hidden_.has_value()) return;
  kv_->truncate(sequence, 0);
  hidden_->clear(sequence);
}

void DraftModel::set_key(SequenceId sequence, const std::string* key) {
  Sequence& of = sequences_[sequence];
  const bool same = key != nullptr && !key->empty() && of.key == *key;
  if (of.is_new && !same) kv_->truncate(sequence, 0);
  of.is_new = false;
  if (same) return;
  of.key.clear();
  if (key != nullptr) of.key = *key;
}

bool DraftModel::follows(SequenceId sequence, const DraftText& text) const noexcept {
  const std::uint32_t n_rows = reader_->spec().n_vocab;
  if (hidden_.has_value()) {
    const std::size_t n = text.tokens.size();
    if (n <= hidden_->begin(sequence) || n > hidden_->end(sequence) || n >= context_ ||
        tokens_of(sequence)[n - 1] != text.tokens.back()) {
      return false;
    }
  }
  return !failed_ && text.tokens.size() < context_ && text.last < n_rows &&
         (n_rows >= n_vocab_ || std::all_of(text.tokens.begin(), text.tokens.end(),
                                            [n_rows](TokenId token) { return token < n_rows; }));
}

// The rows of a sequence that the text begins with, at most those before its last token.
std::uint32_t DraftModel::n_common(SequenceId sequence, const DraftText& text) const noexcept {
  const std::span<const TokenId> rows = tokens_of(sequence).first(kv_->n_slots(sequence));
  const auto differ =
      std::mismatch(rows.begin(), rows.end(), text.tokens.begin(), text.tokens.end());
  return static_cast<std::uint32_t>(differ.first - rows.begin());
}

DraftTimes DraftModel::times_of(SequenceId sequence, const DraftText& text) noexcept {
  const PassTimes times = times_.from(1);
  if (times.empty()) return {};
  std::uint32_t n_prompt_ahead = 0;
  std::uint32_t n_ahead = 0;
  const auto n_text = static_cast<std::uint32_t>(text.tokens.size()) + 1;
  if (hidden_.has_value()) {
    const std::uint32_t next = std::max(next_position(sequence), hidden_->begin(sequence));
    const std::uint32_t n = n_text - 1 - std::min(next, n_text - 2);
    (n <= options_.max_drafts + 1 ? n_ahead : n_prompt_ahead) = n;
  } else {
    for (std::uint32_t row = n_common(sequence, text), n = 0; row < n_text; row += n) {
      (role_of(text, row, n) == RowRole::kPrompt ? n_prompt_ahead : n_ahead) += n;
    }
  }
  const std::uint32_t n_first = std::min<std::uint32_t>(n_ahead, 2);
  return {.follow_ns = static_cast<std::uint64_t>(prompt_row_ns_ * n_prompt_ahead) +
                       times[0] * (n_ahead - n_first),
          .first_ns = times[std::clamp<std::size_t>(n_first, 1, times.size()) - 1],
          .next_ns = times[0]};
}

// The role of a row that is computed, and how many rows from it on are of its pass.
RowRole DraftModel::role_of(const DraftText& text, std::uint32_t row,
                            std::uint32_t& n_rows) const noexcept {
  const std::uint32_t n_generated = options_.max_drafts + 1;
  const auto n_text = static_cast<std::uint32_t>(text.tokens.size()) + 1;
  const std::uint32_t end = std::min(text.prompt_end, n_text - 1);
  const std::uint32_t begin = std::min(text.prompt_begin, end);
  if (row < begin && begin - row <= n_generated) {
    n_rows = begin - row;
    return RowRole::kGenerated;
  }
  if (row < end) {
    n_rows = std::min(end - row, rows_per_pass());
    return RowRole::kPrompt;
  }
  n_rows = std::min(n_text - row, n_generated);
  return RowRole::kGenerated;
}

// Under a window the slots before a row may be gone that it attends to.
void DraftModel::truncate(SequenceId sequence, std::uint32_t n_rows) noexcept {
  const KvPolicyOptions& policy = options_.kv_policy;
  const bool windowed = policy.policy == KvPolicy::kWindow && n_rows > policy.window;
  const std::uint32_t first = windowed ? n_rows - policy.window : 0;
  kv_->truncate(sequence, kv_->holds(sequence, first, n_rows) ? n_rows : 0);
}

// Gives `to` the first rows of `from`.
void DraftModel::take(SequenceId from, SequenceId to, std::uint32_t n_rows) noexcept {
  if (options_.kv_policy.policy != KvPolicy::kFull) return;
  const std::span<const TokenId> rows = tokens_of(from).first(n_rows);
  const std::span<const TokenId> old = tokens_of(to).first(kv_->n_slots(to));
  const auto differ = std::mismatch(old.begin(), old.end(), rows.begin(), rows.end());
  const auto n_same = static_cast<std::uint32_t>(differ.first - old.begin());
  kv_->truncate(to, n_same / kKvPageSlots * kKvPageSlots);
  // Looking for a page may have taken those of `from`.
  if (!find_pages(to, 1) || kv_->n_slots(from) < n_rows) return;
  Result<std::optional<PageCopy>> copy = kv_->share_slots(from, to, n_rows);
  if (!copy.has_value()) return;
  if (copy->has_value()) backend_->copy_page((*copy)->from_page, (*copy)->to_page);
  ranges::copy(rows, tokens_of(to).begin());
}

void DraftModel::share(SequenceId from, SequenceId to) noexcept {
  kv_->truncate(to, 0);
  if (const std::uint32_t n_rows = kv_->n_slots(from); n_rows != 0) take(from, to, n_rows);
  if (hidden_.has_value()) {
    sequences_[to].first_position = sequences_[from].first_position;
    hidden_->copy(from, to);
    ranges::copy(tokens_of(from), tokens_of(to).begin());
  }
  sequences_[to].key.clear();
  sequences_[to].is_new = false;
}

// A page is the least that is worth looking for.
void DraftModel::take_from_others(SequenceId sequence, const DraftText& text) noexcept {
  const std::string& key = sequences_[sequence].key;
  if (key.empty()) return;
  std::uint32_t most = n_common(sequence, text) + kKvPageSlots - 1;
  if (text.tokens.size() <= most) return;
  SequenceId best = sequence;
  for (SequenceId other = 0; other < sequences_.size(); ++other) {
    if (other == sequence || sequences_[other].key != key) continue;
    const std::uint32_t n = n_common(other, text);
    if (n <= most) continue;
    most = n;
    best = other;
  }
  if (best != sequence) take(best, sequence, most);
}

// Takes pages of the sequences that have drafted longest ago.
bool DraftModel::find_pages(SequenceId sequence, std::uint32_t n_rows) noexcept {
  while (kv_->n_missing_pages(sequence, n_rows) != 0) {
    SequenceId oldest = sequence;
    for (SequenceId other = 0; other < sequences_.size(); ++other) {
      if (other == sequence || kv_->n_slots(other) == 0) continue;
      if (oldest == sequence || sequences_[other].last_use < sequences_[oldest].last_use) {
        oldest = other;
      }
    }
    if (oldest == sequence) return false;
    kv_->truncate(oldest, 0);
  }
  return true;
}

// Computes the tokens behind the rows of a sequence. Requires  tokens_of() has them
bool DraftModel::run(SequenceId sequence, std::uint32_t n_rows, RowRole role, bool wants_logits,
                     std::span<const float> hidden) noexcept {
  const std::uint64_t start = monotonic_ns();
  if (!find_pages(sequence, n_rows)) return false;
  const std::uint32_t first = kv_->n_slots(sequence);
  Result<Appended> appended = kv_->append(sequence, n_rows);
  if (!appended.has_value()) return false;
  if (appended->copy.has_value()) {
    backend_->copy_page(appended->copy->from_page, appended->copy->to_page);
  }
  // A row of a block is made of the token behind that of the model's row.
  const std::uint32_t first_token =
      hidden_.has_value() ? sequences_[sequence].first_position + 1 + first : first;
  rows_.clear();
  for (std::uint32_t slot = first; slot < first + n_rows; ++slot) {
    rows_.push_back({.sequence = sequence,
                     .token = tokens_of(sequence)[first_token + slot - first],
                     .position = static_cast<std::int32_t>(slot),
                     .kv_slot = slot,
                     .role = role,
                     .visible = visible_under(options_.kv_policy, slot),
                     .adapter = 0,
                     .wants_output = wants_logits && slot + 1 == first + n_rows});
  }
  // Tokens of the model that this one has no row for.
  std::fill(logits_.begin() + std::min(reader_->spec().n_vocab, n_vocab_), logits_.end(),
            -std::numeric_limits<float>::infinity());
  DraftLogits sink(logits_);
  NormedRows last_row;
  if (hidden_.has_value() && wants_logits) last_row = {keep_last_row, this};
  const Status status = decoder_->run({.rows = rows_,
                                       .kv = &*kv_,
                                       .cancel = cancel_,
                                       .sink = wants_logits ? &sink : nullptr,
                                       .normed = last_row,
                                       .hidden = hidden,
                                       .keys_alone = hidden_.has_value() && !wants_logits});
  if (!status.ok()) {
    truncate(sequence, first);
    // Its weights are in memory: what fails now fails again.
    failed_ = status.code() != StatusCode::kCancelled;
    if (failed_) options_.log.warning("draft model: off, because " + status.message());
    return false;
  }
  const std::uint64_t ns = monotonic_ns() - start;
  n_computed_ += n_rows;
  if (role == RowRole::kGenerated) {
    times_.add(n_rows, ns, 0);
  } else {
    const double row_ns = static_cast<double>(ns) / n_rows;
    const double kept = prompt_row_ns_ == 0.0 ? 0.0 : kKeepTime;
    prompt_row_ns_ = kept * prompt_row_ns_ + (1.0 - kept) * row_ns;
  }
  return true;
}

// Computes what is missing of a text, its last token with logits.
bool DraftModel::follow(SequenceId sequence, const DraftText& text,
                        const DraftCalls& calls) noexcept {
  take_from_others(sequence, text);
  const std::uint32_t n_kept = n_common(sequence, text);
  if (n_kept < kv_->n_slots(sequence)) truncate(sequence, n_kept);
  const std::span<TokenId> tokens = tokens_of(sequence);
  const auto n_last = static_cast<std::uint32_t>(text.tokens.size());
  std::uint32_t n_done = kv_->n_slots(sequence);
  std::copy(text.tokens.begin() + n_done, text.tokens.end(), tokens.begin() + n_done);
  tokens[n_last] = text.last;
  while (n_done <= n_last) {
    if (calls.is_cancelled()) return false;
    std::uint32_t n = 0;
    const RowRole role = role_of(text, n_done, n);
    if (!run(sequence, n, role, n_done + n > n_last)) return false;
    n_done += n;
  }
  return true;
}

std::uint32_t DraftModel::draft(SequenceId sequence, const DraftText& text, const DraftCalls& calls,
                                std::span<TokenId> draft) noexcept {
  QSF_DCHECK(follows(sequence, text) && draft.size() <= options_.max_drafts);
  sequences_[sequence].last_use = ++n_uses_;
  const std::uint32_t n_text = static_cast<std::uint32_t>(text.tokens.size()) + 1;
  const std::size_t n_most = std::min<std::size_t>(draft.size(), context_ - n_text + 1);
  if (n_most == 0) return 0;
  if (!hidden_.has_value()) {
    if (!follow(sequence, text, calls)) return 0;
    return draw(sequence, n_text, calls, draft.first(n_most));
  }
  if (!follow_rows(sequence, text, calls)) return 0;
  const std::uint32_t n = draw(sequence, n_text, calls, draft.first(n_most));
  keep_before(sequence, n_text - 1);
  return n;
}

// Draws behind the newest row, and computes what was drawn as far as more is wanted.
std::uint32_t DraftModel::draw(SequenceId sequence, std::uint32_t n_text, const DraftCalls& calls,
                               std::span<TokenId> draft) noexcept {
  const std::span<TokenId> tokens = tokens_of(sequence);
  for (std::uint32_t i = 0;; ++i) {
    const TokenId token = calls.draw(logits_, tokens.first(n_text + i));
    if (token == kNoToken || token >= reader_->spec().n_vocab) return i;
    draft[i] = token;
    if (i + 1 == draft.size()) return i + 1;
    tokens[n_text + i] = token;
    if (!run(sequence, 1, RowRole::kGenerated, true, drafted_row_)) return i + 1;
  }
}

}  // namespace qsf
