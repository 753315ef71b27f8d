// SPDX-License-Identifier: MIT

#include "tools/common/engine_options.h"
#include "tools/common/file_path.h"

#include <filesystem>
#include <limits>
#include <system_error>

namespace qsf_tools {

namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxThreads = 1024;
constexpr const char* kThreadsHelp = "Threads; default: one for each physical core";
constexpr std::uint64_t kMegabyte = 1'000'000;

std::string default_note(int value) {
  return "; default: " + std::to_string(value);
}

std::string check_file_name(const std::string& path) {
  return path.empty() ? "expected the name of a file" : "";
}

// The library takes whole megabytes.
std::string check_budget(const std::string& text) {
  const auto bytes = parse_size_in_mb(text);
  return bytes && *bytes >= kMegabyte && *bytes / kMegabyte <= static_cast<std::uint64_t>(kMaxInt)
             ? ""
             : "expected a size of at least 1 MB, such as 200, 2.6M or 4G";
}

}  // namespace

std::string KvTypeChoice::text() const {
  return keys() == values() ? keys() : keys() + " for keys, " + values() + " for values";
}

qsf_h2o_options AttentionChoice::h2o() const {
  qsf_h2o_options options;
  qsf_h2o_options_init(&options);
  options.local = local.value_or(options.local);
  options.heavy = heavy.value_or(options.heavy);
  options.chunk = chunk.value_or(options.chunk);
  options.sinks = sinks.value_or(options.sinks);
  if (!score.empty()) options.ranking = score == "mean" ? QSF_H2O_MEAN : QSF_H2O_SUM;
  if (kind() == QSF_ATTENTION_CHUNKED) options.chunk = mask_chunk.value_or(options.chunk);
  if (kind() == QSF_ATTENTION_SYMMETRIC) options.local = mask_window.value_or(0);
  return options;
}

qsf_attention AttentionChoice::kind() const {
  if (attention == "chunked") return QSF_ATTENTION_CHUNKED;
  if (attention == "symmetric") return QSF_ATTENTION_SYMMETRIC;
  return is_h2o() ? QSF_ATTENTION_H2O : QSF_ATTENTION_FULL;
}

bool EngineOptions::is_default() const {
  return threads == 0 && max_seq_len == 0 && ram_budget_bytes == 0 && rows_per_pass == 0 &&
         sequences == 1 && kv_positions == 0 && read_path == "auto" && kv_spill.empty() && !exact &&
         !pin && quality == 1.0F && adapters.files.empty() && speculate == "auto" &&
         head == "certified" && max_drafts == 0 && draft.empty() && experts == 0 &&
         expert_margin == 0.0F && ranks.is_default() && kv_types.is_default() &&
         kv_policy.is_default() && attention.is_default();
}

void add_threads_option(OptionParser& parser, int& threads, const std::string& group) {
  parser.value("-t,--threads", threads, kThreadsHelp).integer_in(1, kMaxThreads).group(group);
}
void add_threads_option(OptionParser& parser, std::uint32_t& threads, const std::string& group) {
  parser.value("-t,--threads", threads, kThreadsHelp).integer_in(1, kMaxThreads).group(group);
}

void add_exact_option(OptionParser& parser, bool& exact, const std::string& group) {
  parser
      .flag("--exact", exact,
            "Compute with 32-bit activations instead of activations rounded to 8 bits; slower")
      .group(group);
}

void add_quality_option(OptionParser& parser, float& quality, const std::string& group) {
  parser
      .value(
          "--quality", quality,
          "Trade of quality for speed: the share F of the layers that tokens pass, the most "
          "important ones as 'qsf convert --calibration' measured them. The others are not read; "
          "results change")
      .type_name("F")
      .number_in(0.001, 1.0)
      .show_default()
      .group(group);
}

void add_experts_option(OptionParser& parser, int& experts, const std::string& group) {
  parser
      .value("--experts", experts,
             "Experts that a token takes of a mixture of experts, the best ones: fewer than the "
             "model's make it faster and change its results; default: the model's")
      .integer_in(1, kMaxInt)
      .group(group);
}

void add_expert_margin_option(OptionParser& parser, float& margin, const std::string& group) {
  parser
      .value("--expert-margin", margin,
             "A generated token takes an expert in memory in place of a missing one whose router "
             "score, a logit or a sigmoid, is larger by at most X, never of the two best: faster "
             "where experts are read from the disk; changes results, from run to run as well; "
             "default: 0, never")
      .type_name("X")
      .number_in(0.0, 1e6)
      .group(group);
}

