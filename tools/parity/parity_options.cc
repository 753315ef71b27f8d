// SPDX-License-Identifier: MIT

#include "tools/parity/parity_options.h"

#include <unistd.h>

#include <cstdlib>

#include "tools/common/engine_options.h"
#include "tools/common/model_cache.h"
#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kMaxPromptBytes = 64U << 20;
constexpr std::uint32_t kMaxTokens = 1U << 24;

// Options as texts.
struct Texts {
  std::string prompt;
  std::string file;
  std::string ids;
};

// Parses "1,2,3"; empty for any other text.
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

std::string check_ids(const std::string& text) {
  return parse_ids(text).empty() ? "expected token ids, separated by commas" : "";
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

// Finds the child's program and model. Returns the problem, empty for none.
std::string choose_child(ParityOptions& options) {
  if (options.child.empty()) options.child = environment("QSF_PARITY_CHILD");
  if (options.child.empty()) {
    options.child = default_child();
    if (options.child.empty() || ::access(options.child.c_str(), X_OK) != 0) {
      return "--reference llama: no program found; build one with build_parity_shim, or give "
             "--child "
             "PROGRAM"
             "or give --child PROGRAM";
    }
  }
  if (options.reference_model.empty() && is_gguf_path(options.model)) {
    options.reference_model = options.model;
  }
  if (options.reference_model.empty()) {
    return "--reference llama needs --reference-model FILE.gguf, the same model as MODEL";
  }
  return {};
}

std::string check(const Texts& texts, bool has_prompt, ParityOptions& options) {
  const int n_inputs = int{has_prompt} + int{!texts.file.empty()} + int{!texts.ids.empty()};
  if (n_inputs != 1) return "give one of --prompt, --file and --ids";
  if (has_prompt) options.prompt = texts.prompt;
  if (!texts.ids.empty()) options.ids = parse_ids(texts.ids);
  if (!texts.file.empty()) {
    std::string problem;
    options.prompt = read_text(texts.file, kMaxPromptBytes, problem);
    if (!options.prompt) return problem;
  }
  if (options.reference.empty() && (options.record.empty() || !options.receipt.empty())) {
    return "--reference is required, except with --record and no --receipt";
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

void add_inputs(OptionParser& parser, ParityOptions& options, Texts& texts) {
  parser
      .value("MODEL", options.model,
             "Model file (.qsf), or a GGUF file, which is converted once into the cache")
      .type_name("")
      .required();
  add_i2s_layout_option(parser, options.i2s_layout);
  parser.value("--prompt", texts.prompt, "Text to evaluate");
  parser.value("--file", texts.file, "File with the text; - for standard input").type_name("FILE");
  parser.value("--ids", texts.ids, "Token ids instead of a text, separated by commas")
      .type_name("LIST")
      .check(check_ids);
  parser.flag("--parse-special", options.parse_special,
              "Control tokens spelled in the text become those tokens");
  parser.value("--positions", options.positions, "Most tokens to evaluate; default: all")
      .integer_in(1, kMaxTokens);
  parser.value("--steps", options.steps, "Greedy tokens to generate and compare; 0: none")
      .integer_in(0, kMaxTokens)
      .show_default();
}

void add_reference(OptionParser& parser, ParityOptions& options) {
  parser
      .value("--reference", options.reference,
             "Reference: llama, llama.cpp in a child process; exact, this engine with 32-bit "
             "activations; or a file that --record wrote")
      .type_name("NAME");
  parser.value("--reference-model", options.reference_model, "Model for the child (.gguf)")
      .type_name("FILE");
  parser
      .value("--child", options.child,
             "Program of --reference llama; default: the environment variable QSF_PARITY_CHILD, or "
             "the program that build_parity_shim built")
      .type_name("PROGRAM");
  parser.value("--timeout", options.timeout_seconds, "Most seconds for each answer of the child")
      .type_name("SECONDS")
      .number_above(0.0, 1e6)
      .show_default();
  add_exact_option(parser, options.exact);
  add_kv_type_options(parser, options.kv_types);
  parser
      .value("--context", options.context,
             "Context length; default: the trained context length, at most 4096")
      .integer_in(1, kMaxTokens);
  add_threads_option(parser, options.n_threads);
}

void add_thresholds(OptionParser& parser, ParityThresholds& thresholds) {
  constexpr const char* kGroup = "Thresholds";
  parser
      .value("--cos-tol", thresholds.cosine,
             "Least cosine of the logits at a position, and of the centred logits")
      .type_name("X")
      .number_in(0.0, 1.0)
      .show_default()
      .group(kGroup);
  const auto bound = [&](const char* name, std::optional<double>& value, const char* text) {
    parser.value(name, value, text).type_name("X").number_in(0.0, 1e300).group(kGroup);
  };
  bound("--max-error", thresholds.max_abs_error, "Largest error of a logit; default: no limit");
  bound("--mse-tol", thresholds.mse, "Largest mean squared error at a position; default: no limit");
  bound("--kl-tol", thresholds.kl,
        "Largest KL divergence from the reference at a position, in nats; default: no limit");
  parser.flag("--top1", thresholds.top1, "Require top-1 agreement at every position").group(kGroup);
  parser.value("--greedy-tol", thresholds.greedy_match, "Least share of equal greedy tokens")
      .type_name("X")
      .number_in(0.0, 1.0)
      .show_default()
      .group(kGroup);
}

void add_outputs(OptionParser& parser, ParityOptions& options) {
  constexpr const char* kGroup = "Files";
  const auto file = [&](const char* name, std::string& value, const char* text) {
    parser.value(name, value, text).type_name("FILE").group(kGroup);
  };
  file("--receipt", options.receipt, "Write the parity receipt to FILE, as JSON");
  file("--record", options.record,
       "Write the logits of the reference to FILE; without --reference, the logits of the model");
  file("--trace", options.trace,
       "Write a trace to FILE: name, shape, RMS and checksum of every point of the graph");
  file("--trace-reference", options.trace_reference,
       "Write the trace of the reference to FILE; exact and llama only");
  file("--kernel-records", options.kernel_records,
       "Write a record of every kernel call to FILE, one a line");
}

}  // namespace

std::optional<int> parse_parity_options(int argc, const char* const* argv, ParityOptions& options) {
  Texts texts;
  OptionParser parser(
      "Compares a model with a reference: token ids, logits of every position and greedy tokens. "
      "Writes a parity receipt.\n"
      "qsf parity verify RECEIPT checks a receipt; qsf parity diff A B finds the first difference "
      "of two traces.\n"
      "Exit code 0 for equal, 1 for a divergence, 2 for a wrong command line, 3 when something was "
      "not compared.\n"
      "Example: qsf parity model.qsf --prompt \"Once upon a time\" --reference exact");
  add_inputs(parser, options, texts);
  add_reference(parser, options);
  add_thresholds(parser, options.thresholds);
  add_outputs(parser, options);
  if (const auto code = parser.parse(argc, argv)) return code;
  const std::string problem = check(texts, parser.count("--prompt") > 0, options);
  if (!problem.empty()) return parser.usage_error(problem);
  return std::nullopt;
}

std::optional<int> parse_verify_options(int argc, const char* const* argv, VerifyOptions& options) {
  OptionParser parser(
      "Checks a parity receipt: its form, its digest, the files it names, and that its verdict "
      "follows from its numbers.\n"
      "Exit code 0 for a correct receipt with status ok; 1 for a divergence or a wrong receipt; 3 "
      "for a receipt of an incomplete comparison.",
      program_name() + " verify");
  parser.value("RECEIPT", options.receipt, "Receipt of qsf parity").type_name("").required();
  parser.value("--model", options.model, "Path of the model; default: the path in the receipt")
      .type_name("FILE");
  return parser.parse(argc, argv);
}

std::optional<int> parse_diff_options(int argc, const char* const* argv, DiffOptions& options) {
  OptionParser parser(
      "Finds the first point where two traces differ.\n"
      "Exit code 0 for no difference, 1 for a difference, 3 when nothing was compared.",
      program_name() + " diff");
  parser.value("A", options.first, "Trace of qsf parity --trace").type_name("").required();
  parser.value("B", options.second, "Second trace").type_name("").required();
  parser
      .value("--tol", options.tolerance,
             "Largest difference of a point, as a share of its RMS; 0: equal bits, which two "
             "engines never have")
      .type_name("X")
      .number_in(0.0, 1.0)
      .show_default();
  parser.flag("--list", options.list, "Print the difference of every point");
  return parser.parse(argc, argv);
}

}  // namespace qsf_tools
