// SPDX-License-Identifier: MIT
//
// --target-size: chooses the format of every matrix so that the file has at most the given size and
// the divergence from the original model is small.
//
// The divergence that a format causes in a matrix is estimated from the sensitivity of its group:
// the divergences measured at two formats, interpolated by the weighted errors of the formats. The
// estimates of all matrices are added up.
//
// Based on: docs/decisions/037-target-size.md, with the measurements.

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

// The choice for one matrix.
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

// Returns the divergence at a weighted error from measured ones: log-log interpolation between two,
// proportional to the error beyond them.
// Shapes  errors, divergences [n], n at least 1, in any order
double interpolate_divergence(std::span<const double> errors, std::span<const double> divergences,
                              double error);

// Plans a file of at most max_bytes with options.layout, tile_bytes and tokenizer. With a
// vocabulary_type, embedding and head have that type. options.formats is ignored.
// Requires  calibration.probes come from measure_sensitivities() on this source
// Fails     kInvalidArgument if no allocation is that small, naming the smallest size, or if probes
//           of a matrix are missing; as ModelSource::read_rows, kCancelled
Result<TargetPlan> plan_target_size(const ModelSource& source, const Calibration& calibration,
                                    const TranscodeOptions& options, std::uint64_t max_bytes);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_TARGET_SIZE_H_
