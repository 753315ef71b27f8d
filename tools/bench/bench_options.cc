// SPDX-License-Identifier: MIT

#include "tools/bench/bench_options.h"

#include <algorithm>
#include <cstdlib>

#include "tools/bench/bench_system.h"
#include "tools/common/option_parser.h"

namespace qsf_tools {
namespace {

constexpr std::uint32_t kMaxTokens = 1U << 24;
constexpr const char* kPeerPrefix = "llama-bench=";

// Parses "512,4096"; empty for any other text.
std::vector<std::uint32_t> parse_list(const std::string& text) {
  std::vector<std::uint32_t> values;
  std::uint64_t value = 0;
  bool has_digit = false;
  for (const char c : text + ",") {
    if (c == ',' && has_digit) {
      values.push_back(static_cast<std::uint32_t>(value));
      value = 0;
      has_digit = false;
    } else if (c >= '0' && c <= '9' && value <= kMaxTokens) {
      value = 10 * value + static_cast<std::uint64_t>(c - '0');
      has_digit = true;
    } else {
      return {};
    }
    if (value > kMaxTokens) return {};
  }
  return values;
}

std::string check_list(const std::string& text) {
  if (!parse_list(text).empty()) return {};
  return "expected numbers of tokens up to " + std::to_string(kMaxTokens) + ", separated by commas";
}

// Parses "100,2G": sizes in MB; empty for any other text.
std::vector<std::uint64_t> parse_sizes(const std::string& text) {
  std::vector<std::uint64_t> sizes;
  std::string part;
  for (const char c : text + ",") {
    if (c != ',') {
      part.push_back(c);
      continue;
    }
    const std::optional<std::uint64_t> size = parse_size_in_mb(part);
    if (!size) return {};
    sizes.push_back(*size);
    part.clear();
  }
  return sizes;
}

std::string check_sizes(const std::string& text) {
  if (!parse_sizes(text).empty()) return {};
  return "expected budgets in MB, separated by commas, such as 100,200";
}

std::optional<qsf::ReadPath> path_of(const std::string& value) {
  switch (read_path_of(value)) {
    case QSF_READ_URING: return qsf::ReadPath::kUring;
    case QSF_READ_PREAD: return qsf::ReadPath::kPread;
    case QSF_READ_MMAP: return qsf::ReadPath::kMmap;
    case QSF_READ_AUTO: break;
  }
  return std::nullopt;
}

constexpr std::uint32_t kMaxSequences = 64;

// As they stand on the command line.
struct Lists {
  std::string prompts = "512";
  std::string generate = "32";
  std::string depths = "0";
  std::string sequences = "1";
  std::string streams;
  std::string io = "auto";
};

void drop_zeros(std::vector<std::uint32_t>& values) {
  std::erase(values, 0U);
}

// Finds the program of the peer. Returns the problem, empty for none.
std::string choose_peer(BenchOptions& options) {
  if (options.peer.starts_with(kPeerPrefix)) options.peer.erase(0, std::string(kPeerPrefix).size());
  if (options.peer_model.empty()) {
    return options.peer.empty() ? "" : "--peer needs --peer-model FILE.gguf";
  }
  if (options.peer.empty()) {
    const char* const path = std::getenv("QSF_LLAMA_BENCH");
    if (path == nullptr || *path == '\0') {
      return "--peer-model needs a program: give --peer llama-bench=PATH, or set QSF_LLAMA_BENCH "
             "to the "
             "path of llama-bench";
    }
    options.peer = path;
  }
  if (const std::string problem = program_problem(options.peer); !problem.empty()) {
    return options.peer + ": " + problem;
  }
  if (!is_readable(options.peer_model)) {
    return options.peer_model + ": cannot be read";
  }
  return "";
}

std::string check(const Lists& lists, BenchOptions& options) {
  if (options.kernels) {
    options.filter = std::move(options.model);
    options.model.clear();
    return "";
  }
  if (options.model.empty()) return "MODEL is required, except with --kernels";
  if (!lists.streams.empty()) options.streams = parse_sizes(lists.streams);
  if (!options.streams.empty() && !options.peer_model.empty()) {
    return "--stream excludes --peer-model; scripts/measure/compare_streaming runs a peer under "
           "the "
           "same memory limit";
  }
  if (!options.timeline.empty() && options.streams.empty()) return "--timeline needs --stream";
  if (!options.texts.empty() && (options.disk || !options.peer_model.empty())) {
    return "--texts excludes --disk and --peer-model";
  }
  if (!options.draft.empty() && options.texts.empty()) return "--draft needs --texts";
  if (!options.routing.empty() && options.streams.empty()) return "--routing needs --stream";
  if (!options.record_routing.empty() && options.streams.empty()) {
    return "--record-routing needs --stream";
  }
  if (!options.record_routing.empty() && !options.routing.empty()) {
    return "--record-routing excludes --routing";
  }
  if (options.disk && (!options.streams.empty() || !options.peer_model.empty())) {
    return "--disk excludes --stream and --peer-model: it measures no model";
  }
  if (std::string problem = check_kv_policy(options.kv_policy); !problem.empty()) return problem;
  options.read_path = path_of(lists.io);
  options.prompts = parse_list(lists.prompts);
  options.generate = parse_list(lists.generate);
  options.depths = parse_list(lists.depths);
  options.sequences = parse_list(lists.sequences);
  const auto outside = [](std::uint32_t n) { return n < 1 || n > kMaxSequences; };
  if (std::any_of(options.sequences.begin(), options.sequences.end(), outside)) {
    return "--sequences " + lists.sequences + ": expected numbers from 1 to 64";
  }
  if (lists.sequences != "1" && !options.peer_model.empty()) {
    return "--sequences excludes --peer-model: llama-bench runs one sequence";
  }
  drop_zeros(options.prompts);
  drop_zeros(options.generate);
  if (options.prompts.empty() && options.generate.empty()) {
    return "-p and -n are both 0: there is nothing to measure; give one of them";
  }
  if (const std::string problem = check_attention(options.attention); !problem.empty()) {
    return problem;
  }
  if (options.attention.attention != "full" && !options.attention.is_h2o()) {
    return "--attention " + options.attention.attention + ": is not measured; use full or h2o";
  }
  return choose_peer(options);
}

void add_stream_options(OptionParser& parser, Lists& lists, BenchOptions& options) {
  parser
      .value("--stream", lists.streams,
             "Stream the model within each of these memory budgets, in MB. Each run is shown as a "
             "share of the disk's rate, measured before and after it")
      .type_name("LIST")
      .check(check_sizes);
  parser
      .value("--timeline", options.timeline,
             "With --stream: write the times at which each tile of the last run was read and used, "
             "as JSON")
      .type_name("FILE");
  parser
      .value("--routing", options.routing,
             "With --stream: let rows take the experts of this file, pass by pass, and not those "
             "that the model's routers choose. For random weights, whose routers choose at random; "
             "scripts/measure/expert_routings.py writes such files")
      .type_name("FILE");
  parser
      .value("--record-routing", options.record_routing,
             "With --stream: write the experts that each generated token of the last run chose, by "
             "layer, with their weights and the next two scores")
      .type_name("FILE");
  parser
      .value("--texts", options.texts,
             "Generate the texts of this file with and without speculation, in turns; the model's "
             "own choices are replaced by the text's, so that any model accepts the same drafts. A "
             "line is a name, the tokens of the prompt and those of the answer, separated by tabs; "
             "scripts/measure/measure_speculation.py writes such files")
      .type_name("FILE");
  parser
      .value("--draft", options.draft,
             "With --texts: a smaller model of the same vocabulary that drafts tokens")
      .type_name("MODEL");
}

}  // namespace

std::optional<int> parse_bench_options(int argc, const char* const* argv, BenchOptions& options) {
  Lists lists;
  OptionParser parser(
      "Measures the speed of prompts and of generation. The same run measures the limits of the "
      "machine, and each result is shown as a share of them.\nEach figure is the median of several "
      "runs after a warm-up, with the smallest and the largest.\nExample: qsf bench MODEL.qsf -p "
      "512 -n 32");
  const auto list = [&](const char* names, std::string& value, const char* help) {
    return parser.value(names, value, help).type_name("LIST").check(check_list);
  };
  parser
      .value("MODEL", options.model,
             "Model file (.qsf); with --kernels, text that the names of the kernels contain")
      .type_name("");
  list("-p,--prompt", lists.prompts, "Prompt lengths in tokens; 0: no prompt test").show_default();
  list("-n,--generate", lists.generate, "Numbers of tokens to generate; 0: no generation test")
      .show_default();
  list("-d,--depth", lists.depths, "Tokens in the context before each test").show_default();
  list("-s,--sequences", lists.sequences, "Sequences that generate at once, a token each in a pass")
      .show_default();
  parser.value("-r,--repetitions", options.repetitions, "Measured runs of each test")
      .integer_in(1, 1000)
      .show_default();
  parser.flag("--no-probe", options.no_probe, "Do not measure the limits of the machine");
  parser.flag("--json", options.json, "Print JSON instead of tables");
  add_threads_option(parser, options.n_threads);
  add_exact_option(parser, options.exact);
  add_pin_option(parser, options.pin);
  add_quality_option(parser, options.quality);
  add_experts_option(parser, options.experts);
  add_expert_margin_option(parser, options.expert_margin);
  add_kv_type_options(parser, options.kv_types);
  add_kv_policy_options(parser, options.kv_policy);
  add_attention_options(parser, options.attention);
  add_read_path_option(parser, lists.io);
  parser
      .value("--peer", options.peer,
             "Program of llama.cpp to measure too, as llama-bench=PATH; default: the environment "
             "variable QSF_LLAMA_BENCH. Its runs alternate with ours, with the same threads and "
             "lengths")
      .type_name("PATH");
  parser.value("--peer-model", options.peer_model, "Model for the peer (.gguf)").type_name("FILE");
  add_stream_options(parser, lists, options);
  parser.flag(
      "--disk", options.disk,
      "Measure only the disk of the model's file, for several queue depths and block sizes");
  parser.flag("--kernels", options.kernels,
              "Measure single kernels, of every instruction set that this machine has, and no "
              "model");
  if (const auto code = parser.parse(argc, argv)) return code;
  const std::string problem = check(lists, options);
  if (problem.empty()) return std::nullopt;
  return parser.usage_error(problem);
}

}  // namespace qsf_tools
