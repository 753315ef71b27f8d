// SPDX-License-Identifier: MIT

#include "tools/bench/bench_texts.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "engine/generation.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_model.h"
#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

struct RecordedText {
  std::string name;
  std::vector<qsf::TokenId> prompt;
  std::vector<qsf::TokenId> answer;
};

bool read_tokens(const std::string& field, std::vector<qsf::TokenId>& tokens) {
  std::istringstream words(field);
  std::uint32_t token = 0;
  while (words >> token) tokens.push_back(token);
  return words.eof() && !tokens.empty();
}

// Fails  kIo, or kInvalidArgument naming the line
qsf::Result<std::vector<RecordedText>> read_texts(const std::string& path) {
  std::ifstream file(path);
  if (!file) return qsf::io_error("%s: cannot be read", path.c_str());
  std::vector<RecordedText> texts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    RecordedText& text = texts.emplace_back();
    std::istringstream fields(line);
    std::string prompt;
    std::string answer;
    const bool has_all = std::getline(fields, text.name, '\t') &&
                         std::getline(fields, prompt, '\t') && std::getline(fields, answer, '\t');
    if (!has_all || !read_tokens(prompt, text.prompt) || !read_tokens(answer, text.answer) ||
        text.answer.size() < 2) {
      return qsf::invalid_argument(
          "%s, line %d: expected a name, token ids of a prompt and at least two of an answer, "
          "separated by tabs",
          path.c_str(), number);
    }
  }
  if (texts.empty()) return qsf::invalid_argument("%s: no line with a text", path.c_str());
  return texts;
}

// Gives the tokens of texts other ids where the vocabulary lacks one: equal tokens stay equal.
// Fails  kInvalidArgument where the vocabulary is too small
qsf::Status rename_tokens(std::vector<RecordedText>& texts, std::uint32_t n_ids) {
  constexpr std::uint32_t kFirst = 256;  // past what ends a text
  for (RecordedText& text : texts) {
    const auto is_known = [n_ids](qsf::TokenId token) { return token < n_ids; };
    if (std::ranges::all_of(text.prompt, is_known) && std::ranges::all_of(text.answer, is_known)) {
      continue;
    }
    std::unordered_map<qsf::TokenId, qsf::TokenId> names;
    for (std::vector<qsf::TokenId>* part : {&text.prompt, &text.answer}) {
      for (qsf::TokenId& token : *part) {
        const auto name = kFirst + static_cast<qsf::TokenId>(names.size());
        token = names.try_emplace(token, name).first->second;
      }
    }
    if (kFirst + names.size() > n_ids) {
      return qsf::invalid_argument("text %s: has %zu different tokens, the vocabulary only %u ids",
                                   text.name.c_str(), names.size(), n_ids);
    }
  }
  return qsf::ok_status();
}

// The answer that replaces the model's choices.
struct Dictation {
  std::span<const qsf::TokenId> answer;
  std::size_t n_drawn = 0;
};

int dictate(std::span<float> logits, void* user) {
  Dictation& dictation = *static_cast<Dictation*>(user);
  logits[dictation.answer[dictation.n_drawn++]] = 1e30F;
  return 0;
}

qsf::Result<qsf::GenerateResult> generate(qsf::Engine& engine, const RecordedText& text) {
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<qsf::Session> session, engine.create_session());
  Dictation dictation{.answer = text.answer};
  qsf::GenerateOptions options;
  options.max_tokens = static_cast<std::uint32_t>(text.answer.size());
  options.ignore_end_of_text = true;
  options.sampling.temperature = 0.0F;
  options.sampling.on_logits = dictate;
  options.sampling.callback_user = &dictation;
  QSF_ASSIGN_OR_RETURN(const qsf::GenerateResult result, session->generate(text.prompt, options));
  if (result.generated_tokens != text.answer.size()) {
    return qsf::unsupported("text %s: ended after %u of %zu tokens", text.name.c_str(),
                            result.generated_tokens, text.answer.size());
  }
  return result;
}

