// SPDX-License-Identifier: MIT
//
// Checks of an engine's options, before anything is planned.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine_plan.h"
#include "engine/speculation.h"
#include "format/kept_layers.h"
#include "kv/kv_policy.h"
#include "model/architecture.h"
#include "model/layer_cut.h"
#include "platform/threads.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMaxSequences = 256;
constexpr std::uint32_t kMaxGrammars = 1024;
constexpr std::uint64_t kMaxCallerBytes = std::uint64_t{1} << 50;
constexpr std::size_t kMaxCallerRegions = 64;

// Memory sets and heavy hitters need layers that attend to the whole context, and their attention
// has no scores without a value.
Status check_layers(const char* option, const EngineOptions& options, const ModelSpec& spec) {
  if (spec.has_latent()) {
    return unsupported("%s: this model has latent attention; use full", option);
  }
  if (has_attention_sinks(spec)) {
    return unsupported("%s: this model's heads have sinks, scores without a value; use full",
                       option);
  }
  if (!spec.layer_heads.empty() || spec.shares_kv()) {
    return unsupported("%s: this model's layers %s; use full", option,
                       spec.shares_kv() ? "use keys and values of other layers"
                                        : "have heads of different widths");
  }
  const std::uint32_t context = asked_context(options, spec);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const std::uint32_t window = spec.window_of(layer);
    if (window == 0 || window >= context) continue;
    return unsupported(
        "%s: layer %u of this model attends to the last %u of %u positions only; use full, or a "
        "context of at most %u",
        option, layer, window, context, window);
  }
  return ok_status();
}

Status check_attention(const EngineOptions& options, const ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(validate(options.attention));
  if (options.attention == AttentionKind::kStandard || spec.bidirectional) return ok_status();
  const char* const kind = attention_kind_name(options.attention).data();
  if (options.attention == AttentionKind::kSparsePrefill) {
    QSF_RETURN_IF_ERROR(validate(options.sparse_prefill));
  } else {
    QSF_RETURN_IF_ERROR(validate(options.prompt_mask));
  }
  if (options.kv_policy.policy != KvPolicy::kFull) {
    return unsupported(
        "attention %s with kv policy %s: that policy already limits the positions a prompt attends "
        "to; use kv policy full, or full attention",
        kind, std::string(kv_policy_name(options.kv_policy.policy)).c_str());
  }
  if (options.attention == AttentionKind::kChunked) return ok_status();
  if (options.attention == AttentionKind::kSymmetric &&
      spec.positions == PositionEncoding::kAlibi) {
    return unsupported(
        "attention symmetric: this model's ALiBi positions have no distance to later "
        "tokens; use full");
  }
  return check_layers((std::string("attention ") + kind).c_str(), options, spec);
}

// A state holds all rows before it, and none of them can be taken out of it.
Status check_state(const EngineOptions& options, const ModelSpec& spec) {
  if (!spec.has_state()) return ok_status();
  constexpr const char* kModel = "this model has layers with a state, which holds every token";
  if (options.kv_policy.policy != KvPolicy::kFull) {
    return unsupported("kv policy %s: %s; use full",
                       std::string(kv_policy_name(options.kv_policy.policy)).c_str(), kModel);
  }
  if (options.attention != AttentionKind::kStandard) {
    return unsupported("attention %s: %s; use full",
                       std::string(attention_kind_name(options.attention)).c_str(), kModel);
  }
  return ok_status();
}

// What a rejected row adds to a state or to the sums of attention cannot be taken back.
Status check_drafts(const EngineOptions& options, const ModelSpec& spec) {
  if (options.max_drafts > kMaxDrafts) {
    return invalid_argument("max_drafts: %u rows, expected at most %u", options.max_drafts,
                            kMaxDrafts);
  }
  const bool wants_model = options.speculation == SpeculationKind::kDraft;
  if (wants_model && options.draft_model_path.empty()) {
    return invalid_argument("speculation draft: there is no draft model; name one, or use auto");
  }
  if (!options.draft_model_path.empty() && !wants_model &&
      options.speculation != SpeculationKind::kAuto) {
    return invalid_argument("draft model %s: needs speculation auto or draft",
                            options.draft_model_path.c_str());
  }
  if (options.max_drafts == 0) return ok_status();
  const char* const obstacle = speculation_obstacle(options, spec);
  if (obstacle == nullptr) return ok_status();
  return unsupported("speculation: %s, rejected ones too; turn it off", obstacle);
}

Status check_reindexed(const EngineOptions& options, const ModelSpec& spec) {
  if (spec.positions != PositionEncoding::kRope) {
    return unsupported(
        "rope_reindex: this model has %s positions, not rotary ones, so its texts end at %u "
        "positions; leave rope_reindex out",
        std::string(position_encoding_name(spec.positions)).c_str(), spec.max_positions);
  }
  if (spec.chunked_windows) {
    return unsupported("rope_reindex: this model attends by chunks of positions; leave it out");
  }
  const KvPolicyOptions& policy = options.kv_policy;
  const std::uint32_t distance = policy.sinks + policy.window;
  if (distance > spec.max_positions) {
    return invalid_argument(
        "rope_reindex: %u sinks and a window of %u are %u positions, but the model was trained for "
        "%u; use fewer",
        policy.sinks, policy.window, distance, spec.max_positions);
  }
  const std::uint32_t most = most_positions(options, spec);
  if (options.max_context <= most) return ok_status();
  return invalid_argument(
      "context: %u positions, but this model's rotation is accurate up to %u; use fewer",
      options.max_context, most);
}

