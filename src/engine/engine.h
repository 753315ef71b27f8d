// SPDX-License-Identifier: MIT
//
// The engine: one loaded model with its memory, threads and tokenizer, and the sequences it runs.
//
// The memory plan computes everything large before work starts, and one arena holds it; after
// open() a pass allocates nothing. One thread at a time may use an Engine and its Sessions; only
// cancel() may be called from any thread.

#ifndef QSF_ENGINE_ENGINE_H_
#define QSF_ENGINE_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/log_probs.h"
#include "engine/sampler.h"
#include "format/model_spec.h"
#include "grammar/grammar_memory.h"
#include "io/file_ops.h"
#include "io/read_device.h"
#include "kv/h2o_ranker.h"
#include "kv/kv_policy.h"
#include "kv/prefix_folder.h"
#include "kv/prefix_tree.h"
#include "kv/row.h"
#include "model/head_mode.h"
#include "model/logits_sink.h"
#include "ops/operator_times.h"
#include "quant/kv_type.h"
#include "stream/pager_stats.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class Generation;     // generation.h
class GrammarEngine;  // grammar/grammar_engine.h
class Session;
class LayerView;         // layer_view.h
class OperatorObserver;  // ops/operator_observer.h
class RoutingHook;       // model/expert_router.h
struct BudgetRefusal;    // budget.h
struct EnginePlan;       // engine_plan.h
struct LayerCut;         // model/layer_cut.h
struct PassMessage;      // pass_message.h
struct PromptProgress;   // pass.h

// How the tokens of further rows of a generating sequence are guessed (speculation.h). No kind
// changes a text.
enum class SpeculationKind : std::uint8_t {
  kOff,
  // By look-up where that is possible, and by a draft model where one is given, whatever pays by
  // what passes take here.
  kAuto,
  kLookup,  // by look-up, as many as allowed behind each match
  kDraft,   // by EngineOptions::draft_model_path or by look-up, as many as allowed
};

// Numbers the passes of an engine from 1.
using PassId = std::uint64_t;

// Memory of the caller that the budget counts.
struct CallerMemory {
  std::string name;
  std::string reason;
  std::uint64_t bytes = 0;
};

// A file of docs/format-adapter.md.
struct AdapterFile {
  std::string path;
  std::string name;  // empty: the one in the file
};

// A LoRA adapter in memory.
struct AdapterInfo {
  std::string name;
  std::uint64_t fingerprint = 0;  // AdapterReader::fingerprint()
  std::uint64_t bytes = 0;        // of its values
  std::uint32_t max_rank = 0;
};

// The adapter of a session: its rows add to products what the adapter gives, times `scale`.
struct AdapterUse {
  std::uint16_t number = 0;  // from 1 on, in the order of EngineOptions::adapters; 0: none
  float scale = 1.0F;        // beside that of the adapter itself
  friend bool operator==(const AdapterUse&, const AdapterUse&) = default;
};

// Sees every pass before it is computed, to have other engines execute() it. A failure ends the
// pass. Requires  EngineOptions::record_passes
struct PassHook {
  Status (*announce)(const PassMessage& pass, void* user) = nullptr;
  void (*end)(void* user) = nullptr;  // the pass has ended here, with or without an error
  void* user = nullptr;
};

// Sees every layer of a pass when it is computed, and may cancel the engine.
struct LayerHook {
  void (*see)(const LayerView& view, void* user) = nullptr;
  void* user = nullptr;
};

