// SPDX-License-Identifier: MIT
//
// The C API's configuration, engine and errors; the contract is include/qsf/qsf.h.

#include <cinttypes>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "base/utf8_text.h"
#include "capi/capi_handles.h"
#include "engine/budget.h"
#include "engine/process_memory.h"

namespace qsf::capi {

namespace {

constexpr bool same(qsf_code c, StatusCode status) {
  return static_cast<int>(c) == static_cast<int>(status);
}
static_assert(same(QSF_OK, StatusCode::kOk));
static_assert(same(QSF_INVALID_ARGUMENT, StatusCode::kInvalidArgument));
static_assert(same(QSF_NOT_FOUND, StatusCode::kNotFound));
static_assert(same(QSF_CORRUPT, StatusCode::kCorrupt));
static_assert(same(QSF_UNSUPPORTED, StatusCode::kUnsupported));
static_assert(same(QSF_OUT_OF_BUDGET, StatusCode::kOutOfBudget));
static_assert(same(QSF_IO, StatusCode::kIo));
static_assert(same(QSF_CANCELLED, StatusCode::kCancelled));
static_assert(same(QSF_INTERNAL, StatusCode::kInternal));

static_assert(static_cast<int>(QSF_LOG_INFO) == static_cast<int>(LogLevel::kInfo));
static_assert(static_cast<int>(QSF_LOG_WARNING) == static_cast<int>(LogLevel::kWarning));

constexpr int kMaxSessions = 256;  // the engine's
constexpr std::size_t kMegabyte = 1'000'000;

// Of the last plan that this thread asked for: qsf_error has no room for it.
thread_local BudgetRefusal budget_refusal;

Status check_range(const char* name, int value, int max) {
  if (value >= 0 && value <= max) return ok_status();
  return invalid_argument("%s: %d, expected 0 to %d", name, value, max);
}

Status check_kv_type(const char* of, int type) {
  if (type >= QSF_KV_F16 && type <= QSF_KV_2BIT) return ok_status();
  return invalid_argument(
      "kv_type: %d for %s, expected QSF_KV_F16, QSF_KV_F32, QSF_KV_8BIT, QSF_KV_4BIT or "
      "QSF_KV_2BIT",
      type, of);
}

Status check_h2o(const QSFConfig& config) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  QSF_RETURN_IF_ERROR(Status(config.h2o_read));
  QSF_RETURN_IF_ERROR(check_range("h2o local", config.h2o.local, kMaxInt));
  QSF_RETURN_IF_ERROR(check_range("h2o heavy", config.h2o.heavy, kMaxInt));
  QSF_RETURN_IF_ERROR(check_range("h2o chunk", config.h2o.chunk, kMaxInt));
  QSF_RETURN_IF_ERROR(check_range("h2o sinks", config.h2o.sinks, kMaxInt));
  if (config.h2o_ranking == QSF_H2O_MEAN || config.h2o_ranking == QSF_H2O_SUM) return ok_status();
  return invalid_argument("h2o ranking: %d, expected QSF_H2O_MEAN or QSF_H2O_SUM",
                          config.h2o_ranking);
}

Status check_kv_policy(const QSFConfig& config) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  if (config.kv_policy < QSF_KV_POLICY_FULL || config.kv_policy > QSF_KV_POLICY_H2O) {
    return invalid_argument(
        "kv_policy: %d, expected QSF_KV_POLICY_FULL, QSF_KV_POLICY_WINDOW or QSF_KV_POLICY_H2O",
        config.kv_policy);
  }
  QSF_RETURN_IF_ERROR(check_range("kv_policy: window", config.kv_window, kMaxInt));
  QSF_RETURN_IF_ERROR(check_range("kv_policy: sinks", config.kv_sinks, kMaxInt));
  return check_range("kv_policy: heavy", config.kv_heavy, kMaxInt);
}

