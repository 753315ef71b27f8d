// SPDX-License-Identifier: MIT

#include "tools/bench/bench_routing.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace qsf_tools {
namespace {

constexpr const char* kRoutingHeader = "qsf-routing 1";
constexpr std::uint32_t kNextScores = 2;
constexpr std::uint32_t kNoGuess = UINT32_MAX;  // in the place of an expert

}  // namespace

RoutingReplay::RoutingReplay(const qsf::ModelSpec& spec)
    : n_experts_(spec.n_experts),
      n_used_(spec.n_experts_used),
      experts_(spec.n_layers),
      guesses_(spec.n_layers),
      next_(spec.n_layers, 0),
      n_guessed_(spec.n_layers, 0) {}

qsf::Result<std::unique_ptr<RoutingReplay>> RoutingReplay::read(const std::string& path,
                                                                const qsf::ModelSpec& spec) {
  if (spec.n_experts == 0) {
    return qsf::invalid_argument("%s: the model has no experts to route to", path.c_str());
  }
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) {
    return qsf::io_error("%s: cannot be read: %s", path.c_str(), std::strerror(errno));
  }
  if (line != kRoutingHeader) {
    return qsf::invalid_argument("%s: line 1 is not \"%s\"; expected a file of --record-routing",
                                 path.c_str(), kRoutingHeader);
  }
  std::unique_ptr<RoutingReplay> replay(new RoutingReplay(spec));
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    QSF_RETURN_IF_ERROR(
        replay->add_line(line).with_context(path + ": line " + std::to_string(number)));
  }
  if (std::ranges::all_of(replay->experts_, [](const auto& rows) { return rows.empty(); })) {
    return qsf::invalid_argument("%s: no routings", path.c_str());
  }
  return replay;
}

qsf::Status RoutingReplay::add_line(const std::string& line) {
  const std::size_t guesses = line.find('>');
  std::istringstream text(line.substr(0, std::min(line.find(';'), guesses)));
  std::string role;
  std::uint32_t layer = 0;
  if (!(text >> role >> layer) || (role != "p" && role != "g")) {
    return qsf::invalid_argument("expected \"g LAYER EXPERT:WEIGHT ...\"");
  }
  if (layer >= experts_.size()) {
    return qsf::invalid_argument("layer %u, the model has %zu", layer, experts_.size());
  }
  QSF_RETURN_IF_ERROR(add_experts(text, experts_[layer]));
  if (guesses == std::string::npos) {
    guesses_[layer].insert(guesses_[layer].end(), n_used_, kNoGuess);
    return qsf::ok_status();
  }
  std::istringstream guessed(line.substr(guesses + 1));
  return add_experts(guessed, guesses_[layer]).with_context("guesses");
}

// Adds a row's experts to those of its layer: the first ones where the model takes fewer.
qsf::Status RoutingReplay::add_experts(std::istringstream& text,
                                       std::vector<std::uint32_t>& all) const {
  const std::size_t first = all.size();
  for (std::string word; text >> word;) {
    std::uint32_t expert = 0;
    if (std::sscanf(word.c_str(), "%u", &expert) != 1 || expert >= n_experts_) {
      return qsf::invalid_argument("expert %s, the model has %u", word.c_str(), n_experts_);
    }
    if (std::find(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(), expert) !=
        all.end()) {
      return qsf::invalid_argument("expert %u twice", expert);
    }
    all.push_back(expert);
  }
  if (all.size() - first < n_used_) {
    return qsf::invalid_argument("%zu experts, a row of the model takes %u", all.size() - first,
                                 n_used_);
  }
  all.resize(first + n_used_);
  return qsf::ok_status();
}

void RoutingReplay::routed(std::uint32_t layer, const qsf::Row&, std::span<const float>,
                           std::span<qsf::ExpertChoice> chosen) {
  const std::vector<std::uint32_t>& all = experts_[layer];
  if (all.empty()) return;
  const std::size_t row = next_[layer]++ % (all.size() / n_used_);
  n_guessed_[layer] = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i].expert = all[row * n_used_ + i];
}

void RoutingReplay::guessed(std::uint32_t layer, const qsf::Row&,
                            std::span<qsf::ExpertChoice> guessed) {
  const std::vector<std::uint32_t>& all = guesses_[layer];
  if (all.empty()) return;
  const std::size_t row = (next_[layer] + n_guessed_[layer]++) % (all.size() / n_used_);
  if (all[row * n_used_] == kNoGuess) return;
  for (std::size_t i = 0; i < guessed.size(); ++i) guessed[i].expert = all[row * n_used_ + i];
}

qsf::Result<std::unique_ptr<RoutingRecorder>> RoutingRecorder::create(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return qsf::io_error("%s: cannot be created: %s", path.c_str(), std::strerror(errno));
  }
  std::unique_ptr<RoutingRecorder> recorder(new RoutingRecorder(path, file));
  std::fprintf(file, "%s\n", kRoutingHeader);
  return recorder;
}

void RoutingRecorder::routed(std::uint32_t layer, const qsf::Row& row,
                             std::span<const float> scores, std::span<qsf::ExpertChoice> chosen) {
  std::FILE* const file = file_.get();
  std::fprintf(file, "%c %u", row.role == qsf::RowRole::kPrompt ? 'p' : 'g', layer);
  for (const qsf::ExpertChoice& choice : chosen) {
    std::fprintf(file, " %u:%.4g", choice.expert, static_cast<double>(choice.weight));
  }
  std::vector<std::uint32_t> others;
  for (std::uint32_t e = 0; e < scores.size(); ++e) {
    const bool taken = std::ranges::any_of(
        chosen, [e](const qsf::ExpertChoice& choice) { return choice.expert == e; });
    if (!taken) others.push_back(e);
  }
  const std::size_t n_next = std::min<std::size_t>(kNextScores, others.size());
  std::partial_sort(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(n_next),
                    others.end(), [&](std::uint32_t a, std::uint32_t b) {
                      return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
                    });
  std::fputs(" ;", file);
  for (std::size_t i = 0; i < n_next; ++i) {
    std::fprintf(file, " %u:%.4g", others[i], static_cast<double>(scores[others[i]]));
  }
  if (layer < guesses_.size() && !guesses_[layer].empty()) {
    std::vector<std::uint32_t>& of_rows = guesses_[layer];
    std::fputs(" >", file);
    for (std::size_t i = 0; i < chosen.size(); ++i) std::fprintf(file, " %u", of_rows[i]);
    of_rows.erase(of_rows.begin(), of_rows.begin() + static_cast<std::ptrdiff_t>(chosen.size()));
  }
  std::fputc('\n', file);
}

void RoutingRecorder::guessed(std::uint32_t layer, const qsf::Row&,
                              std::span<qsf::ExpertChoice> guessed) {
  if (layer >= guesses_.size()) guesses_.resize(layer + 1);
  for (const qsf::ExpertChoice& choice : guessed) guesses_[layer].push_back(choice.expert);
}

qsf::Status RoutingRecorder::finish() {
  const bool failed = std::ferror(file_.get()) != 0;
  if (std::fclose(file_.release()) != 0 || failed) {
    return qsf::io_error("%s: cannot be written: %s", path_.c_str(), std::strerror(errno));
  }
  return qsf::ok_status();
}

}  // namespace qsf_tools