struct EngineOptions {
  unsigned n_threads = 0;  // 0: the physical cores at hand
  // Context length in positions; 0: the trained context length, at most 4,096 with KvPolicy::kFull.
  std::uint32_t max_context = 0;
  std::uint32_t rows_per_pass = 0;  // 0: chosen from the context; results do not depend on it
  KvType k_type = KvType::kF16;     // how keys are stored, and values
  KvType v_type = KvType::kF16;
  KvPolicyOptions kv_policy;                           // which positions are kept
  AttentionKind attention = AttentionKind::kStandard;  // of prompts
  SparsePrefillOptions sparse_prefill;                 // of AttentionKind::kSparsePrefill
  PromptMaskOptions prompt_mask;                       // of kChunked and kSymmetric
  bool exact = false;  // products and attention take f32 rows, never int8 or bf16
  // Experts that a row takes of a mixture of experts, the best ones; 0: the model's. Fewer change
  // the results.
  std::uint32_t experts_used = 0;
  // A row that generates takes an expert in memory in place of a missing one whose router score is
  // larger by at most this, never of the two best. The text then depends on what is in memory.
  float expert_preference = 0.0F;
  // How rows that generate read the output head, where a file has a sketch of it and all weights
  // stay in memory; elsewhere kCertified is kFull. kApproximate changes texts.
  HeadMode head_mode = HeadMode::kCertified;
  // Adapters that sessions may use, all of them in memory and of different names.
  std::vector<AdapterFile> adapters;
  AdapterUse session_adapter;  // of a session until Session::set_adapter()
  // The share of the layers that rows pass, above 0: those of the least importance are left out,
  // neither read nor in memory, but for the first two and the last two. Results change below 1.
  float quality = 1.0F;
  bool pin = false;               // a physical core for each thread, the opening one included
  std::uint32_t n_sequences = 1;  // sessions that may exist at once
  SpeculationKind speculation = SpeculationKind::kOff;
  // Drafted rows of a pass, of all sequences together; at most kMaxDrafts. 0: with speculation 15,
  // with kAuto fewer in a small budget.
  std::uint32_t max_drafts = 0;
  // A .qsf file of the same vocabulary that drafts too, for kAuto and kDraft; empty: none.
  std::string draft_model_path;
  // Positions that the KV cache holds for all sequences together, in pages of kKvPageSlots. 0: a
  // whole context for one sequence, and kDefaultReserve for each of the others.
  std::uint32_t kv_positions = 0;
  std::uint32_t max_passes_in_flight = 1;  // between begin_step() and end_step()
  bool record_passes = false;              // for message_of()
  // Prompts of equal GenerateOptions::prefix_key share pages of the KV cache where they begin
  // alike. Only with KvPolicy::kFull, and full or chunked attention; a model with layers that have
  // a state goes without it, with a warning.
  bool prefix_cache = false;
  // Shares pages with generated rows too. A text may then depend on what is in the prefix cache.
  bool reuse_answers = false;
  // A folder for pages that leave the prefix cache, in files of at most prefix_folder_bytes in all;
  // empty: they are dropped. Each engine needs one of its own. The files are removed at its end.
  std::string prefix_folder;
  std::uint64_t prefix_folder_bytes = 0;
  // Limit of the memory of the whole process; 0: the memory that the machine and its control groups
  // have free.
  std::uint64_t ram_budget_bytes = 0;
  BudgetRefusal* budget_refusal = nullptr;  // receives the sizes of a limit that is too small
  std::vector<CallerMemory> caller_memory;  // taken after open(); regions of the plan
  GrammarMemory grammar;                    // of SamplingOptions::grammar; none by default
  std::optional<ReadPath> read_path;        // none: the best that works
  // A file to be created for the KV cache, of which memory then holds two layers. Empty: the KV
  // cache stays in memory.
  std::string kv_spill_path;
  // False: open() returns before the resident weights are read; the first pass waits for them.
  bool preload = true;
  // The layers that this engine runs, where others run the rest; outlives the engine. An engine
  // with the ends makes passes, as one of all layers does; others execute() its messages.
  const LayerCut* cut = nullptr;
  PassHook pass_hook;
  OperatorObserver* observer = nullptr;  // of every operator; outlives the engine
  LayerHook layer_hook;                  // not for models with residual streams
  H2oRanker h2o_ranker;                  // of KvPolicy::kH2o; null: by mean attention
  FileOps* file_ops = nullptr;  // outlives the engine; null: the calls of the operating system
  LogSink log;
  void (*on_load_progress)(std::uint64_t done_bytes, std::uint64_t total_bytes,
                           void* user) = nullptr;
  void* load_progress_user = nullptr;
};

