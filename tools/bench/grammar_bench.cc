// SPDX-License-Identifier: MIT
//
// qsf-grammar-bench: time of masks over a vocabulary of 262,144 tokens.
//
//   qsf-grammar-bench                  each mask alone
//   qsf-grammar-bench --passes MODEL   what 16 grammars add to passes of a model
//
// JSON values are read token by token under their schemas, the longest token first, and each mask
// is timed, the first ones with nothing known. MODEL has as many tokens: `qsf convert --random
// 270m`.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/grammar_cases.h"
#include "tools/bench/grammar_passes.h"

namespace {

using namespace qsf;
using namespace qsf_tools;

constexpr std::size_t kSequences = 16;

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

void print_times(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double time : times) sum += time;
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("%-28s %6zu: mean %7.1f us, p50 %6.1f, p99 %7.1f, p99.9 %7.1f, most %7.1f\n", what,
              times.size(), sum / static_cast<double>(times.size()), at(0.5), at(0.99), at(0.999),
              times.back());
}

int time_masks() {
  auto start = std::chrono::steady_clock::now();
  GrammarBench bench({1, 8 << 20});
  GrammarEngine& engine = bench.engine();
  const TokenVocabulary& vocabulary = engine.vocabulary();
  std::printf("vocabulary: %u tokens, %u nodes; %.0f ms, %.1f MB in all\n", kGrammarTokens,
              vocabulary.trie().size(), microseconds_since(start) / 1e3,
              static_cast<double>(bench.n_bytes()) / 1e6);
  std::vector<std::uint32_t> mask(mask_words(kGrammarTokens));
  std::vector<double> all;
  std::vector<double> first;
  std::vector<double> passes;
  for (const GrammarCase& one : kGrammarCases) {
    std::vector<double> times;
    start = std::chrono::steady_clock::now();
    const auto grammar = Grammar::create(engine, GrammarKind::kJsonSchema, one.schema).value();
    std::vector<std::unique_ptr<GrammarMatcher>> matchers;
    for (std::size_t i = 0; i < kSequences; ++i) {
      matchers.push_back(std::make_unique<GrammarMatcher>(grammar, "", std::span<std::uint32_t>()));
      if (i == 0) {
        if (!matchers[0]->fill_mask(mask).ok()) return 1;
        first.push_back(microseconds_since(start));
      }
    }
    for (std::string_view rest = one.value; !rest.empty();) {
      const std::uint32_t token = longest_token(vocabulary, rest);
      double pass = 0;
      for (std::size_t i = 0; i < kSequences; ++i) {
        start = std::chrono::steady_clock::now();
        const bool filled = matchers[i]->fill_mask(mask).ok();
        const double time = microseconds_since(start);
        if (i == 0) times.push_back(time);
        pass += time;
        if (!filled || !matchers[i]->accept(token).ok()) {
          std::fprintf(stderr, "%s: refused at %s\n", one.name, std::string(rest).c_str());
          return 1;
        }
      }
      passes.push_back(pass);
      std::string bytes;
      bench.texts().append(token, false, bytes);
      rest.remove_prefix(bytes.size());
    }
    if (!matchers[0]->can_end()) return 1;
    print_times(one.name, times);
    all.insert(all.end(), times.begin(), times.end());
  }
  print_times("all masks", all);
  print_times("compiled, and first mask", first);
  print_times("16 sequences in step", passes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return time_masks();
  if (argc == 3 && std::string_view(argv[1]) == "--passes") return time_passes(argv[2]);
  std::fprintf(stderr, "usage: qsf-grammar-bench [--passes MODEL.qsf]\n");
  return 2;
}
