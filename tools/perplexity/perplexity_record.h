// SPDX-License-Identifier: MIT
//
// What qsf-perplexity writes to files beside its result: the loss of every scored token, and which
// positions were left to see. JSON, one object a line.

#ifndef QSF_TOOLS_PERPLEXITY_PERPLEXITY_RECORD_H_
#define QSF_TOOLS_PERPLEXITY_PERPLEXITY_RECORD_H_

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "qsf/qsf.h"

namespace qsf_tools {

// Visible positions by layer and KV head.
using VisiblePositions = std::vector<std::vector<std::vector<int>>>;

// Of the scored tokens of a window.
struct TokenScores {
  std::vector<double> losses;
  std::vector<double> divergences;  // from the reference; empty without one
};

// {"window": 0, "tokens": 512, "first": 257, "ids": [...], "losses": [...], "divergences": [...]}:
// the ids of all tokens, and what those from `first` on scored; no divergences without a reference.
std::string losses_line(std::size_t window, std::span<const int> tokens, std::size_t first,
                        const TokenScores& scores);
// {"window": 0, "tokens": 1024, "visible": [[[...], ...], ...]}: what a token would see after
// `n_tokens` of the window, by layer and KV head.
std::string visible_line(std::size_t window, std::size_t n_tokens, const VisiblePositions& visible);

// A text file that is written line by line. Every method returns what is wrong, empty for nothing.
class LineFile {
 public:
  std::string open(const std::string& path);
  bool is_open() const { return file_ != nullptr; }
  std::string write(const std::string& line);
  std::string close();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// Reads what a session would see next, in all layers.
qsf_code read_visible(QSFSession* session, const qsf_model_info& info, VisiblePositions& visible,
                      qsf_error& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PERPLEXITY_PERPLEXITY_RECORD_H_