// Counters since open(); times in nanoseconds.
struct EngineStats {
  std::uint64_t load_ns = 0;
  std::uint64_t weight_bytes_read = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t prompt_passes = 0;  // each reads the streamed weights once
  std::uint64_t prompt_ns = 0;
  std::uint64_t generated_tokens = 0;  // drafts that were not accepted left out
  std::uint64_t generate_ns = 0;
  std::uint64_t drafted_tokens = 0;         // by speculation
  std::uint64_t accepted_tokens = 0;        // of them
  std::uint64_t model_drafted_tokens = 0;   // of drafted_tokens, those of a draft model
  std::uint64_t model_accepted_tokens = 0;  // of them
  std::uint64_t draft_ns = 0;               // of that model, a part of generate_ns
  std::uint64_t matmul_ns = 0;
  std::uint64_t attention_ns = 0;
  std::uint64_t other_ns = 0;
  std::uint64_t sample_ns = 0;
  OperatorProfile
      operators;  // the parts of matmul_ns, attention_ns and other_ns, embedding excluded
  std::uint64_t read_wait_ns = 0;      // waiting for the disk, a part of the times above
  std::uint64_t read_ns = 0;           // with at least one read in flight
  std::uint64_t unpack_ns = 0;         // decompressing and re-laying, on the reading threads
  std::uint64_t kv_bytes_read = 0;     // of a KV cache in a file
  std::uint64_t kv_bytes_written = 0;  // the same
  HeadCounts head;                     // 0 without a sketch in use
};

inline constexpr std::size_t kMaxPrefixKeyBytes = 256;

// Tokens for which KV pages are reserved, unless fewer can be generated.
inline constexpr std::uint32_t kDefaultReserve = 1024;

// A generated token with what it completed. Valid during the call that receives it.
struct GeneratedToken {
  TokenId token = 0;
  bool is_rest = false;   // text held back until after the last token; no further token
  bool is_end = false;    // ends the text and has none: neither counted nor in the session
  std::string_view text;  // UTF-8, possibly empty
  float log_prob = 0.0F;  // log_probs.h; 0 unless asked for, and in the rest
  std::span<const TokenLogProb> top_log_probs;
};

struct GenerateOptions {
  std::uint32_t max_tokens = 256;
  // Tokens for which KV pages are reserved when the generation is admitted; it takes further pages
  // while any are free. 0: kDefaultReserve, or max_tokens if that is less.
  std::uint32_t reserve_tokens = 0;
  SamplingOptions sampling;
  std::vector<std::string> stop;    // stop texts: generation ends before the first one completed
  std::vector<TokenId> end_tokens;  // further end-of-text tokens beside the model's own
  bool ignore_end_of_text = false;  // the model's own are not drawn
  bool keep_special = false;        // control tokens have their text, but those that end it
  // Passes the prompt's text to on_token, token by token, once the prompt is computed.
  bool echo_prompt = false;
  // Called while the prompt is computed, with parts of the work.
  void (*on_prompt)(std::uint64_t done, std::uint64_t total, void* user) = nullptr;
  // Called for every token with the text that it completed; UTF-8, possibly empty.
  void (*on_token)(TokenId token, std::string_view text, void* user) = nullptr;
  // Log probabilities for on_generated, and how many alternatives beside the token's own; at most
  // kMaxTopLogProbs.
  bool log_probs = false;
  std::uint32_t n_top_log_probs = 0;
  // Called after on_token for generated tokens. A result other than 0 ends the generation behind
  // this token.
  int (*on_generated)(const GeneratedToken& token, void* user) = nullptr;
  bool reports_end = false;  // on_generated also receives the token that ends the text
  // Called with every token of the prompt, in order, when the rows before it are computed: without
  // text, but with its log probability and n_top_log_probs alternatives. The first one has NaN and
  // none, also in a session with tokens before it. A result other than 0 ends the generation. All
  // rows of the prompt are computed then: none come from the prefix cache or another session.
  int (*on_prompt_token)(const GeneratedToken& token, void* user) = nullptr;
  void* user = nullptr;
  // Shares the pages of the prompt with generations of the same key, of at most
  // kMaxPrefixKeyBytes, and of the same adapter; none: shares nothing.
  std::optional<std::string> prefix_key;
};

