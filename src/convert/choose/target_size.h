// SPDX-License-Identifier: MIT
//
// The formats of a model's matrices such that its file has at most so many bytes and its
// next-token distributions stay as close as that allows.
//
// What a format costs a matrix is estimated from the probes of its group: the divergence that was
// measured at two formats, carried over to others by their weighted errors. Costs of matrices are
// added up.
//
// Based on: docs/decisions/037-target-size.md, which has the measurements behind it.

#ifndef QSF_CONVERT_CHOOSE_TARGET_SIZE_H_
#define QSF_CONVERT_CHOOSE_TARGET_SIZE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "convert/calibrate/calibration.h"
#include "convert/encode/transcode.h"
#include "convert/encode/transcode_types.h"
#include "import/model_source.h"

namespace qsf {

// What became of one matrix.
struct TargetTensor {
  SourcePlace place;
  BlockFormat format{QuantType::kF32, 4};
  std::uint64_t bytes = 0;  // in the file
  double divergence = 0.0;  // estimated, in nats
};

struct TargetPlan {
  TensorFormats formats;
  std::vector<TargetTensor> tensors;  // those whose type was a choice, in the order of the file
  std::uint64_t file_bytes = 0;       // without compression
  double divergence = 0.0;            // estimated, of all
};

// Returns the divergence at a weighted error, from those measured at others: between two of them on
// the straight line of their logarithms, beyond in proportion to the error.
// Shapes  errors, divergences [n], n at least 1, in any order
double interpolate_divergence(std::span<const double> errors, std::span<const double> divergences,
                              double error);

// Plans a file of at most max_bytes with options.layout, tile_bytes and tokenizer; with a
// vocabulary_type, embedding and head have that. options.formats is not heeded.
// Requires  calibration.probes are those of measure_sensitivities() on this source
// Fails     kInvalidArgument where no allocation is so small, naming the smallest size; where
// probes
//           of a matrix are missing; as ModelSource::read_rows, kCancelled
Result<TargetPlan> plan_target_size(const ModelSource& source, const Calibration& calibration,
                                    const TranscodeOptions& options, std::uint64_t max_bytes);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_TARGET_SIZE_H_