void add_rank_options(OptionParser& parser, RankChoice& choice, const std::string& group) {
  parser
      .value("--rank-window", choice.window,
             "With several processes that mpirun starts: layers that one computes before the next "
             "goes on; default: chosen")
      .type_name("LAYERS")
      .integer_in(1, kMaxInt)
      .group(group);
  parser
      .flag("--force-ranks", choice.force,
            "Run a model with several processes that one would run faster")
      .group(group);
}

void add_pin_option(OptionParser& parser, bool& pin, const std::string& group) {
  parser.flag("--pin", pin, "Bind each thread to a physical core of its own").group(group);
}

void add_read_path_option(OptionParser& parser, std::string& path, const std::string& group) {
  parser
      .choice("--io", path, {"auto", "uring", "pread", "mmap"},
              "How weights are read; with mmap the kernel decides which of them stay in memory")
      .type_name("PATH")
      .show_default()
      .group(group);
}

void add_i2s_layout_option(OptionParser& parser, std::string& layout, const std::string& group) {
  parser
      .choice("--i2s-layout", layout,
              {"auto", "ms128", "ms64", "ms4row", "inline32", "split32", "qk256", "seed"},
              "Layout of the tensors of type I2_S in a GGUF file; see qsf convert --help")
      .group(group);
}

void add_kv_type_options(OptionParser& parser, KvTypeChoice& choice, const std::string& group) {
  const auto add = [&](const char* name, std::string& value, const char* help) {
    return parser.choice(name, value, {"f32", "f16", "8", "4", "2"}, help)
        .type_name("TYPE")
        .group(group);
  };
  add("--kv-type", choice.both, "Type of the KV cache: f32, f16, or 8, 4 or 2 bits").show_default();
  add("--kv-type-k", choice.keys_alone, "Type of the keys; default: the value of --kv-type");
  add("--kv-type-v", choice.values_alone, "Type of the values; default: the value of --kv-type");
}

void add_kv_policy_options(OptionParser& parser, KvPolicyChoice& choice, const std::string& group) {
  const KvPolicyChoice defaults;
  const auto number = [&](const char* name, std::optional<int>& value, int least,
                          const std::string& help) {
    parser.value(name, value, help).integer_in(least, kMaxInt).group(group);
  };
  parser
      .choice("--kv-policy", choice.policy, {"full", "window", "h2o"},
              "Positions in the KV cache: full, all; window, attention sinks and the last "
              "positions; h2o, these and the heavy hitters, which received most attention")
      .show_default()
      .group(group);
  number(
      "--kv-window", choice.window, 1,
      "Last positions of --kv-policy window and h2o" + default_note(defaults.window_or_default()));
  number("--kv-sinks", choice.sinks, 0,
         "First positions (attention sinks) of --kv-policy window and h2o" +
             default_note(defaults.sinks_or_default()));
  number("--kv-heavy", choice.heavy, 0,
         "Positions before the window that --kv-policy h2o keeps for each layer and KV head, sinks "
         "included" +
             default_note(defaults.heavy_or_default()));
  parser
      .flag("--rope-reindex", choice.rope_reindex,
            "With --kv-policy window: rotate the sinks to their position in the cache, so that a "
            "text can exceed the trained context length (StreamingLLM)")
      .group(group);
}

void add_attention_options(OptionParser& parser, AttentionChoice& choice,
                           const std::string& group) {
  const qsf_h2o_options defaults = AttentionChoice().h2o();
  const auto number = [&](const char* name, std::optional<int>& value, int least,
                          const std::string& help, int default_value) {
    parser.value(name, value, help + default_note(default_value))
        .integer_in(least, kMaxInt)
        .group(group);
  };
  parser
      .choice("--attention", choice.attention, {"full", "chunked", "symmetric", "h2o"},
              "Attention of prompts: full, over all earlier positions; chunked, over those of the "
              "chunk; symmetric, to both sides; h2o (sparse prefill), over the chunk and a memory "
              "set, which is faster for long prompts")
      .show_default()
      .group(group);
  number("--attention-chunk", choice.mask_chunk, 1, "Positions of a chunk of --attention chunked",
         defaults.chunk);
  parser
      .value("--attention-window", choice.mask_window,
             "Positions to each side of --attention symmetric; 0: all; default: 0")
      .integer_in(0, kMaxInt)
      .group(group);
  number("--h2o-local", choice.local, 0, "Last positions before the chunk in the memory set",
         defaults.local);
  number("--h2o-heavy", choice.heavy, 0,
         "Heavy hitters before these in the memory set, sinks included", defaults.heavy);
  number("--h2o-chunk", choice.chunk, 1, "Positions of a chunk", defaults.chunk);
  number("--h2o-sinks", choice.sinks, 0, "First positions in every memory set", defaults.sinks);
  parser
      .choice("--h2o-score", choice.score, {"mean", "sum"},
              "Rank of heavy hitters: sum of the attention they received, or its mean over the "
              "positions that could attend to them; default: sum")
      .type_name("RANKING")
      .group(group);
}

