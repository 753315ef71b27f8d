// SPDX-License-Identifier: MIT
//
// RunState: how far Gatherer::run() has come and what it has summed by then, which a file keeps for
// a run that is started again (decision 033).

#ifndef QSF_CONVERT_CALIBRATE_RUN_STATE_H_
#define QSF_CONVERT_CALIBRATE_RUN_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "convert/calibrate/column_sums.h"
#include "format/model_spec.h"
#include "io/file_ops.h"

namespace qsf {

struct RunState {
  RunState(const ModelSpec& spec, std::size_t n_windows)
      : losses(n_windows), skip_losses(spec.n_layers), sums(spec) {}

  // Reads what write() has written for a run of the same model and as many windows; leaves all as
  // it is where there is no file.
  // Fails  kCorrupt on a file of another run, or a damaged one; kIo. Useless then
  Status read(const std::string& path, FileOps& ops = system_file_ops());
  // Fails  kIo; an older file is left then
  Status write(const std::string& path, FileOps& ops = system_file_ops());

  std::uint64_t n_summed = 0;       // windows
  std::uint64_t n_skipped = 0;      // layers that were left out
  std::vector<double> losses;       // of the windows, in nats
  std::vector<double> skip_losses;  // of the windows that run without a layer, more than with it
  ColumnSums sums;

 private:
  std::vector<MutableByteSpan> parts();
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_RUN_STATE_H_