Status check(const QSFConfig& config) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  constexpr auto kMaxBudgetMb = static_cast<std::size_t>(
      std::min<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / kMegabyte,
                              std::numeric_limits<std::size_t>::max()));
  if (config.ram_budget_mb > kMaxBudgetMb) {
    return invalid_argument("ram_budget: %zu MB, expected at most %zu", config.ram_budget_mb,
                            kMaxBudgetMb);
  }
  if (config.read_path < QSF_READ_AUTO || config.read_path > QSF_READ_MMAP) {
    return invalid_argument("io: %d, expected a qsf_read_path", config.read_path);
  }
  if (!(config.quality > 0.0F && config.quality <= 1.0F)) {
    return invalid_argument("quality: %g, expected above 0, and at most 1",
                            static_cast<double>(config.quality));
  }
  QSF_RETURN_IF_ERROR(check_kv_type("keys", config.k_type));
  QSF_RETURN_IF_ERROR(check_kv_type("values", config.v_type));
  if (config.attention < 0 || config.attention > QSF_ATTENTION_H2O) {
    return invalid_argument("attention: %d, expected a qsf_attention", config.attention);
  }
  QSF_RETURN_IF_ERROR(validate(static_cast<AttentionKind>(config.attention)));
  if (config.attention != QSF_ATTENTION_FULL) QSF_RETURN_IF_ERROR(check_h2o(config));
  QSF_RETURN_IF_ERROR(check_kv_policy(config));
  if (config.kv_spill_lost) return out_of_budget("kv_spill: there was no memory for its path");
  if (config.prefix_folder_lost) {
    return out_of_budget("prefix_folder: there was no memory for its path");
  }
  if (config.adapters_lost) return out_of_budget("add_adapter: there was no memory for its texts");
  if (config.draft_model_lost)
    return out_of_budget("draft_model: there was no memory for its path");
  if (config.memory_lost) return out_of_budget("add_memory: there was no memory for its texts");
  QSF_RETURN_IF_ERROR(check_range("threads", config.threads, kMaxInt));
  QSF_RETURN_IF_ERROR(check_range("max_seq_len", config.max_seq_len, kMaxInt));
  QSF_RETURN_IF_ERROR(check_range("rows_per_pass", config.rows_per_pass, kMaxInt));
  QSF_RETURN_IF_ERROR(check_range("experts", config.experts, kMaxInt));
  if (config.speculation < QSF_SPECULATE_AUTO || config.speculation > QSF_SPECULATE_DRAFT) {
    return invalid_argument("speculation: %d, expected a qsf_speculation", config.speculation);
  }
  if (config.head < QSF_HEAD_FULL || config.head > QSF_HEAD_APPROXIMATE) {
    return invalid_argument("head: %d, expected a qsf_head", config.head);
  }
  QSF_RETURN_IF_ERROR(check_range("max_drafts", config.max_drafts, kMaxInt));
  if (config.max_sessions < 1 || config.max_sessions > kMaxSessions) {
    return invalid_argument("max_sessions: %d, expected 1 to %d", config.max_sessions,
                            kMaxSessions);
  }
  if (config.kv_positions < 0) {
    return invalid_argument("kv_positions: %d, expected 0 (automatic) or more",
                            config.kv_positions);
  }
  if (config.max_grammars < 0) {
    return invalid_argument("max_grammars: %d, expected at least 0", config.max_grammars);
  }
  return ok_status();
}

// Requires  one that check() accepts
KvType kv_type_of(int type) {
  constexpr KvType kTypes[] = {KvType::kF16, KvType::kF32, KvType::k8Bit, KvType::k4Bit,
                               KvType::k2Bit};
  return kTypes[type];
}

// Requires  one that check() accepts
SparsePrefillOptions h2o_options_of(const QSFConfig& config) {
  return {.local = static_cast<std::uint32_t>(config.h2o.local),
          .heavy = static_cast<std::uint32_t>(config.h2o.heavy),
          .chunk = static_cast<std::uint32_t>(config.h2o.chunk),
          .sinks = static_cast<std::uint32_t>(config.h2o.sinks),
          .ranking = config.h2o_ranking == QSF_H2O_SUM ? H2oRanking::kSum : H2oRanking::kMean};
}

// Passes a line on with a NUL, a long one cut between characters. Allocates nothing, since it may
// run on any thread.
void write_log(LogLevel level, std::string_view line, void* user) {
  const auto& config = *static_cast<const QSFConfig*>(user);
  char text[512];
  const std::size_t n_bytes = utf8_fitting_bytes(line, sizeof(text) - 1);
  std::memcpy(text, line.data(), n_bytes);
  text[n_bytes] = '\0';
  config.log(static_cast<qsf_log_level>(level), text, config.log_user);
}

// Passes progress on, and makes the last call report completion: the loader reports irregularly,
// for a small model perhaps never.
struct ProgressForwarder {
  const QSFConfig& config;
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;

