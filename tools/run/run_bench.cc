// SPDX-License-Identifier: MIT

#include "tools/run/run_bench.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "tools/common/tool_support.h"
#include "tools/run/run_engine.h"
#include "tools/run/run_output.h"

namespace qsf_tools {
namespace {

constexpr int kPromptTokens = 512;
constexpr int kGeneratedTokens = 32;

using Rates = std::array<double, kBenchRuns>;

void print_rates(const char* work, int n_tokens, Rates rates) {
  std::sort(rates.begin(), rates.end());
  std::printf("%-9s %4d tokens  %10.2f tokens/s (%.2f to %.2f)\n", work, n_tokens,
              rates[kBenchRuns / 2], rates.front(), rates.back());
}

}  // namespace

int run_bench(QSFEngine* engine) {
  qsf_error error = {};
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  if (qsf_engine_model_info(engine, &info, &error) != QSF_OK) return report(error);
  const int n_generated = std::min(kGeneratedTokens, info.context / 2);
  std::vector<int> prompt(
      static_cast<std::size_t>(std::min(kPromptTokens, info.context - n_generated)));
  // All different where the vocabulary has as many.
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int>(i * 7919 % static_cast<std::size_t>(info.n_vocab));
  }
  Rates prompt_rates = {};
  Rates generated_rates = {};
  for (int i = 0; i < kBenchRuns; ++i) {
    qsf_generate_options options;
    qsf_generate_options_init(&options);
    options.prompt_tokens = prompt.data();
    options.n_prompt_tokens = prompt.size();
    options.max_tokens = n_generated;
    options.ignore_end_of_text = 1;
    qsf_generate_result result = {};
    result.struct_size = sizeof result;
    if (qsf_engine_generate(engine, &options, &result, &error) != QSF_OK) return report(error);
    const auto run = static_cast<std::size_t>(i);
    prompt_rates[run] = per_second(prompt.size(), result.prompt_ns);
    generated_rates[run] =
        per_second(static_cast<std::uint64_t>(result.generated_tokens - 1), result.generate_ns);
  }
  std::printf("%s, %s, %" PRIu64 " parameters, file %s\n", info.architecture, info.quant_type,
              info.n_parameters, megabytes(info.file_bytes).c_str());
  print_rates("prompt", static_cast<int>(prompt.size()), prompt_rates);
  print_rates("generate", n_generated, generated_rates);
  if (std::fflush(stdout) != 0) {
    print_error(program_name(), "standard output: cannot write the result");
    return kFailure;
  }
  print_memory(engine);
  return kSuccess;
}

}  // namespace qsf_tools
