// SPDX-License-Identifier: MIT
//
// The options of an engine that several programs share: how they are declared, checked together and
// handed to the library. Defaults are those of include/qsf/qsf.h.

#ifndef QSF_TOOLS_COMMON_ENGINE_OPTIONS_H_
#define QSF_TOOLS_COMMON_ENGINE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qsf/qsf.h"
#include "tools/common/option_parser.h"

namespace qsf_tools {

// --kv-type, --kv-type-k, --kv-type-v.
struct KvTypeChoice {
  std::string both = "f16";
  std::string keys_alone;  // empty: as `both`
  std::string values_alone;

  const std::string& keys() const { return keys_alone.empty() ? both : keys_alone; }
  const std::string& values() const { return values_alone.empty() ? both : values_alone; }
  bool is_default() const { return keys() == "f16" && values() == "f16"; }
  // "f16", or "8 for keys, 2 for values".
  std::string text() const;
};

// --kv-policy and its numbers.
struct KvPolicyChoice {
  std::string policy = "full";
  std::optional<int> window;  // none: the default, and so below
  std::optional<int> sinks;
  std::optional<int> heavy;
  bool rope_reindex = false;

  bool is_h2o() const { return policy == "h2o"; }
  int window_or_default() const { return window.value_or(1024); }
  int sinks_or_default() const { return sinks.value_or(4); }
  int heavy_or_default() const { return heavy.value_or(256); }
  bool is_default() const {
    return policy == "full" && !window && !sinks && !heavy && !rope_reindex;
  }
};

// --attention and its numbers.
struct AttentionChoice {
  std::string attention = "full";
  std::optional<int> local;  // none: the default of qsf_h2o_options_init, and so below
  std::optional<int> heavy;
  std::optional<int> chunk;
  std::optional<int> sinks;
  std::string score;               // empty: sum
  std::optional<int> mask_chunk;   // of chunked; none: the same
  std::optional<int> mask_window;  // of symmetric; none: 0

  qsf_attention kind() const;
  bool is_h2o() const { return attention == "h2o"; }
  bool has_sizes() const { return local || heavy || chunk || sinks || !score.empty(); }
  bool is_default() const {
    return attention == "full" && !has_sizes() && !mask_chunk && !mask_window;
  }
  // The options of the kind.
  qsf_h2o_options h2o() const;
};

// --lora and --lora-scale.
struct AdapterChoice {
  std::vector<std::string> files;  // FILE or NAME=FILE
  std::optional<double> scale;     // none: 1

  float scale_or_default() const { return static_cast<float>(scale.value_or(1.0)); }
};

// --rank-window and --force-ranks.
struct RankChoice {
  int window = 0;  // layers that a rank computes at once; 0: chosen
  bool force = false;
  bool is_default() const { return window == 0 && !force; }
};

// All of them.
struct EngineOptions {
  int threads = 0;                     // 0: one for each physical core
  int max_seq_len = 0;                 // 0: the default of the library
  std::uint64_t ram_budget_bytes = 0;  // 0: the memory that the machine has to spare
  int rows_per_pass = 0;               // 0: automatic
  int sequences = 1;
  int kv_positions = 0;  // of all sequences; 0: the default of the library
  std::string read_path = "auto";
  std::string kv_spill;  // empty: the KV cache is in memory
  bool exact = false;
  bool pin = false;
  float quality = 1.0F;  // share of the layers
  int experts = 0;       // that a row takes; 0: the model's
  std::string speculate = "auto";
  std::string head = "certified";
  int max_drafts = 0;          // of a pass; 0: the default of the library
  std::string draft;           // the path of a draft model; empty: none
  float expert_margin = 0.0F;  // of substitutes in memory; 0: none
  AdapterChoice adapters;
  RankChoice ranks;
  KvTypeChoice kv_types;
  KvPolicyChoice kv_policy;
  AttentionChoice attention;

  bool is_default() const;
};

// Declare options. `group` is the heading of the help that they stand below.
inline constexpr const char* kOptionsGroup = "Options";
void add_threads_option(OptionParser& parser, int& threads,
                        const std::string& group = kOptionsGroup);
void add_threads_option(OptionParser& parser, std::uint32_t& threads,
                        const std::string& group = kOptionsGroup);
// `whose` memory it is, for the help.
void add_ram_budget_option(OptionParser& parser, std::uint64_t& bytes, const std::string& group,
                           const std::string& whose);
void add_exact_option(OptionParser& parser, bool& exact, const std::string& group = kOptionsGroup);
void add_quality_option(OptionParser& parser, float& quality,
                        const std::string& group = kOptionsGroup);
void add_experts_option(OptionParser& parser, int& experts,
                        const std::string& group = kOptionsGroup);
void add_expert_margin_option(OptionParser& parser, float& margin,
                              const std::string& group = kOptionsGroup);
// --speculate, --max-drafts and --draft.
void add_speculation_options(OptionParser& parser, EngineOptions& options,
                             const std::string& group = kOptionsGroup);
void add_head_option(OptionParser& parser, std::string& head,
                     const std::string& group = kOptionsGroup);
// --lora and --lora-scale.
void add_lora_options(OptionParser& parser, AdapterChoice& choice,
                      const std::string& group = kOptionsGroup);
// --rank-window and --force-ranks.
void add_rank_options(OptionParser& parser, RankChoice& choice,
                      const std::string& group = kOptionsGroup);
void add_pin_option(OptionParser& parser, bool& pin, const std::string& group = kOptionsGroup);
void add_read_path_option(OptionParser& parser, std::string& path,
                          const std::string& group = kOptionsGroup);
void add_i2s_layout_option(OptionParser& parser, std::string& layout,
                           const std::string& group = kOptionsGroup);
void add_kv_type_options(OptionParser& parser, KvTypeChoice& choice,
                         const std::string& group = kOptionsGroup);
void add_kv_policy_options(OptionParser& parser, KvPolicyChoice& choice,
                           const std::string& group = kOptionsGroup);
void add_attention_options(OptionParser& parser, AttentionChoice& choice,
                           const std::string& group = kOptionsGroup);
// --sequences and --kv-positions, of programs that plan for many.
void add_sequence_options(OptionParser& parser, EngineOptions& options,
                          const std::string& group = kOptionsGroup);
// All but these two and --i2s-layout.
void add_engine_options(OptionParser& parser, EngineOptions& options,
                        const std::string& group = kOptionsGroup);

// Return what is wrong with values that are right one by one; empty for nothing.
std::string check_kv_policy(const KvPolicyChoice& choice);
std::string check_attention(const AttentionChoice& choice);
std::string check_engine_options(const EngineOptions& options);
// The same for programs whose sessions take the only adapter.
std::string check_only_adapter(const AdapterChoice& choice);

// Hand choices that the options and the checks accept to the library.
qsf_kv_type kv_type_of(const std::string& value);
qsf_read_path read_path_of(const std::string& value);
void set_ram_budget(QSFConfig* config, std::uint64_t bytes);
void set_kv_types(QSFConfig* config, const KvTypeChoice& choice);
void set_kv_policy(QSFConfig* config, const KvPolicyChoice& choice);
void set_attention(QSFConfig* config, const AttentionChoice& choice);
// The adapters alone: which one a session takes is up to the program.
void add_adapters(QSFConfig* config, const AdapterChoice& choice);
// The only adapter, where there is one, for every session.
void use_adapter(QSFConfig* config, const AdapterChoice& choice);
void set_engine_options(QSFConfig* config, const EngineOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_ENGINE_OPTIONS_H_