  static void forward(std::uint64_t done_bytes, std::uint64_t total_bytes, void* user) {
    auto& self = *static_cast<ProgressForwarder*>(user);
    self.done_bytes = done_bytes;
    self.total_bytes = total_bytes;
    self.config.progress(done_bytes, total_bytes, self.config.progress_user);
  }
  void finish(std::uint64_t bytes_read) {
    if (config.progress == nullptr) return;
    if (total_bytes == 0) total_bytes = bytes_read;
    if (done_bytes != total_bytes) forward(total_bytes, total_bytes, this);
  }
};

Status open_engine(const char* model_path, const QSFConfig* config, QSFEngine** out) {
  if (out == nullptr) return null_argument("engine");
  *out = nullptr;
  if (model_path == nullptr) return null_argument("model_path");
  auto handle = std::make_unique<QSFEngine>();
  if (config != nullptr) handle->config = *config;
  const QSFConfig& settings = handle->config;
  QSF_ASSIGN_OR_RETURN(EngineOptions options, read_config(settings));
  set_hooks(handle->config, options);
  if (settings.log != nullptr) options.log = {.write = write_log, .user = &handle->config};
  ProgressForwarder progress{.config = settings};
  if (settings.progress != nullptr) {
    options.on_load_progress = ProgressForwarder::forward;
    options.load_progress_user = &progress;
  }

  QSF_ASSIGN_OR_RETURN(RankedEngine opened, open_on_ranks(model_path, options, settings));
  handle->ring = std::move(opened.ring);
  handle->engine = std::move(opened.engine);
  if (const Tokenizer* tokenizer = handle->engine->tokenizer()) {
    handle->chat_prompts.emplace(handle->engine->spec(), *tokenizer);
  }
  progress.finish(handle->engine->stats().weight_bytes_read);
  handle->plan.plan = handle->engine->plan();
  handle->quant_type = handle->engine->quant_name();
  handle->instruction_set = handle->engine->instruction_set();
  *out = handle.release();
  return ok_status();
}

int token_or_none(std::uint32_t token) noexcept {
  return token == kNoToken ? -1 : static_cast<int>(token);
}

qsf_model_info model_info(const QSFEngine& handle) {
  const Engine& engine = *handle.engine;
  const ModelSpec& spec = engine.spec();
  qsf_model_info info = {};
  info.architecture = spec.architecture.c_str();
  info.quant_type = handle.quant_type.c_str();
  info.chat_template = spec.chat_template.empty() ? nullptr : spec.chat_template.c_str();
  info.n_layers = static_cast<int>(spec.n_layers);
  info.n_vocab = static_cast<int>(spec.n_vocab);
  info.hidden_size = static_cast<int>(spec.hidden);
  info.trained_context = static_cast<int>(spec.max_positions);
  info.context = static_cast<int>(engine.max_context());
  const Tokenizer* tokenizer = engine.tokenizer();
  const TokenId bos = tokenizer == nullptr ? kNoToken : tokenizer->bos();
  const TokenId eos = tokenizer == nullptr ? kNoToken : tokenizer->eos();
  info.bos_token = token_or_none(spec.bos_id.value_or(bos));
  info.eos_token = token_or_none(spec.eos_ids.empty() ? eos : spec.eos_ids.front());
  info.n_parameters = engine.n_parameters();
  info.file_bytes = engine.file_bytes();
  info.n_kv_heads = static_cast<int>(spec.n_kv_heads);
  return info;
}

qsf_engine_stats engine_stats(const QSFEngine& handle) {
  const Engine& engine = *handle.engine;
  const EngineStats stats = engine.stats();
  const ProcessMemory memory = process_memory();
  qsf_engine_stats out = {};
  out.n_threads = static_cast<int>(engine.n_threads());
  out.instruction_set = handle.instruction_set.c_str();
  out.load_ns = stats.load_ns;
  out.weight_bytes_read = stats.weight_bytes_read;
  out.prompt_tokens = stats.prompt_tokens;
  out.prompt_ns = stats.prompt_ns;
  out.generated_tokens = stats.generated_tokens;
  out.generate_ns = stats.generate_ns;
  out.matmul_ns = stats.matmul_ns;
  out.attention_ns = stats.attention_ns;
  out.other_ns = stats.other_ns;
  out.sample_ns = stats.sample_ns;
  out.planned_bytes = engine.plan().memory.total_bytes();
  out.resident_bytes = memory.resident_bytes;
  out.peak_resident_bytes = memory.peak_resident_bytes;
  out.read_wait_ns = stats.read_wait_ns;
  out.drafted_tokens = stats.drafted_tokens;
  out.accepted_tokens = stats.accepted_tokens;
  out.model_drafted_tokens = stats.model_drafted_tokens;
  out.model_accepted_tokens = stats.model_accepted_tokens;
  out.draft_ns = stats.draft_ns;
  out.read_ns = stats.read_ns;
  out.unpack_ns = stats.unpack_ns;
  out.prompt_passes = stats.prompt_passes;
  return out;
}