void add_speculation_options(OptionParser& parser, EngineOptions& options,
                             const std::string& group) {
  parser
      .choice("--speculate", options.speculate, {"auto", "off", "lookup", "draft"},
              "Draft tokens, those that followed the same text earlier or those of --draft, and "
              "check them all in one pass: auto, where it is faster; lookup and draft, always; the "
              "text is the same as with off")
      .show_default()
      .group(group);
  parser
      .value("--max-drafts", options.max_drafts,
             "Tokens that a pass drafts, at most; default: 15, fewer where memory is short")
      .integer_in(1, 64)
      .group(group);
  parser
      .value(
          "--draft", options.draft,
          "A smaller model of the same vocabulary that drafts tokens, or the model's own block for "
          "further tokens (qsf convert --mtp); it stays in memory, within the same budget")
      .type_name("MODEL")
      .group(group);
}

void add_head_option(OptionParser& parser, std::string& head, const std::string& group) {
  parser
      .choice("--head", head, {"full", "certified", "approx"},
              "Read the output head in full; or, in files with a sketch of it, only where it may "
              "hold the best tokens, which changes no text; or only where the sketch says that it "
              "probably does")
      .show_default()
      .group(group);
}

void add_lora_options(OptionParser& parser, AdapterChoice& choice, const std::string& group) {
  parser
      .value("--lora", choice.files,
             "LoRA adapter that `qsf convert` made: FILE, or NAME=FILE to give it a name")
      .type_name("FILE")
      .group(group);
  parser
      .value("--lora-scale", choice.scale,
             "How much of the adapter is added; default: 1, as trained")
      .group(group);
}

void add_ram_budget_option(OptionParser& parser, std::uint64_t& bytes, const std::string& group,
                           const std::string& whose) {
  parser
      .size_in_mb("--ram-budget", bytes,
                  "Limit on the memory of " + whose +
                      " in MB (10^6 bytes), or with a suffix k, M or G; weights beyond it are read "
                      "from the disk in every pass; default: the memory that the machine has to "
                      "spare")
      .check(check_budget)
      .group(group);
}

void add_engine_options(OptionParser& parser, EngineOptions& options, const std::string& group) {
  add_threads_option(parser, options.threads, group);
  parser
      .value("-c,--max-seq-len", options.max_seq_len,
             "Context length in tokens; default: the trained context length, with --kv-policy full "
             "at most 4096, less where memory is short, with --rope-reindex at least 65536")
      .integer_in(1, kMaxInt)
      .group(group);
  add_ram_budget_option(parser, options.ram_budget_bytes, group, "the whole process");
  add_kv_type_options(parser, options.kv_types, group);
  add_kv_policy_options(parser, options.kv_policy, group);
  parser
      .value("--kv-spill", options.kv_spill,
             "Keep the KV cache in FILE, with two layers of it in memory; FILE must not exist and "
             "is removed at the end")
      .type_name("FILE")
      .check(check_file_name)
      .group(group);
  add_attention_options(parser, options.attention, group);
  add_exact_option(parser, options.exact, group);
  add_pin_option(parser, options.pin, group);
  add_rank_options(parser, options.ranks, group);
  add_quality_option(parser, options.quality, group);
  add_experts_option(parser, options.experts, group);
  add_expert_margin_option(parser, options.expert_margin, group);
  add_speculation_options(parser, options, group);
  add_head_option(parser, options.head, group);
  add_lora_options(parser, options.adapters, group);
  add_read_path_option(parser, options.read_path, group);
  parser
      .value("--rows-per-pass", options.rows_per_pass,
             "Prompt tokens in one pass over the weights, at most; default: 512, less where memory "
             "is short")
      .integer_in(1, kMaxInt)
      .group(group);
}

