// SPDX-License-Identifier: MIT

#include "tools/bench/qsf_bench_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tools/common/attention_option.h"
#include "tools/common/command_line.h"
#include "tools/common/kv_policy_option.h"
#include "tools/common/kv_type_option.h"
#include "tools/common/read_path_option.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

constexpr std::uint32_t kMaxTokens = 1U << 24;
constexpr const char* kPeerPrefix = "llama-bench=";

// Reads "512,4096"; empty for what is no such list.
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

CLI::Validator token_list() {
  return CLI::Validator(
      [](const std::string& text) {
        return parse_list(text).empty() ? text + ": expected numbers of tokens up to " +
                                              std::to_string(kMaxTokens) + " with commas between"
                                        : std::string();
      },
      "");
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

// As they stand on the command line.
struct Lists {
  std::string prompts = "512";
  std::string generate = "32";
  std::string depths = "0";
  std::string streams;
  std::string io = "auto";
};

void drop_zeros(std::vector<std::uint32_t>& values) {
  std::erase(values, 0U);
}

// Whether `path` can be run, looked up in PATH as a shell would when it has no slash.
bool is_program(const std::string& path) {
  if (path.find('/') != std::string::npos) return ::access(path.c_str(), X_OK) == 0;
  const char* const folders = std::getenv("PATH");
  std::string folder;
  for (const char c : std::string(folders == nullptr ? "" : folders) + ":") {
    if (c != ':') {
      folder.push_back(c);
      continue;
    }
    if (::access((folder + "/" + path).c_str(), X_OK) == 0) return true;
    folder.clear();
  }
  return false;
}

// Finds out which peer is meant. Returns what is wrong, empty for nothing.
std::string choose_peer(BenchOptions& options) {
  if (options.peer.starts_with(kPeerPrefix)) options.peer.erase(0, std::string(kPeerPrefix).size());
  if (options.peer_model.empty()) {
    return options.peer.empty() ? "" : "--peer: expected --peer-model FILE.gguf with it";
  }
  if (options.peer.empty()) {
    const char* const path = std::getenv("QSF_LLAMA_BENCH");
    if (path == nullptr || *path == '\0') {
      return "--peer-model: no peer to run it; give --peer llama-bench=PATH or set "
             "QSF_LLAMA_BENCH to the path of a llama-bench";
    }
    options.peer = path;
  }
  if (!is_program(options.peer)) {
    return options.peer + ": no such program; expected the llama-bench of a llama.cpp build";
  }
  if (::access(options.peer_model.c_str(), R_OK) != 0) {
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
  if (options.model.empty()) return "MODEL is required, or --kernels";
  if (!lists.streams.empty()) options.streams = parse_list(lists.streams);
  if (!options.streams.empty() && !options.peer_model.empty()) {
    return "--stream and --peer-model exclude each other: scripts/measure/compare_streaming runs a "
           "peer "
           "under the same memory limit";
  }
  if (!options.timeline.empty() && options.streams.empty()) return "--timeline needs --stream";
  if (std::find(options.streams.begin(), options.streams.end(), 0U) != options.streams.end()) {
    return "--stream: 0, expected budgets in MB";
  }
  if (options.disk && (!options.streams.empty() || !options.peer_model.empty())) {
    return "--disk measures no model: leave out --stream and --peer-model";
  }
  if (std::string problem = check_kv_policy(options.kv_policy); !problem.empty()) return problem;
  options.read_path = path_of(lists.io);
  options.prompts = parse_list(lists.prompts);
  options.generate = parse_list(lists.generate);
  options.depths = parse_list(lists.depths);
  drop_zeros(options.prompts);
  drop_zeros(options.generate);
  if (options.prompts.empty() && options.generate.empty()) {
    return "-p and -n are both 0: nothing to measure";
  }
  if (const std::string problem = check_attention(options.attention); !problem.empty()) {
    return problem;
  }
  return choose_peer(options);
}

}  // namespace

std::optional<int> parse_bench_options(int argc, const char* const* argv, BenchOptions& options) {
  Lists lists;
  CLI::App app(
      "Measures the speed of prompts and of generation, against the limits of the machine that its "
      "own probes find in the same run, and beside a llama.cpp on request.\nEach figure is the "
      "median of several runs after a warm-up, with the smallest and the largest.",
      kBenchTool);
  app.set_version_flag("--version", std::string(kBenchTool) + " " QSF_VERSION);
  app.add_option("MODEL", options.model,
                 "Model file (.qsf); with --kernels, what the names of kernels must contain")
      ->type_name("");
  app.add_option("-p,--prompt", lists.prompts, "Lengths of prompts, in tokens; 0 for none")
      ->type_name("LIST")
      ->check(token_list())
      ->capture_default_str();
  app.add_option("-n,--generate", lists.generate, "Numbers of tokens to generate; 0 for none")
      ->type_name("LIST")
      ->check(token_list())
      ->capture_default_str();
  app.add_option("-d,--depth", lists.depths, "Tokens in the context before each of these")
      ->type_name("LIST")
      ->check(token_list())
      ->capture_default_str();
  app.add_option("--threads", options.n_threads, "Threads; by default one for each physical core")
      ->type_name("N")
      ->check(integer_in(1, 1024));
  app.add_option("-r,--repetitions", options.repetitions, "Runs of each test")
      ->type_name("N")
      ->check(integer_in(1, 1000))
      ->capture_default_str();
  add_kv_type_options(app, options.kv_types);
  add_kv_policy_options(app, options.kv_policy);
  add_attention_options(app, options.attention);
  app.add_flag("--exact", options.exact,
               "Multiply weights of few bits with 32-bit floats, not with activations of 8 bits");
  app.add_flag("--pin", options.pin, "Bind each thread to a physical core of its own");
  app.add_flag("--no-probe", options.no_probe, "Do not measure the machine's limits");
  app.add_flag("--json", options.json, "Print JSON instead of tables");
  app.add_option("--peer", options.peer,
                 "Run llama-bench=PATH in turns with our own runs, with the same threads and "
                 "lengths; by default the one that QSF_LLAMA_BENCH in the environment names")
      ->type_name("PATH");
  app.add_option("--peer-model", options.peer_model, "Model of the peer (.gguf)")
      ->type_name("FILE");
  app.add_option("--stream", lists.streams,
                 "Stream the model within each of these memory budgets, in MB, and set what it "
                 "reads against probes of the disk before and after each run")
      ->type_name("LIST")
      ->check(token_list());
  app.add_option("--timeline", options.timeline,
                 "With --stream: write when each tile of the last run was read and used, as JSON")
      ->type_name("FILE");
  app.add_flag("--disk", options.disk,
               "Measure the disk of the model's file, by depth and block, and no model");
  add_read_path_option(app, lists.io);
  app.add_flag("--kernels", options.kernels,
               "Measure single kernels of every instruction set that this machine has, and no "
               "model");
  if (const auto code = parse_command_line(app, argc, argv)) return code;
  const std::string problem = check(lists, options);
  if (problem.empty()) return std::nullopt;
  print_error(kBenchTool, problem);
  return kUsage;
}

}  // namespace qsf_tools