double per_second(std::uint64_t count, std::uint64_t ns) noexcept {
  return ns == 0 ? 0.0 : static_cast<double>(count) * 1e9 / static_cast<double>(ns);
}

double milliseconds(std::uint64_t ns) noexcept {
  return static_cast<double>(ns) / 1e6;
}

void print_stats(const QSFEngine& handle) {
  std::fputs("memory plan (bytes, region, reason)\n", stderr);
  for (const Region& region : handle.engine->plan().memory.regions()) {
    std::fprintf(stderr, "%14" PRIu64 "  %s: %s\n", region.bytes, region.name.c_str(),
                 region.reason.c_str());
  }
  const qsf_engine_stats stats = engine_stats(handle);
  std::fprintf(stderr, "%14" PRIu64 "  planned in all\n", stats.planned_bytes);
  std::fprintf(stderr, "%14" PRIu64 "  resident now, at most %" PRIu64 "\n", stats.resident_bytes,
               stats.peak_resident_bytes);
  std::fprintf(stderr, "mode: %s\n", handle.plan.plan.reading_mode.c_str());
  std::fprintf(stderr, "read: %" PRIu64 " weight bytes, opened in %.1f ms\n",
               stats.weight_bytes_read, milliseconds(stats.load_ns));
  std::fprintf(stderr, "prompt: %" PRIu64 " tokens in %.1f ms, %.1f tokens/s\n",
               stats.prompt_tokens, milliseconds(stats.prompt_ns),
               per_second(stats.prompt_tokens, stats.prompt_ns));
  std::fprintf(stderr, "generation: %" PRIu64 " tokens in %.1f ms, %.1f tokens/s\n",
               stats.generated_tokens, milliseconds(stats.generate_ns),
               per_second(stats.generated_tokens, stats.generate_ns));
  std::fprintf(stderr,
               "time: matrix products %.1f ms, attention %.1f ms, other layers %.1f ms, sampling "
               "%.1f ms\n",
               milliseconds(stats.matmul_ns), milliseconds(stats.attention_ns),
               milliseconds(stats.other_ns), milliseconds(stats.sample_ns));
  std::fprintf(stderr, "kernels: %s, %d threads\n", stats.instruction_set, stats.n_threads);
}

}  // namespace

qsf_code fill_error(qsf_error* error, qsf_code code, std::string_view message) noexcept {
  if (error == nullptr) return code;
  error->code = code;
  std::size_t n_filled = 0;
  while (!message.empty()) {
    const std::size_t n_bytes = utf8_char_bytes(message);
    if (n_filled + std::max<std::size_t>(n_bytes, 1) >= sizeof(error->message)) break;
    if (n_bytes == 0) {
      error->message[n_filled++] = '?';
    } else if (static_cast<unsigned char>(message[0]) < 0x20) {
      error->message[n_filled++] = ' ';
    } else {
      std::memcpy(error->message + n_filled, message.data(), n_bytes);
      n_filled += n_bytes;
    }
    message.remove_prefix(std::max<std::size_t>(n_bytes, 1));
  }
  error->message[n_filled] = '\0';
  return code;
}

qsf_code fill_error(qsf_error* error, const Status& status) noexcept {
  return fill_error(error, static_cast<qsf_code>(status.code()), status.message());
}

void free_owned(Owned* handle) {
  if (handle == nullptr || handle->freed) return;
  if (!handle->engine->in_call.load(std::memory_order_acquire)) return handle->release();
  handle->freed = true;
  Owned** last = &handle->engine->first_freed;
  while (*last != nullptr) last = &(*last)->next_freed;
  *last = handle;
}

