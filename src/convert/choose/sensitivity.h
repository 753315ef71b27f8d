// SPDX-License-Identifier: MIT
//
// Sensitivity measurement: the divergence of the model when one group of its matrices is quantised.
// Each group in turn is stored at two widths in a temporary .qsf file that keeps all other weights;
// the engine runs it, and its distributions are compared with those of the original model.
//
// Work   at most 2 * kMaxGroups measurements; each writes a copy of the model and runs some hundred
//        rows
// Based on: docs/decisions/037-target-size.md

#ifndef QSF_CONVERT_CHOOSE_SENSITIVITY_H_
#define QSF_CONVERT_CHOOSE_SENSITIVITY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/calibrate/calibration.h"
#include "convert/calibrate/collect_statistics.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Matrices that are measured together: one kind in neighbouring layers.
struct TensorGroup {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t first_layer = 0;
  std::uint32_t n_layers = 1;
  std::vector<SourcePlace> members;
};

// Single matrices if there are at most this many, otherwise bands of layers.
inline constexpr std::size_t kMaxGroups = 64;

// Returns the groups of all matrices whose type is a choice: not position embeddings and natively
// ternary matrices. In the order of the file by first member.
// Fails  as ModelSource::read_rows
Result<std::vector<TensorGroup>> sensitivity_groups(const ModelSource& source);

// The formats of each group: one with large, interacting errors and one with small errors.
inline constexpr BlockFormat kProbeFormats[] = {{QuantType::kQ2Super, 64},
                                                {QuantType::kQ4Super, 64}};

// Returns the rows of every measurement: as many as keep all measurements within 2e12
// multiplications, at least 256 and at most 2048, and no more than fit their logits into an eighth
// of the budget.
std::uint64_t probe_rows(const ModelSpec& spec, std::uint64_t n_weights, std::size_t n_probes,
                         std::uint64_t budget_bytes) noexcept;

struct SensitivityOptions {
  CollectOptions collect;      // how the engine runs; on_progress is not called
  TranscodeOptions transcode;  // of the temporary files, with importance where it is known
  // Called after every measurement, when `calibration` holds it; an error ends the series.
  std::function<Status(std::size_t done, std::size_t total)> on_probe;
};

// Measures and stores the results in `calibration`. Results of the same rows that it already has,
// from the first on, are not measured again. Temporary files lie beside `output`.
// Requires  tokens as StatisticsCollector::run()
// Fails     as transcode() and Engine::open(); temporary files are removed
Status measure_sensitivities(const ModelSource& source, std::span<const TokenId> tokens,
                             const std::string& output, const SensitivityOptions& options,
                             Calibration& calibration);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_SENSITIVITY_H_