enum class StopReason { kTokenLimit, kEndOfText, kStopString, kContextFull, kCancelled, kCallback };

struct GenerateResult {
  StopReason reason = StopReason::kTokenLimit;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t generated_tokens = 0;
  std::uint32_t cached_tokens = 0;    // of the prompt, from the prefix cache or another session
  std::uint32_t drafted_tokens = 0;   // by speculation
  std::uint32_t accepted_tokens = 0;  // of them
  // The pending token: sampled and delivered, but not yet in the KV cache. The session computes it
  // before the next token that it appends. kNoToken without one.
  TokenId pending_token = kNoToken;
  std::uint64_t prompt_ns = 0;
  std::uint64_t first_token_ns = 0;
  std::uint64_t generate_ns = 0;
};

struct StepOptions {
  // Most prompt rows of the pass, or 0: rows_per_pass. A prompt that has to be one pass
  // (AttentionKind::kSymmetric) may have more.
  std::uint32_t max_prompt_rows = 0;
};

// What a step did.
struct StepCounts {
  std::size_t prompt_rows = 0;
  std::size_t generated_rows = 0;  // without drafts
  std::size_t drafted_rows = 0;
  std::size_t accepted_rows = 0;        // of them
  std::size_t n_finished = 0;           // members that have ended, in this step or before
  std::size_t n_waiting = 0;            // members left out because no KV page was free
  std::size_t n_reading = 0;            // members left out because their prompts are read
  std::size_t n_in_flight = 0;          // members left out because another pass in flight has them
  std::uint64_t pass_ns = 0;            // to compute the pass, without sampling and callbacks
  std::uint64_t read_wait_ns = 0;       // waiting for the disk, a part of pass_ns
  std::uint64_t weight_bytes_read = 0;  // from the file
};

// One token of a session, for Engine::step_sessions().
struct SessionToken {
  Session* session = nullptr;
  TokenId token = 0;
  LogitsSink* sink = nullptr;  // of the logits behind the token, as row 0; may be null
};

// Pages of the KV cache, each of kKvPageSlots positions.
struct KvPageCounts {
  std::uint32_t n_pages = 0;
  std::uint32_t n_free = 0;
  std::uint32_t n_unreserved = 0;  // free, and reserved for no generation
};

// Of the prefix cache, which counts pages of the KV cache; all 0 without one.
struct PrefixCacheStats {
  PrefixTreeStats tree;
  std::uint64_t n_continued = 0;  // generations in a session that held tokens: no look-up
  PrefixFolderStats folder;
  std::uint64_t n_folder_hits = 0;  // of the hits, those that read at least a page from the folder
  std::uint64_t n_folder_hit_tokens = 0;
};