void end_call(QSFEngine* engine) noexcept {
  Owned* handle = std::exchange(engine->first_freed, nullptr);
  engine->in_call.store(false, std::memory_order_release);
  while (handle != nullptr) std::exchange(handle, handle->next_freed)->release();
  if (engine->freed) delete engine;
}

Status null_argument(const char* name) {
  return invalid_argument("%s: NULL, expected a pointer", name);
}

static_assert(static_cast<int>(AttentionKind::kStandard) == QSF_ATTENTION_FULL);
static_assert(static_cast<int>(AttentionKind::kChunked) == QSF_ATTENTION_CHUNKED);
static_assert(static_cast<int>(AttentionKind::kSymmetric) == QSF_ATTENTION_SYMMETRIC);
static_assert(static_cast<int>(AttentionKind::kSparsePrefill) == QSF_ATTENTION_H2O);
static_assert(static_cast<int>(KvPolicy::kFull) == QSF_KV_POLICY_FULL);
static_assert(static_cast<int>(KvPolicy::kWindow) == QSF_KV_POLICY_WINDOW);
static_assert(static_cast<int>(KvPolicy::kH2o) == QSF_KV_POLICY_H2O);

Result<EngineOptions> read_config(const QSFConfig& config) {
  QSF_RETURN_IF_ERROR(check(config));
  EngineOptions options;
  options.n_threads = static_cast<unsigned>(config.threads);
  options.max_context = static_cast<std::uint32_t>(config.max_seq_len);
  options.rows_per_pass = static_cast<std::uint32_t>(config.rows_per_pass);
  options.k_type = kv_type_of(config.k_type);
  options.v_type = kv_type_of(config.v_type);
  options.attention = static_cast<AttentionKind>(config.attention);
  switch (options.attention) {
    case AttentionKind::kChunked:
      options.prompt_mask.chunk = static_cast<std::uint32_t>(config.h2o.chunk);
      break;
    case AttentionKind::kSymmetric:
      options.prompt_mask.window = static_cast<std::uint32_t>(config.h2o.local);
      break;
    case AttentionKind::kSparsePrefill: options.sparse_prefill = h2o_options_of(config); break;
    default: break;
  }
  options.kv_policy = {.policy = static_cast<KvPolicy>(config.kv_policy),
                       .window = static_cast<std::uint32_t>(config.kv_window),
                       .sinks = static_cast<std::uint32_t>(config.kv_sinks),
                       .heavy = static_cast<std::uint32_t>(config.kv_heavy),
                       .rope_reindex = config.rope_reindex};
  options.exact = config.exact;
  options.pin = config.pin;
  options.quality = config.quality;
  options.experts_used = static_cast<std::uint32_t>(config.experts);
  options.expert_preference = config.expert_preference;
  constexpr SpeculationKind kKinds[] = {SpeculationKind::kAuto, SpeculationKind::kOff,
                                        SpeculationKind::kLookup, SpeculationKind::kDraft};
  options.speculation = kKinds[config.speculation];
  if (options.speculation != SpeculationKind::kOff) {
    options.max_drafts = static_cast<std::uint32_t>(config.max_drafts);
  }
  constexpr HeadMode kHeads[] = {HeadMode::kFull, HeadMode::kCertified, HeadMode::kApproximate};
  options.head_mode = kHeads[config.head];
  options.adapters = config.adapters;
  QSF_ASSIGN_OR_RETURN(options.session_adapter,
                       adapter_use_of(config.adapter, config.adapter_scale));
  options.draft_model_path = config.draft_model;
  options.n_sequences = static_cast<std::uint32_t>(config.max_sessions);
  options.kv_positions = static_cast<std::uint32_t>(config.kv_positions);
  options.grammar = {.max_grammars = static_cast<std::uint32_t>(config.max_grammars),
                     .mask_bytes = config.grammar_mask_bytes};
  options.prefix_cache = config.prefix_cache;
  options.reuse_answers = config.reuse_answers;
  options.prefix_folder = config.prefix_folder;
  options.prefix_folder_bytes = config.prefix_folder_bytes;
  options.ram_budget_bytes = std::uint64_t{config.ram_budget_mb} * kMegabyte;
  budget_refusal = {};
  options.budget_refusal = &budget_refusal;
  options.preload = config.preload;
  options.kv_spill_path = config.kv_spill;
  options.caller_memory = config.memory;
  switch (config.read_path) {
    case QSF_READ_URING: options.read_path = ReadPath::kUring; break;
    case QSF_READ_PREAD: options.read_path = ReadPath::kPread; break;
    case QSF_READ_MMAP: options.read_path = ReadPath::kMmap; break;
    default: break;
  }
  return options;
}

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