Status check_context(const EngineOptions& options, const ModelSpec& spec) {
  if (options.kv_policy.rope_reindex) return check_reindexed(options, spec);
  if (options.max_context <= spec.max_positions) return ok_status();
  return invalid_argument(
      "context: %u positions, but the model was trained for %u; use fewer%s", options.max_context,
      spec.max_positions,
      spec.positions == PositionEncoding::kRope ? ", or kv policy window with rope_reindex" : "");
}

Status check_caller_memory(const std::vector<CallerMemory>& regions) {
  if (regions.size() > kMaxCallerRegions) {
    return invalid_argument("memory of the caller: %zu regions, expected at most %zu",
                            regions.size(), kMaxCallerRegions);
  }
  std::uint64_t left = kMaxCallerBytes;
  for (const CallerMemory& region : regions) {
    if (region.name.empty()) {
      return invalid_argument("memory of the caller: a region of %llu bytes has no name",
                              static_cast<unsigned long long>(region.bytes));
    }
    if (region.bytes > left) {
      return invalid_argument(
          "memory of the caller: %s has %llu bytes, expected at most %llu in all regions",
          region.name.c_str(), static_cast<unsigned long long>(region.bytes),
          static_cast<unsigned long long>(kMaxCallerBytes));
    }
    left -= region.bytes;
  }
  return ok_status();
}

}  // namespace

Status check_cut(const LayerCut& cut, const ModelSpec& spec) {
  if (const char* const bond = bond_of_layers(spec); bond != nullptr) {
    return unsupported("this model cannot be cut between layers: %s; run it in one process", bond);
  }
  if (spec.mtp_block || spec.embeds_only) {
    return unsupported(
        "this model is a part of another one, or embeds texts; run it in one "
        "process");
  }
  const auto ascends = [](const std::vector<std::uint32_t>& v) {
    return !v.empty() && std::adjacent_find(v.begin(), v.end(), std::greater_equal<>()) == v.end();
  };
  if (!ascends(cut.layers) || cut.layers.back() >= spec.n_layers) {
    return invalid_argument("layers of a cut: expected ascending ones below %u, at least one",
                            spec.n_layers);
  }
  if (!ascends(cut.window_ends) || cut.window_ends.front() == 0 ||
      cut.window_ends.back() != cut.layers.size()) {
    return invalid_argument("windows of a cut: expected ends from 1 to %zu, ascending",
                            cut.layers.size());
  }
  if (cut.has_ends && cut.layers.front() != 0) {
    return invalid_argument("cut: begins with layer %u, but the first one follows the embedding",
                            cut.layers.front());
  }
  if (cut.relay == nullptr) return invalid_argument("cut: expected a relay");
  return ok_status();
}

Status check_options(const EngineOptions& options, const ModelSpec& spec) {
  if (options.n_threads > kMaxThreads) {
    return invalid_argument("threads: %u, expected 0 (automatic) to %u", options.n_threads,
                            kMaxThreads);
  }
  QSF_RETURN_IF_ERROR(validate(options.kv_policy));
  QSF_RETURN_IF_ERROR(check_context(options, spec));
  if (options.kv_policy.policy == KvPolicy::kH2o) {
    QSF_RETURN_IF_ERROR(check_layers("kv policy h2o", options, spec));
  }
  if (options.n_sequences == 0 || options.n_sequences > kMaxSequences) {
    return invalid_argument("sequences: %u, expected 1 to %u", options.n_sequences, kMaxSequences);
  }
  if (!options.kv_spill_path.empty() && spec.shares_kv()) {
    return unsupported("kv_spill: layers of this model share keys and values; use memory");
  }
  if (options.layer_hook.see != nullptr && spec.has_streams()) {
    return unsupported(
        "layer hook: layers of this model have several residual streams; leave it "
        "out");
  }
  if (options.h2o_ranker.rank != nullptr && options.kv_policy.policy != KvPolicy::kH2o) {
    return invalid_argument("h2o ranker: kv policy %s ranks no positions; use h2o",
                            kv_policy_name(options.kv_policy.policy).data());
  }
  QSF_RETURN_IF_ERROR(check_state(options, spec));
  QSF_RETURN_IF_ERROR(check_drafts(options, spec));
  QSF_RETURN_IF_ERROR(check_caller_memory(options.caller_memory));
  if (options.grammar.max_grammars > kMaxGrammars || options.grammar.mask_bytes > kMaxCallerBytes) {
    return invalid_argument("grammars: %u and %llu bytes of masks, expected at most %u and %llu",
                            options.grammar.max_grammars,
                            static_cast<unsigned long long>(options.grammar.mask_bytes),
                            kMaxGrammars, static_cast<unsigned long long>(kMaxCallerBytes));
  }
  if (options.cut != nullptr && options.max_passes_in_flight != 1) {
    return unsupported("passes in flight: %u, expected 1 with layers in other processes",
                       options.max_passes_in_flight);
  }
  if (options.cut != nullptr && options.expert_preference != 0.0F) {
    return unsupported(
        "expert preference: what is in memory differs between processes; leave it "
        "out");
  }
  if (options.max_passes_in_flight == 0 || options.max_passes_in_flight > kMaxSequences) {
    return invalid_argument("passes in flight: %u, expected 1 to %u", options.max_passes_in_flight,
                            kMaxSequences);
  }
  QSF_RETURN_IF_ERROR(check_prefix_cache(options, kv_shape(spec, options).page_bytes()));
  return check_attention(options, spec);
}

}  // namespace qsf