class Engine {
 public:
  // Opens a .qsf file and loads it.
  // Fails  kNotFound, kIo, kCorrupt, kUnsupported from the file; kInvalidArgument for options out
  //        of range; kOutOfBudget when the budget is too small, naming the smallest that works, or
  //        the arena cannot be mapped
  static Result<std::unique_ptr<Engine>> open(const std::string& path,
                                              const EngineOptions& options);
  // Returns what open() would plan now, without reading a weight. The memory's rate is measured
  // where it is wanted, which takes a moment and memory.
  // Fails  as open() does before it loads
  static Result<EnginePlan> plan_file(const std::string& path, const EngineOptions& options,
                                      bool with_memory_rate = true);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelSpec& spec() const noexcept;
  const Tokenizer* tokenizer() const noexcept;  // null when the file holds none
  // Ids that may be sampled, from 0 on: at most spec().n_vocab, which may hold rows without a
  // token.
  std::uint32_t n_drawable() const noexcept;
  // Decodes tokens as a text that begins a document: valid UTF-8, U+FFFD for other bytes, nothing
  // for special tokens. Requires  tokenizer() != nullptr
  std::string decode(std::span<const TokenId> tokens) const;
  std::uint32_t max_context() const noexcept;
  std::uint64_t file_bytes() const noexcept;
  std::uint64_t n_parameters() const noexcept;
  std::string_view quant_name() const noexcept;       // "4bit", "mixed", ...
  std::string_view instruction_set() const noexcept;  // tier of the kernels in use
  unsigned n_threads() const noexcept;
  const EnginePlan& plan() const noexcept;
  EngineStats stats() const noexcept;
  // Counters of the weight pager.
  PagerStats pager_stats() const;
  // Records the tiles that are read from now on, as many as `events` has room for; an empty span
  // ends it. Requires  `events` outlives the recording
  void set_trace(std::span<TileEvent> events);
  std::size_t n_traced() const;
  // Shows the experts that rows choose to a hook; null: to none. Requires  no pass is running; the
  // hook outlives its use
  void set_routing_hook(RoutingHook* hook) noexcept;
  const LogSink& log() const noexcept;

  // Cancels the pass in progress, or the next one. Async-signal-safe.
  void cancel() noexcept;

  // The adapters of EngineOptions::adapters, in that order.
  std::span<const AdapterInfo> adapters() const noexcept;
  // Returns the number of an adapter, for AdapterUse.
  // Fails  kNotFound, listing the names that there are
  Result<std::uint16_t> find_adapter(std::string_view name) const;

  // Creates a sequence. Fails  kOutOfBudget when n_sequences exist already.
  Result<std::unique_ptr<Session>> create_session();

  // Runs one pass with the next rows of the members, in the order of step.cc. Every member
  // generates what it would alone. A member's own error (tokens, context, pages at its admission,
  // logits that are not finite) ends it alone; see Generation::status(). Allocates nothing.
  // Guarantees  on failure every member has the length from before the pass, and may be stepped
  //             again
  // Fails       kInvalidArgument: called by a callback of a step; a member is null, given twice or
  //             of another engine; kCancelled (Engine::cancel); kCorrupt or kIo from the disk
  Result<StepCounts> step(std::span<Generation* const> members, StepOptions options = {});
  // The two halves of step(): admission and plan, then the rest. Between them, further steps may
  // begin, max_passes_in_flight in all; they leave out the members that are in flight. Passes may
  // end in any order.
  // Fails  as step(); begin_step() also kInvalidArgument when as many are in flight; end_step() for
  //        a pass that is not
  Result<PassId> begin_step(std::span<Generation* const> members, StepOptions options = {});
  Result<StepCounts> end_step(PassId pass);
  // Returns the pass as a message, valid until its end_step().
  // Requires  record_passes; the pass is in flight
  PassMessage message_of(PassId pass) const;
  // Computes a pass of another engine, which has the same file and options. Logits go to `sink`,
  // which may be null; rows with logits are numbered from 0 in the order of the message.
  // Requires    all messages of that engine since its start, in order; no session in this engine
  // Guarantees  on failure the sequences have their lengths from before the pass
  // Fails       kCorrupt for a message that does not continue the sequences; and as step()
  Status execute(const PassMessage& message, LogitsSink* sink);

  // Appends one generated row to each of several sessions, in one pass: for callers that sample
  // themselves. Allocates nothing.
  // Guarantees  on failure no session has a new token
  // Fails       as Session::step() of each; kInvalidArgument for a session that is null, given
  // twice
  //             or of another engine, or for more sessions than the rows of a pass
  Status step_sessions(std::span<const SessionToken> tokens);

  KvPageCounts kv_pages() const noexcept;
  PrefixCacheStats prefix_stats() const noexcept;

