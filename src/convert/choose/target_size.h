// SPDX-License-Identifier: MIT
//
// Chooses the format of every matrix so that the file has at most so many bytes and loses as little
// as possible.
//
// The cost of a format for a matrix is, with a calibration, an estimate of the divergence of the
// next-token distributions: measured at two formats for the matrix's group, and carried over to the
// other formats by their weighted errors. Without a calibration it is the relative squared error of
// the matrix times its share of the weights. The costs of all matrices are added.
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

// The choice for one matrix, or for those of all experts of a layer.
struct TargetTensor {
  SourcePlace place;  // the first expert's
  BlockFormat format{QuantType::kF32, 4};
  std::uint64_t bytes = 0;  // in the file
  double divergence = 0.0;  // the cost of the format: in nats, or a relative squared error
  std::uint32_t n_matrices = 1;

  std::uint64_t n_weights() const noexcept { return n_matrices * place.n_weights(); }
};

struct TargetPlan {
  TensorFormats formats;
  std::vector<TargetTensor> tensors;  // those whose type was a choice, in the order of the file
  std::uint64_t file_bytes = 0;       // without compression
  double divergence = 0.0;            // the sum of the costs
};

// Returns the divergence at a weighted error from measured ones: log-log interpolation between two,
// proportional to the error beyond them.
// Shapes  errors, divergences [n], n at least 1, in any order
double interpolate_divergence(std::span<const double> errors, std::span<const double> divergences,
                              double error);

// Plans a file of at most max_bytes with options.layout, tile_bytes and tokenizer. With a
// vocabulary_type, embedding and head have that type. options.formats is not used. on_progress is
// called once for each matrix that is measured.
// Requires  calibration.probes are those of measure_sensitivities() on this source
// Fails     kInvalidArgument where the smallest file is larger, naming its size, before anything is
//           measured; where probes of a matrix are missing; as ModelSource::read_rows, kCancelled
Result<TargetPlan> plan_target_size(const ModelSource& source, const Calibration& calibration,
                                    const TranscodeOptions& options, std::uint64_t max_bytes);

// The same without a calibration: the costs are the errors of the weights themselves.
Result<TargetPlan> plan_target_size_by_error(const ModelSource& source,
                                             const TranscodeOptions& options,
                                             std::uint64_t max_bytes);

// Returns the bytes of the smallest file that a plan can have. Measures no errors.
// Fails  as plan_target_size()
Result<std::uint64_t> smallest_target_size(const ModelSource& source,
                                           const TranscodeOptions& options);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_TARGET_SIZE_H_
