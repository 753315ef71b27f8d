// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_options.h"

#include <unistd.h>

#include <cstdlib>

#include "tools/common/command_line.h"
#include "tools/common/i2s_layout_option.h"
#include "tools/common/kv_type_option.h"
#include "tools/common/model_cache.h"
#include "tools/common/tool_support.h"
#include "tools/parity/qsf_parity_source.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kMaxPromptBytes = 64U << 20;
constexpr std::uint32_t kMaxTokens = 1U << 24;

// As they stand on the command line.
struct Texts {
  std::string prompt;
  std::string file;
  std::string ids;
};

// Reads "1,2,3"; empty for what is no such list.
std::vector<std::uint32_t> parse_ids(const std::string& text) {
  std::vector<std::uint32_t> ids;
  std::uint64_t value = 0;
  bool has_digit = false;
  for (const char c : text + ",") {
    if (c == ',' && has_digit) {
      ids.push_back(static_cast<std::uint32_t>(value));
      value = 0;
      has_digit = false;
    } else if (c >= '0' && c <= '9') {
      value = 10 * value + static_cast<std::uint64_t>(c - '0');
      has_digit = true;
    } else {
      return {};
    }
    if (value > 0xFFFFFFFEU) return {};
  }
  return ids;
}

CLI::Validator id_list() {
  return CLI::Validator(
      [](const std::string& text) {
        return parse_ids(text).empty() ? text + ": expected token ids with commas between"
                                       : std::string();
      },
      "");
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Returns where scripts/measure/build_parity_shim puts what it builds.
std::string default_child() {
  const std::string cache = environment("XDG_CACHE_HOME");
  const std::string home = environment("HOME");
  const std::string folder = !cache.empty() ? cache : home.empty() ? "" : home + "/.cache";
  return folder.empty() ? "" : folder + "/qsf/qsf-parity-llama";
}

// Finds the child's program and model. Returns what is wrong, empty for nothing.
std::string choose_child(ParityOptions& options) {
  if (options.child.empty()) options.child = environment("QSF_PARITY_CHILD");
  if (options.child.empty()) {
    options.child = default_child();
    if (options.child.empty() || ::access(options.child.c_str(), X_OK) != 0) {
      return "--reference llama: no program to run it; build one with "
             "scripts/measure/build_parity_shim, "
             "or give --child PROGRAM";
    }
  }
  if (options.reference_model.empty() && is_gguf_path(options.model)) {
    options.reference_model = options.model;
  }
  if (options.reference_model.empty()) {
    return "--reference llama: expected --reference-model FILE.gguf with it, the same model as "
           "MODEL";
  }
  return {};
}

std::string check(const Texts& texts, bool has_prompt, ParityOptions& options) {
  const int n_inputs = int{has_prompt} + int{!texts.file.empty()} + int{!texts.ids.empty()};
  if (n_inputs != 1) return "expected one of --prompt, --file and --ids";
  if (has_prompt) options.prompt = texts.prompt;
  if (!texts.ids.empty()) options.ids = parse_ids(texts.ids);
  if (!texts.file.empty()) {
    std::string problem;
    options.prompt = read_text(texts.file, kMaxPromptBytes, problem);
    if (!options.prompt) return problem;
  }
  if (options.reference.empty() && (options.record.empty() || !options.receipt.empty())) {
    return "--reference is required, but to --record alone";
  }
  const bool computes = options.reference == "exact" || options.reference == "llama";
  if (!options.trace_reference.empty() && !computes) {
    return "--trace-reference needs --reference exact or llama";
  }
  if (options.reference == "llama") return choose_child(options);
  if (!options.child.empty() || !options.reference_model.empty()) {
    return "--child and --reference-model need --reference llama";
  }
  return {};
}

int usage(const std::string& problem) {
  print_error(kParityTool, problem + "; see qsf-parity --help");
  return kUsage;
}

void add_thresholds(CLI::App& app, ParityThresholds& thresholds) {
  app.add_option("--cos-tol", thresholds.cosine,
                 "Least cosine of a position, of the logits as they are and less their means")
      ->type_name("X")
      ->check(number_in(0.0, 1.0))
      ->capture_default_str();
  const auto bound = [&](const char* name, std::optional<double>& value, const char* text) {
    app.add_option(name, value, text)->type_name("X")->check(number_in(0.0, 1e300));
  };
  bound("--max-error", thresholds.max_abs_error,
        "Largest error of a logit; not asked for by default");
  bound("--mse-tol", thresholds.mse,
        "Largest mean square error of a position; not asked for by default");
  bound(
      "--kl-tol", thresholds.kl,
      "Largest KL divergence of a position from the reference, in nats; not asked for by default");
  app.add_flag("--top1", thresholds.top1, "Ask for the same most likely token at every position");
  app.add_option("--greedy-tol", thresholds.greedy_match,
                 "Least share of greedy tokens that have to be the same")
      ->type_name("X")
      ->check(number_in(0.0, 1.0))
      ->capture_default_str();
}

void add_inputs(CLI::App& app, ParityOptions& options, Texts& texts) {
  app.add_option("MODEL", options.model,
                 "Model file (.qsf), or a GGUF file, which is converted once into a cache")
      ->type_name("")
      ->required();
  add_i2s_layout_option(app, options.i2s_layout);
  app.add_option("--prompt", texts.prompt, "Text whose tokens are evaluated")->type_name("TEXT");
  app.add_option("--file", texts.file, "The same from a file; - for standard input")
      ->type_name("FILE");
  app.add_option("--ids", texts.ids, "Token ids instead of a text, with commas between")
      ->type_name("LIST")
      ->check(id_list());
  app.add_flag("--parse-special", options.parse_special,
               "Control tokens spelled in the text become those tokens");
  app.add_option("--positions", options.positions, "Tokens to evaluate at most; by default all")
      ->type_name("N")
      ->check(integer_in(1, kMaxTokens));
  app.add_option("--steps", options.steps, "Greedy tokens to generate and compare; 0 for none")
      ->type_name("N")
      ->check(integer_in(0, kMaxTokens))
      ->capture_default_str();
}

void add_reference(CLI::App& app, ParityOptions& options) {
  app.add_option("--reference", options.reference,
                 "What to compare with: llama, another engine in a child process; exact, this "
                 "engine without rounding activations; or a file that --record wrote")
      ->type_name("WHAT");
  app.add_option("--reference-model", options.reference_model, "The model for the child (.gguf)")
      ->type_name("FILE");
  app.add_option("--child", options.child,
                 "Program of --reference llama; by default that of QSF_PARITY_CHILD, or what "
                 "scripts/measure/build_parity_shim built")
      ->type_name("PROGRAM");
  app.add_option("--timeout", options.timeout_seconds,
                 "Seconds that each answer of a child may take")
      ->type_name("SECONDS")
      ->check(number_above(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--exact", options.exact,
               "Multiply weights by 32-bit floats: slower, without the rounding to 8 bits");
  add_kv_type_options(app, options.kv_types);
  app.add_option(
         "--context", options.context,
         "Positions of the context; by default what the model was trained for, at most 4096")
      ->type_name("N")
      ->check(integer_in(1, kMaxTokens));
  app.add_option("--threads", options.n_threads, "Threads; by default one for each physical core")
      ->type_name("N")
      ->check(integer_in(1, 1024));
}

void add_outputs(CLI::App& app, ParityOptions& options) {
  app.add_option("--receipt", options.receipt, "Write the receipt here, as JSON")
      ->type_name("FILE");
  app.add_option("--record", options.record,
                 "Write the reference's logits here, or the model's own without a reference")
      ->type_name("FILE");
  app.add_option("--trace", options.trace,
                 "Write what every point of the graph held here: name, shape, RMS, checksum")
      ->type_name("FILE");
  app.add_option("--trace-reference", options.trace_reference,
                 "Write the same of the reference here, which is exact or llama")
      ->type_name("FILE");
  app.add_option("--kernel-records", options.kernel_records,
                 "Write a record of every kernel call here, one a line")
      ->type_name("FILE");
}

}  // namespace

std::optional<int> parse_parity_options(int argc, const char* const* argv, ParityOptions& options) {
  Texts texts;
  CLI::App app(
      "Evaluates tokens with a model and with a reference, compares token ids, logits of every "
      "position and greedy tokens, and writes a receipt.\nqsf-parity verify RECEIPT checks a "
      "receipt and comes to its verdict again; qsf-parity diff A B finds the first difference of "
      "two traces.\nExit code 0 for equal, 1 for a divergence, 2 for bad usage, 3 when nothing, or "
      "not everything, was compared.",
      kParityTool);
  app.set_version_flag("--version", std::string(kParityTool) + " " + QSF_VERSION);
  add_inputs(app, options, texts);
  add_reference(app, options);
  add_thresholds(app, options.thresholds);
  add_outputs(app, options);
  if (const auto code = parse_command_line(app, argc, argv)) return code;
  const std::string problem = check(texts, app.count("--prompt") > 0, options);
  if (!problem.empty()) return usage(problem);
  return std::nullopt;
}

std::optional<int> parse_verify_options(int argc, const char* const* argv, VerifyOptions& options) {
  CLI::App app(
      "Checks a receipt: its schema, its digest, the files it names, and that rows, thresholds and "
      "tokens lead to its verdict.\nExit code 0 for a receipt that says ok, rightly; 1 for a "
      "divergence and for a receipt that is wrong; 3 for one in which not everything was compared.",
      "qsf-parity verify");
  app.add_option("RECEIPT", options.receipt, "Receipt of qsf-parity")->type_name("")->required();
  app.add_option("--model", options.model, "Where the model is now, if not where the receipt says")
      ->type_name("FILE");
  return parse_command_line(app, argc, argv);
}

std::optional<int> parse_diff_options(int argc, const char* const* argv, DiffOptions& options) {
  CLI::App app(
      "Names the first point where two traces differ.\nExit code 0 for none, 1 for a difference, 3 "
      "when nothing was compared.",
      "qsf-parity diff");
  app.add_option("A", options.first, "Trace of qsf-parity --trace")->type_name("")->required();
  app.add_option("B", options.second, "Another one")->type_name("")->required();
  app.add_option(
         "--tol", options.tolerance,
         "Share of its RMS by which a point may differ; 0 asks for the same bits, which two "
         "engines never have")
      ->type_name("X")
      ->check(number_in(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--list", options.list, "Print how far apart each point is, as a share of its RMS");
  return parse_command_line(app, argc, argv);
}

}  // namespace qsf_tools
