// SPDX-License-Identifier: MIT
//
// qsf parity: compares a model's logits with a reference, and writes a receipt. The receipt says
// "ok" only where everything that was requested was compared.
//
// Exit code 0 for equal, 1 for a divergence, 2 for a wrong command line, 3 when something was not
// compared.

#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "io/atomic_file.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"
#include "tools/parity/parity_json.h"
#include "tools/parity/parity_options.h"
#include "tools/parity/parity_receipt.h"
#include "tools/parity/parity_run.h"
#include "tools/parity/parity_trace.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kMaxReceiptBytes = std::size_t{1} << 30;
constexpr int kNotCompared = 3;

// Ten digits tell 1 - 1e-9 from 1.
void print_number(const char* name, const std::optional<double>& value) {
  if (value) std::printf("%s: %.10g\n", name, *value);
}

void print_verdict(const ParityVerdict& verdict) {
  const SummaryRecord& summary = verdict.summary;
  std::printf("rows compared: %llu of %llu\n", static_cast<unsigned long long>(summary.compared),
              static_cast<unsigned long long>(summary.rows));
  print_number("cosine, least", summary.cosine_min);
  print_number("centred cosine, least", summary.centred_cosine_min);
  print_number("centred cosine, mean", summary.centred_cosine_mean);
  print_number("largest error", summary.max_abs_error);
  print_number("MSE, mean", summary.mse_mean);
  print_number("KL divergence, mean", summary.kl_mean);
  print_number("KL divergence, largest", summary.kl_max);
  print_number("top-1 agreement", summary.top1_agreement);
  print_number("top-5 agreement", summary.top5_agreement);
  const GreedyRecord& greedy = verdict.greedy;
  if (greedy.steps > 0) {
    std::printf("greedy tokens equal: %llu of %u\n",
                static_cast<unsigned long long>(greedy.matches), greedy.steps);
  }
  std::printf("status: %s\n", status_name(verdict.status));
}

int fail(const std::string& message, int code) {
  print_error(program_name(), message);
  return code;
}

int finish_output(int code) {
  if (std::fflush(stdout) == 0) return code;
  return fail("standard output: cannot write the result", kNotCompared);
}

int run_recording(ParityRun& run) {
  const ParityResult& result = run.result();
  if (!result.failure.empty()) return fail(result.failure, kNotCompared);
  if (!result.greedy_finite) return fail("a logit of a greedy step is not finite", kNotCompared);
  const qsf::Status written = run.write_outputs();
  if (!written.ok()) return fail(written.message(), kNotCompared);
  std::printf("recorded: %u positions and %zu greedy tokens\n", result.n_positions,
              result.greedy.size());
  return finish_output(kSuccess);
}

int run_comparison(int argc, char** argv) {
  ParityOptions options;
  if (const auto code = parse_parity_options(argc, argv, options)) return *code;
  ParityRun run(options);
  run.compare();
  if (options.reference.empty()) return run_recording(run);
  const ParityVerdict verdict = judge(run.result());
  const qsf::Status written = run.write_outputs();
  if (!written.ok()) return fail(written.message(), kNotCompared);
  if (!options.receipt.empty()) {
    const std::string text = receipt_text(make_receipt(run, verdict));
    const qsf::Status status = qsf::write_file(options.receipt, qsf::as_bytes(text));
    if (!status.ok()) return fail(status.message(), kNotCompared);
  }
  print_verdict(verdict);
  if (!verdict.reason.empty()) print_error(program_name(), verdict.reason);
  return finish_output(exit_code(verdict.status));
}

int run_verify(int argc, char** argv) {
  VerifyOptions options;
  if (const auto code = parse_verify_options(argc, argv, options)) return *code;
  std::string problem;
  const std::optional<std::string> text = read_text(options.receipt, kMaxReceiptBytes, problem);
  if (!text) return fail(problem, kFailure);
  const ReceiptCheck check = check_receipt(*text, options.model);
  for (const std::string& line : check.unchecked) std::printf("not checked: %s\n", line.c_str());
  for (const std::string& line : check.problems)
    print_error(program_name(), options.receipt + ": " + line);
  if (!check.problems.empty()) {
    std::printf("receipt: wrong\n");
    return finish_output(kFailure);
  }
  std::printf("receipt: right\n");
  print_verdict(check.verdict);
  if (!check.verdict.reason.empty()) print_error(program_name(), check.verdict.reason);
  return finish_output(exit_code(check.verdict.status));
}

int run_diff(int argc, char** argv) {
  DiffOptions options;
  if (const auto code = parse_diff_options(argc, argv, options)) return *code;
  const auto first = read_trace(options.first);
  if (!first) return fail(first.error().message(), kNotCompared);
  const auto second = read_trace(options.second);
  if (!second) return fail(second.error().message(), kNotCompared);
  const TraceComparison comparison = compare_traces(*first, *second, options.tolerance);
  if (options.list) {
    for (const TraceComparison::Point& point : comparison.compared) {
      std::printf("%.3g  %s\n", point.difference, point.place.c_str());
    }
  }
  if (comparison.first) {
    std::printf("first difference: %s\n", comparison.first->c_str());
    return finish_output(kFailure);
  }
  if (comparison.compared.empty()) return fail("the traces share no point", kNotCompared);
  std::printf("no difference in %zu points", comparison.compared.size());
  if (comparison.n_alone > 0) std::printf("; %zu are in one trace alone", comparison.n_alone);
  std::printf("\n");
  return finish_output(kSuccess);
}

int dispatch(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "verify") return run_verify(argc - 1, argv + 1);
  if (first == "diff" || first == "--diff") return run_diff(argc - 1, argv + 1);
  return run_comparison(argc, argv);
}

}  // namespace

}  // namespace qsf_tools

int qsf_tools::parity_main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return qsf_tools::dispatch(argc, argv);
}