const char* qsf_version(void) {
  return QSF_VERSION;
}
int qsf_abi_version(void) {
  return QSF_ABI_VERSION;
}

QSFConfig* qsf_config_default(void) {
  return new (std::nothrow) QSFConfig();
}
void qsf_config_free(QSFConfig* config) {
  delete config;
}
void qsf_config_set_ram_budget(QSFConfig* config, size_t megabytes) {
  if (config != nullptr) config->ram_budget_mb = megabytes;
}
void qsf_config_set_threads(QSFConfig* config, int num_threads) {
  if (config != nullptr) config->threads = num_threads;
}
void qsf_config_set_max_seq_len(QSFConfig* config, int max_seq_len) {
  if (config != nullptr) config->max_seq_len = max_seq_len;
}
void qsf_config_set_quality(QSFConfig* config, float quality) {
  if (config != nullptr) config->quality = quality;
}
void qsf_config_set_kv_type(QSFConfig* config, qsf_kv_type type) {
  if (config == nullptr) return;
  // C may pass any number. It is copied as bytes, since reading a C++ enumerator out of range is
  // undefined.
  static_assert(sizeof type == sizeof config->k_type && sizeof type == sizeof config->v_type);
  std::memcpy(&config->k_type, &type, sizeof type);
  std::memcpy(&config->v_type, &type, sizeof type);
}
void qsf_config_set_kv_types(QSFConfig* config, qsf_kv_type keys, qsf_kv_type values) {
  if (config == nullptr) return;
  std::memcpy(&config->k_type, &keys, sizeof keys);  // as above
  std::memcpy(&config->v_type, &values, sizeof values);
}
void(qsf_h2o_options_init)(qsf_h2o_options* options) {
  init_struct(default_h2o_options(), kKnownSizes<qsf_h2o_options>.front(), options);
}
void qsf_h2o_options_init_sized(qsf_h2o_options* options, size_t struct_size) {
  init_struct(default_h2o_options(), struct_size, options);
}
void qsf_config_set_attention(QSFConfig* config, qsf_attention attention,
                              const qsf_h2o_options* options) {
  if (config == nullptr) return;
  std::memcpy(&config->attention, &attention, sizeof attention);  // as with qsf_kv_type
  config->h2o = default_h2o_options();
  config->h2o_read = qsf::ok_status();
  if (options != nullptr) {
    const qsf_code code = guarded(nullptr, [&] {
      config->h2o_read = read_struct(options, "h2o options", config->h2o);
      return qsf::ok_status();
    });
    if (code != QSF_OK) config->h2o.chunk = -1;  // without memory for the error, any refusal
  } else if (config->attention == QSF_ATTENTION_SYMMETRIC) {
    config->h2o.local = 0;
  }
  std::memcpy(&config->h2o_ranking, &config->h2o.ranking, sizeof config->h2o_ranking);
}
void qsf_config_set_kv_policy(QSFConfig* config, qsf_kv_policy policy, int window, int sinks,
                              int heavy) {
  if (config == nullptr) return;
  static_assert(sizeof policy == sizeof config->kv_policy);
  std::memcpy(&config->kv_policy, &policy, sizeof policy);  // as with qsf_kv_type
  config->kv_window = window;
  config->kv_sinks = sinks;
  config->kv_heavy = heavy;
}
void qsf_config_set_rope_reindex(QSFConfig* config, int rope_reindex) {
  if (config != nullptr) config->rope_reindex = rope_reindex != 0;
}
void qsf_config_set_io(QSFConfig* config, qsf_read_path path) {
  if (config == nullptr) return;
  static_assert(sizeof path == sizeof config->read_path);
  std::memcpy(&config->read_path, &path, sizeof path);  // as with qsf_kv_type
}
void qsf_config_set_kv_spill(QSFConfig* config, const char* path) {
  if (config == nullptr) return;
  const qsf_code code = guarded(nullptr, [&] {
    config->kv_spill = path == nullptr ? "" : path;
    return qsf::ok_status();
  });
  config->kv_spill_lost = code != QSF_OK;
}
void qsf_config_set_preload(QSFConfig* config, int preload) {
  if (config != nullptr) config->preload = preload != 0;
}
void qsf_config_set_exact(QSFConfig* config, int exact) {
  if (config != nullptr) config->exact = exact != 0;
}
void qsf_config_set_pin(QSFConfig* config, int pin) {
  if (config != nullptr) config->pin = pin != 0;
}
void qsf_config_set_experts(QSFConfig* config, int experts, float margin) {
  if (config == nullptr) return;
  config->experts = experts;
  config->expert_preference = margin;
}
void qsf_config_set_speculation(QSFConfig* config, qsf_speculation kind, int max_drafts) {
  if (config == nullptr) return;
  static_assert(sizeof kind == sizeof config->speculation);
  std::memcpy(&config->speculation, &kind, sizeof kind);  // as with qsf_kv_type
  config->max_drafts = max_drafts;
}
void qsf_config_set_draft_model(QSFConfig* config, const char* path) {
  if (config == nullptr) return;
  const qsf_code code = guarded(nullptr, [&] {
    config->draft_model = path == nullptr ? "" : path;
    return qsf::ok_status();
  });
  config->draft_model_lost = code != QSF_OK;
}
void qsf_config_set_head(QSFConfig* config, qsf_head head) {
  if (config == nullptr) return;
  static_assert(sizeof head == sizeof config->head);
  std::memcpy(&config->head, &head, sizeof head);  // as with qsf_kv_type
}
void qsf_config_set_rows_per_pass(QSFConfig* config, int rows) {
  if (config != nullptr) config->rows_per_pass = rows;
}
void qsf_config_set_max_sessions(QSFConfig* config, int sessions) {
  if (config != nullptr) config->max_sessions = sessions;
}
void qsf_config_set_kv_positions(QSFConfig* config, int positions) {
  if (config != nullptr) config->kv_positions = positions;
}
void qsf_config_set_log_callback(QSFConfig* config, QSFLogCallback callback, void* user_data) {
  if (config == nullptr) return;
  config->log = callback;
  config->log_user = user_data;
}
void qsf_config_set_error_callback(QSFConfig* config, QSFErrorCallback callback, void* user_data) {
  if (config == nullptr) return;
  config->error = callback;
  config->error_user = user_data;
}
void qsf_config_set_progress_callback(QSFConfig* config, QSFProgressCallback callback,
                                      void* user_data) {
  if (config == nullptr) return;
  config->progress = callback;
  config->progress_user = user_data;
}