void add_sequence_options(OptionParser& parser, EngineOptions& options, const std::string& group) {
  parser
      .value("--sequences", options.sequences,
             "Sequences that run at once, each with a context of its own")
      .integer_in(1, 64)
      .show_default()
      .group(group);
  parser
      .value("--kv-positions", options.kv_positions,
             "Positions that the KV cache holds for all sequences together; default: one whole "
             "context, and 1024 for each sequence beside the first")
      .integer_in(1, kMaxInt)
      .group(group);
}

std::string check_kv_policy(const KvPolicyChoice& choice) {
  const auto needs = [&](const char* option, int value, const char* policies) {
    return std::string(option) + " " + std::to_string(value) + ": needs --kv-policy " + policies +
           "; the policy is " + choice.policy;
  };
  if (choice.policy == "full") {
    if (choice.window) return needs("--kv-window", *choice.window, "window or h2o");
    if (choice.sinks) return needs("--kv-sinks", *choice.sinks, "window or h2o");
  }
  if (choice.heavy && !choice.is_h2o()) return needs("--kv-heavy", *choice.heavy, "h2o");
  if (choice.is_h2o() && choice.heavy_or_default() < choice.sinks_or_default()) {
    return "--kv-heavy " + std::to_string(choice.heavy_or_default()) +
           ": expected at least --kv-sinks " + std::to_string(choice.sinks_or_default()) +
           ", which it includes";
  }
  if (choice.rope_reindex && choice.policy != "window") {
    return "--rope-reindex: needs --kv-policy window; the policy is " + choice.policy;
  }
  return "";
}

std::string check_attention(const AttentionChoice& choice) {
  const auto needs = [&](const char* option, const char* kind) {
    return std::string(option) + ": needs --attention " + kind + "; the attention is " +
           choice.attention;
  };
  if (choice.mask_chunk && choice.kind() != QSF_ATTENTION_CHUNKED) {
    return needs("--attention-chunk", "chunked");
  }
  if (choice.mask_window && choice.kind() != QSF_ATTENTION_SYMMETRIC) {
    return needs("--attention-window", "symmetric");
  }
  if (!choice.is_h2o()) {
    return choice.has_sizes() ? needs("--h2o-...", "h2o") : "";
  }
  const qsf_h2o_options h2o = choice.h2o();
  if (static_cast<long long>(h2o.local) + h2o.heavy >= h2o.chunk) {
    return "--h2o-local " + std::to_string(h2o.local) + " and --h2o-heavy " +
           std::to_string(h2o.heavy) + ": expected a sum below --h2o-chunk " +
           std::to_string(h2o.chunk);
  }
  const bool on = h2o.local != 0 || h2o.heavy != 0;
  if (on && h2o.heavy < h2o.sinks) {
    return "--h2o-heavy " + std::to_string(h2o.heavy) + ": expected at least --h2o-sinks " +
           std::to_string(h2o.sinks) + ", which it includes";
  }
  return "";
}

namespace {

// Adapters as they are published, which the library does not read.
bool is_published_adapter(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(file_path(path), ignored) || path.ends_with(".gguf") ||
         path.ends_with(".safetensors");
}

// FILE or NAME=FILE, whose name has no slash.
std::string path_of_adapter(const std::string& adapter) {
  const std::size_t end = adapter.find('=');
  return end == std::string::npos || adapter.find('/') < end ? adapter : adapter.substr(end + 1);
}

std::string check_adapters(const AdapterChoice& choice) {
  if (choice.scale && choice.files.empty()) return "--lora-scale: needs --lora";
  for (const std::string& adapter : choice.files) {
    const std::string path = path_of_adapter(adapter);
    if (!is_published_adapter(path)) continue;
    return "--lora " + path +
           ": make an adapter file of it first: qsf convert ADAPTER OUT --base MODEL";
  }
  return "";
}

}  // namespace

std::string check_engine_options(const EngineOptions& options) {
  if (!options.draft.empty() && options.speculate != "auto" && options.speculate != "draft") {
    return "--draft " + options.draft + ": needs --speculate auto or draft; it is " +
           options.speculate;
  }
  if (options.draft.empty() && options.speculate == "draft") {
    return "--speculate draft: needs --draft MODEL";
  }
  std::string problem = check_adapters(options.adapters);
  if (problem.empty()) problem = check_kv_policy(options.kv_policy);
  return problem.empty() ? check_attention(options.attention) : problem;
}