  // Where grammars for this model are made, from any thread; null without EngineOptions::grammar or
  // without a tokenizer.
  GrammarEngine* grammars() noexcept;

  // Log probabilities of tokens[first..] given all before, as one window from an empty context.
  // Shapes  log_probs [tokens.size() - first]
  // Fails   kInvalidArgument, kOutOfBudget (window longer than the context), kCancelled
  Status score(std::span<const TokenId> tokens, std::size_t first, std::span<double> log_probs);

  // Whether run_layers() runs any layers of a model.
  static bool runs_in_parts(const ModelSpec& spec) noexcept {
    return !spec.has_streams() && !spec.shares_kv();
  }
  // Runs one window from an empty context through layers [first, last): from its tokens where
  // `first` is 0, else from `hidden`, the residual stream in front of layer `first`. The residual
  // stream behind layer last - 1 goes to `hidden`, and the logits of every row to `sink`, if any.
  // The observer sees these layers alone. All numbers have the bits of a pass through all layers.
  // Shapes    hidden [tokens.size(), spec().hidden]
  // Requires  first < last <= spec().n_layers; with a sink, last == spec().n_layers
  // Fails     as score
  Status run_layers(std::span<const TokenId> tokens, std::uint32_t first, std::uint32_t last,
                    std::span<float> hidden, LogitsSink* sink = nullptr);

  // Pools the rows of one window from an empty context, behind all layers and the final norm, into
  // an embedding; without a pooling as the model says, else their mean. `normalize` divides it by
  // its Euclidean length.
  // Shapes  embedding [spec().hidden]
  // Fails   as score; kCorrupt for rows that are not finite
  Status embed(std::span<const TokenId> tokens, std::optional<Pooling> pooling, bool normalize,
               std::span<float> embedding);

  // Hands out the rows of one window from an empty context, behind all layers and the final norm:
  // what the output head multiplies. Fails  as score
  Status normed_rows(std::span<const TokenId> tokens,
                     FunctionRef<void(std::span<const float> row)> take);

