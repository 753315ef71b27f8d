// SPDX-License-Identifier: MIT
//
// The progress of tuning: factors, the moments of Adam (Kingma and Ba, 2015), and the best factors
// so far, saved to a file so that an interrupted conversion resumes with the same bytes.

#ifndef QSF_CONVERT_TUNE_TUNE_STATE_H_
#define QSF_CONVERT_TUNE_TUNE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/file_ops.h"

namespace qsf {

struct TuneState {
  // `steps`: those of the whole run, which a saved state has to be of.
  TuneState(std::size_t n_factors, std::uint64_t steps)
      : n_steps(steps), factors(n_factors), means(n_factors), squares(n_factors), best(n_factors) {}

  // Reads what write() saved of such a run. Without a file the state does not change.
  // Fails  kCorrupt on a damaged file or one of another run; kIo. The state is then invalid
  Status read(const std::string& path, FileOps& ops = system_file_ops());
  // Fails  kIo; an older file is kept
  Status write(const std::string& path, FileOps& ops = system_file_ops());

  // A step of Adam against the gradients, and the next of `n_done`.
  // Shapes  gradients [n_factors]
  void step(std::span<const float> gradients, float learning_rate) noexcept;

  std::uint64_t n_steps;
  std::uint64_t n_done = 0;
  double before = 0.0;            // the divergence of no factors
  double least = 0.0;             // that of the best factors
  std::uint64_t is_measured = 0;  // whether these two are known
  std::vector<float> factors;
  std::vector<float> means, squares;  // of gradients
  std::vector<float> best;

 private:
  std::vector<MutableByteSpan> parts();
};

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_TUNE_STATE_H_