std::string check_only_adapter(const AdapterChoice& choice) {
  if (choice.files.size() < 2) return check_adapters(choice);
  return "--lora: " + std::to_string(choice.files.size()) +
         " adapters, expected one; only `qsf serve` takes several";
}

qsf_kv_type kv_type_of(const std::string& value) {
  if (value == "f32") return QSF_KV_F32;
  if (value == "8") return QSF_KV_8BIT;
  if (value == "4") return QSF_KV_4BIT;
  if (value == "2") return QSF_KV_2BIT;
  return QSF_KV_F16;
}

qsf_speculation speculation_of(const std::string& value) {
  if (value == "off") return QSF_SPECULATE_OFF;
  if (value == "draft") return QSF_SPECULATE_DRAFT;
  return value == "lookup" ? QSF_SPECULATE_LOOKUP : QSF_SPECULATE_AUTO;
}

qsf_head head_of(const std::string& value) {
  if (value == "full") return QSF_HEAD_FULL;
  return value == "approx" ? QSF_HEAD_APPROXIMATE : QSF_HEAD_CERTIFIED;
}

qsf_read_path read_path_of(const std::string& value) {
  if (value == "uring") return QSF_READ_URING;
  if (value == "pread") return QSF_READ_PREAD;
  return value == "mmap" ? QSF_READ_MMAP : QSF_READ_AUTO;
}

void set_ram_budget(QSFConfig* config, std::uint64_t bytes) {
  qsf_config_set_ram_budget(config, static_cast<std::size_t>(bytes / kMegabyte));
}

void set_kv_types(QSFConfig* config, const KvTypeChoice& choice) {
  qsf_config_set_kv_types(config, kv_type_of(choice.keys()), kv_type_of(choice.values()));
}

void set_kv_policy(QSFConfig* config, const KvPolicyChoice& choice) {
  const qsf_kv_policy policy = choice.is_h2o()             ? QSF_KV_POLICY_H2O
                               : choice.policy == "window" ? QSF_KV_POLICY_WINDOW
                                                           : QSF_KV_POLICY_FULL;
  qsf_config_set_kv_policy(config, policy, choice.window_or_default(), choice.sinks_or_default(),
                           choice.heavy_or_default());
  qsf_config_set_rope_reindex(config, choice.rope_reindex ? 1 : 0);
}

void set_attention(QSFConfig* config, const AttentionChoice& choice) {
  const qsf_h2o_options h2o = choice.h2o();
  qsf_config_set_attention(config, choice.kind(), &h2o);
}

void add_adapters(QSFConfig* config, const AdapterChoice& choice) {
  for (const std::string& adapter : choice.files) {
    const std::string path = path_of_adapter(adapter);
    const bool named = path.size() < adapter.size();
    const std::string name = named ? adapter.substr(0, adapter.size() - path.size() - 1) : "";
    qsf_config_add_adapter(config, path.c_str(), named ? name.c_str() : nullptr);
  }
}

void use_adapter(QSFConfig* config, const AdapterChoice& choice) {
  if (!choice.files.empty()) qsf_config_set_adapter(config, 1, choice.scale_or_default());
}

void set_engine_options(QSFConfig* config, const EngineOptions& options) {
  qsf_config_set_threads(config, options.threads);
  qsf_config_set_max_seq_len(config, options.max_seq_len);
  set_ram_budget(config, options.ram_budget_bytes);
  qsf_config_set_rows_per_pass(config, options.rows_per_pass);
  qsf_config_set_max_sessions(config, options.sequences);
  qsf_config_set_kv_positions(config, options.kv_positions);
  qsf_config_set_io(config, read_path_of(options.read_path));
  qsf_config_set_kv_spill(config, options.kv_spill.c_str());
  qsf_config_set_exact(config, options.exact ? 1 : 0);
  qsf_config_set_quality(config, options.quality);
  qsf_config_set_experts(config, options.experts, options.expert_margin);
  qsf_config_set_speculation(config, speculation_of(options.speculate), options.max_drafts);
  qsf_config_set_head(config, head_of(options.head));
  add_adapters(config, options.adapters);
  qsf_config_set_draft_model(config, options.draft.c_str());
  qsf_config_set_pin(config, options.pin ? 1 : 0);
  qsf_config_set_ranks(config, options.ranks.window, options.ranks.force ? 1 : 0);
  set_kv_types(config, options.kv_types);
  set_kv_policy(config, options.kv_policy);
  set_attention(config, options.attention);
}

}  // namespace qsf_tools