  struct Impl;  // engine_impl.h, for the files of engine/ and their tests
  const Impl& impl() const noexcept { return *impl_; }
  Impl& impl() noexcept { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

// One sequence: its tokens and its keys and values. Must not outlive its engine. While it has a
// generation that has not ended, it cannot be changed otherwise.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Tokens of the context, without a pending token (GenerateResult::pending_token).
  std::size_t length() const noexcept { return tokens_.size(); }
  // How many of them, from the first, are in the KV cache. Fewer than length() where a truncation
  // invalidated some; these are computed again before the next token.
  std::size_t n_computed() const noexcept;
  std::span<const TokenId> tokens() const noexcept { return tokens_; }

  // Chooses the adapter of the session's rows. A fork has that of its origin.
  // Fails  kInvalidArgument: the session has tokens or a generation, there is no such adapter, or
  //        the scale is not finite
  Status set_adapter(AdapterUse use);
  AdapterUse adapter() const noexcept;

  // Appends prompt rows; the logits after the last one go to `sink` when it is not null.
  // Fails  kInvalidArgument (no tokens, id out of range), kOutOfBudget (context), kCancelled. The
  //        session is unchanged then. But where evicted positions cannot be restored, completed
  //        passes stay: see length().
  Status prefill(std::span<const TokenId> tokens, LogitsSink* sink);
  // Appends prompt rows; the logits after each of them go to `sink`, rows numbered from 0 in this
  // call. Fails  as prefill
  Status prefill_rows(std::span<const TokenId> tokens, LogitsSink& sink);
  // Appends one generated row. Allocates nothing.
  Status step(TokenId token, LogitsSink* sink);
  // Keeps the first n_tokens tokens and drops the others, a pending token too. Under
  // AttentionKind::kSparsePrefill and KvPolicy::kH2o this may also invalidate kept tokens, which
  // are computed again as prompt rows before the next one.
  // Fails  kInvalidArgument when there are fewer, or more than longest_kept() allows
  Status truncate(std::size_t n_tokens);
  // The most tokens up to `n_tokens` that truncate() can keep: fewer, perhaps none, where positions
  // that the next row attends to were evicted.
  // Requires  n_tokens <= length()
  std::size_t longest_kept(std::size_t n_tokens) const noexcept;
  // Writes the positions that a prompt row appended now would attend to, itself excluded, in one
  // layer and KV head; ascending. Invalidated tokens are computed first.
  // Requires  layer and kv_head of the model
  // Fails     as prefill where rows have to be computed
  Status visible_positions(std::uint32_t layer, std::uint32_t kv_head,
                           std::vector<std::uint32_t>& positions);

  // Cancels the generation in progress, as Generation::cancel(); without one, the next generation.
  // Threads  any; async-signal-safe
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

  // Appends `prompt` as prompt rows and generates after it. Without a prompt it continues after the
  // pending token, else after the last token, which is computed again as a prompt row.
  Result<GenerateResult> generate(std::span<const TokenId> prompt, const GenerateOptions& options);

  // Starts a session with the same text, which shares the pages of this one until one of the two
  // appends. A generation is not copied, a pending token is.
  // Fails  kOutOfBudget when n_sequences exist, or reserved pages leave none for a copy;
  //        kUnsupported under AttentionKind::kSparsePrefill and KvPolicy::kH2o
  Result<std::unique_ptr<Session>> fork();

  // Writes tokens, keys and values, and the bytes of a conversation, to a file, whole or not at all
  // (docs/session-files.md). The same text, model and options give the same file, wherever the KV
  // cache is. Invalidated tokens are computed first.
  // Fails  kInvalidArgument without a token; kIo, kCancelled
  Status save(const std::string& path, ByteSpan chat = {});
  // Reads such a file into this session, which is empty. Rows appended then have the same bits as
  // in the saved session. `chat` receives the bytes of the conversation.
  // Guarantees  on failure the session is empty
  // Fails       kNotFound, kIo, kCorrupt, kUnsupported from the file; kInvalidArgument when the
  //             session is not empty, the file came from another model, types of keys or values,
  //             policy, attention, rotation or adapter, or holds no conversation for `chat`;
  //             kOutOfBudget when it is longer than the context; kCancelled
  Status load(const std::string& path, std::vector<std::byte>* chat = nullptr);

 private:
  friend class Engine;
  friend class Generation;
  Session(Engine::Impl& engine, SequenceId sequence);
  Status append(std::span<const TokenId> tokens, RowRole role, LogitsSink* sink,
                PromptProgress* progress = nullptr);
  Status compute_invalidated(PromptProgress* progress = nullptr);
  Status check_room(std::size_t n_tokens) const;
  Status compute_pending(LogitsSink* sink);
  // Fails  kInvalidArgument while a generation extends the session
  Status check_idle() const;
  Status truncate_to(std::size_t n_tokens);
  // Fails  kInvalidArgument where the KV cache does not have the session's rows at rest: in a pass
  //        in flight, and parked
  Status check_at_rest() const;
  // Writes the rows in the KV cache to a file, if there are any, and takes them out of it; the
  // tokens stay. Guarantees  on failure nothing has changed
  Status park_rows(const std::string& path);
  // Reads the first `n_rows` tokens' rows back from such a file. Fails  as load(); kCorrupt when it
  // holds another text. The KV cache has no rows of the session then
  Status resume_rows(const std::string& path, std::size_t n_rows);
  void end_without_pages(Generation& generation);

  Engine::Impl& engine_;
  SequenceId sequence_;
  std::vector<TokenId> tokens_;       // capacity: the context
  TokenId pending_token_ = kNoToken;  // follows tokens_; not yet in the KV cache
  Generation* generation_ = nullptr;  // the one that exists, or none
  std::atomic<bool> cancelled_{false};
};

}  // namespace qsf

#endif  // QSF_ENGINE_ENGINE_H_
