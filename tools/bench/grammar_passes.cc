// SPDX-License-Identifier: MIT
//
// Each sequence reads a JSON value under a grammar of its own, made anew for each value, so that
// its masks are not known. Logits of random weights are of no use: nearly every draw is refused and
// needs a mask, and the token of the value is taken instead of the drawn one.

#include "tools/bench/grammar_passes.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "platform/clock.h"
#include "tools/bench/grammar_cases.h"

namespace qsf_tools {

namespace {

constexpr std::uint32_t kSequences = 16;
constexpr std::uint32_t kTurns = 10;
constexpr std::uint32_t kPasses = 12;  // of a turn, each way

class Sequence {
 public:
  Sequence(GrammarBench& bench, std::size_t index, const qsf::SamplingOptions& options)
      : bench_(bench),
        options_(options),
        case_(index),
        logits_(kGrammarTokens),
        order_(kGrammarTokens) {
    begin();
  }

  // Goes on to the next value where this one is read.
  void begin() {
    if (!rest_.empty()) return;
    const GrammarCase& next = kGrammarCases[case_++ % std::size(kGrammarCases)];
    rest_ = next.value;
    sampler_.reset();
    options_.grammar.reset();
    if (constrained_) {
      options_.grammar =
          qsf::Grammar::create(bench_.engine(), qsf::GrammarKind::kJsonSchema, next.schema).value();
    }
    sampler_.emplace(options_, logits_, order_);
  }
  void constrain(bool constrained) {
    constrained_ = constrained;
    rest_ = {};
    begin();
  }

  qsf::LogitsSink* sink() { return &*sampler_; }
  qsf::Status draw(qsf::TokenId& token) {
    QSF_RETURN_IF_ERROR(sampler_->prepare());
    if (sampler_->draw({}) == qsf::kNoToken) return sampler_->grammar_status();
    token = longest_token(bench_.engine().vocabulary(), rest_);
    return constrained_ ? sampler_->accept(token) : qsf::ok_status();
  }
  void go_on(qsf::TokenId token) {
    std::string bytes;
    bench_.texts().append(token, false, bytes);
    rest_.remove_prefix(bytes.size());
    begin();
  }

 private:
  GrammarBench& bench_;
  qsf::SamplingOptions options_;
  std::size_t case_;
  bool constrained_ = false;
  std::string_view rest_;
  std::vector<float> logits_;
  std::vector<std::uint32_t> order_;
  std::optional<qsf::Sampler> sampler_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

qsf::Status time_sampling(GrammarBench& bench, qsf::Engine& engine, const char* name,
                          const qsf::SamplingOptions& options) {
  std::vector<std::unique_ptr<qsf::Session>> sessions;
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (std::uint32_t i = 0; i < kSequences; ++i) {
    QSF_ASSIGN_OR_RETURN(std::unique_ptr<qsf::Session> session, engine.create_session());
    sessions.push_back(std::move(session));
    sequences.push_back(std::make_unique<Sequence>(bench, i, options));
  }
  std::vector<qsf::TokenId> tokens(kSequences, 1);
  std::array<std::vector<double>, 2> passes;  // without and with grammars, milliseconds
  std::array<std::vector<double>, 2> draws;
  for (std::uint32_t turn = 0; turn < 2 * kTurns; ++turn) {
    const bool constrained = turn % 2 == 1;
    for (const auto& sequence : sequences) sequence->constrain(constrained);
    for (std::uint32_t pass = 0; pass < kPasses; ++pass) {
      std::vector<qsf::SessionToken> step;
      for (std::uint32_t i = 0; i < kSequences; ++i) {
        step.push_back({sessions[i].get(), tokens[i], sequences[i]->sink()});
      }
      const std::uint64_t start = qsf::monotonic_ns();
      QSF_RETURN_IF_ERROR(engine.step_sessions(step));
      const std::uint64_t computed = qsf::monotonic_ns();
      for (std::uint32_t i = 0; i < kSequences; ++i) {
        QSF_RETURN_IF_ERROR(sequences[i]->draw(tokens[i]));
      }
      const std::uint64_t end = qsf::monotonic_ns();
      passes[constrained].push_back(static_cast<double>(end - start) * 1e-6);
      draws[constrained].push_back(static_cast<double>(end - computed) * 1e-6);
      for (std::uint32_t i = 0; i < kSequences; ++i) sequences[i]->go_on(tokens[i]);
    }
  }
  const double free = median(passes[0]);
  const double added = median(draws[1]) - median(draws[0]);
  std::printf(
      "%-24s pass %.2f ms, with grammars %.2f ms; draws %.2f ms, with grammars %.2f ms: %+.1f %% "
      "of a pass\n",
      name, free, median(passes[1]), median(draws[0]), median(draws[1]), 100 * added / free);
  return qsf::ok_status();
}

qsf::Status run(const char* path) {
  GrammarBench bench({kSequences, 8 << 20});
  qsf::EngineOptions settings;
  settings.n_sequences = kSequences;
  settings.max_context = 1024;
  settings.kv_positions = UINT32_MAX;
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<qsf::Engine> engine,
                       qsf::Engine::open(path, settings));
  if (engine->spec().n_vocab != kGrammarTokens) {
    return qsf::invalid_argument("%s: %u tokens, expected %u, as of qsf convert --random 270m",
                                 path, engine->spec().n_vocab, kGrammarTokens);
  }
  qsf::SamplingOptions plain;
  plain.temperature = 1.0F;
  plain.top_k = 0;
  plain.top_p = 1.0F;
  qsf::SamplingOptions truncated = plain;
  truncated.top_p = 0.9F;
  QSF_RETURN_IF_ERROR(time_sampling(bench, *engine, "top-k 40, top-p 0.9", {}));
  QSF_RETURN_IF_ERROR(time_sampling(bench, *engine, "top-p 0.9", truncated));
  return time_sampling(bench, *engine, "temperature 1 alone", plain);
}

}  // namespace

int time_passes(const char* model) {
  const qsf::Status status = run(model);
  if (!status.ok()) std::fprintf(stderr, "qsf-grammar-bench: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace qsf_tools