// Runs all texts once in an engine of their own.
qsf::Status run_texts(const BenchOptions& options, std::uint64_t budget_bytes, bool speculates,
                      std::vector<RecordedText>& texts, std::span<TextFigure> figures) {
  qsf::EngineOptions settings = engine_settings(options, budget_bytes);
  std::size_t context = 0;
  for (const RecordedText& text : texts) {
    context = std::max(context, text.prompt.size() + text.answer.size());
  }
  settings.max_context = static_cast<std::uint32_t>(context);
  settings.speculation = speculates ? qsf::SpeculationKind::kAuto : qsf::SpeculationKind::kOff;
  if (speculates) settings.draft_model_path = options.draft;
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<qsf::Engine> engine,
                       qsf::Engine::open(options.model, settings));
  QSF_RETURN_IF_ERROR(rename_tokens(texts, engine->n_drawable()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    QSF_ASSIGN_OR_RETURN(const qsf::GenerateResult result, generate(*engine, texts[i]));
    const double rate = static_cast<double>(result.generated_tokens - 1) * 1e9 /
                        static_cast<double>(result.generate_ns);
    (speculates ? figures[i].drafted_rates : figures[i].off_rates).push_back(rate);
    if (!speculates) continue;
    figures[i].n_drafted = result.drafted_tokens;
    figures[i].n_accepted = result.accepted_tokens;
  }
  return qsf::ok_status();
}

void print_texts(const BenchOptions& options, std::span<const TextFigure> figures) {
  std::printf("qsf bench " QSF_VERSION ": %s, %s\n\n", describe_machine().cpu.c_str(),
              options.model.c_str());
  std::printf("%10s %-14s %7s %10s %10s %18s %7s %12s %12s\n", "budget", "text", "tokens", "off",
              "drafted", "min to max", "ratio", "tokens/pass", "accepted");
  for (const TextFigure& figure : figures) {
    const Spread drafted = figure.drafted();
    std::printf("%10s %-14s %7u %10.2f %10.2f %8.2f to %-7.2f %6.2fx %12.2f %5llu/%-6llu\n",
                figure.budget_bytes == 0 ? "-" : megabytes(figure.budget_bytes).c_str(),
                figure.text.c_str(), figure.n_tokens, figure.off().median, drafted.median,
                drafted.min, drafted.max, figure.ratio(), figure.tokens_per_pass(),
                static_cast<unsigned long long>(figure.n_accepted),
                static_cast<unsigned long long>(figure.n_drafted));
  }
}

}  // namespace

double TextFigure::ratio() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(off_rates.size(), drafted_rates.size()); ++i) {
    ratios.push_back(drafted_rates[i] / off_rates[i]);
  }
  return spread_of(std::move(ratios)).median;
}

qsf::Status bench_texts(const BenchOptions& options) {
  QSF_ASSIGN_OR_RETURN(std::vector<RecordedText> texts, read_texts(options.texts));
  std::vector<std::uint64_t> budgets = options.streams;
  if (budgets.empty()) budgets.push_back(0);
  std::vector<TextFigure> figures;
  ProgressLine progress(program_name(), true);
  for (const std::uint64_t budget : budgets) {
    const std::size_t first = figures.size();
    for (const RecordedText& text : texts) {
      figures.push_back({.budget_bytes = budget,
                         .text = text.name,
                         .n_tokens = static_cast<std::uint32_t>(text.answer.size()),
                         .off_rates = {},
                         .drafted_rates = {}});
    }
    for (unsigned i = 0; i < options.repetitions; ++i) {
      if (progress.due()) {
        progress.show("run " + std::to_string(i + 1) + " of " +
                      std::to_string(options.repetitions));
      }
      for (const bool speculates : {false, true}) {
        QSF_RETURN_IF_ERROR(
            run_texts(options, budget, speculates, texts, std::span(figures).subspan(first)));
      }
    }
  }
  progress.clear();
  if (options.json) {
    print_texts_json(options, figures);
  } else {
    print_texts(options, figures);
  }
  return qsf::ok_status();
}

}  // namespace qsf_tools