qsf_code qsf_engine_open(const char* model_path, const QSFConfig* config, QSFEngine** engine,
                         qsf_error* error) {
  return guarded(error, [&] { return open_engine(model_path, config, engine); });
}

int qsf_plan_get_refusal(uint64_t* needed_bytes, uint64_t* budget_bytes) {
  if (needed_bytes != nullptr) *needed_bytes = budget_refusal.needed_bytes;
  if (budget_bytes != nullptr) *budget_bytes = budget_refusal.budget_bytes;
  return budget_refusal.needed_bytes != 0 ? 1 : 0;
}

QSFEngine* qsf_load(const char* model_path, QSFConfig* config) {
  QSFEngine* engine = nullptr;
  guarded_with_callback(config, [&] { return open_engine(model_path, config, &engine); });
  return engine;
}

void qsf_free(QSFEngine* engine) {
  if (engine == nullptr) return;
  if (engine->in_call.load(std::memory_order_acquire)) {
    engine->freed = true;
  } else {
    delete engine;
  }
}

void qsf_engine_cancel(QSFEngine* engine) {
  if (engine != nullptr) engine->engine->cancel();
}

qsf_code qsf_engine_model_info(const QSFEngine* engine, qsf_model_info* info, qsf_error* error) {
  return guarded(error, [&] {
    if (engine == nullptr) return null_argument("engine");
    return write_struct(model_info(*engine), "info", info);
  });
}

qsf_code qsf_engine_get_stats(const QSFEngine* engine, qsf_engine_stats* stats, qsf_error* error) {
  return guarded(error, [&] {
    if (engine == nullptr) return null_argument("engine");
    return write_struct(engine_stats(*engine), "stats", stats);
  });
}

void qsf_print_stats(QSFEngine* engine) {
  if (engine == nullptr) return;
  guarded(nullptr, [&] {
    print_stats(*engine);
    return qsf::ok_status();
  });
}
