// SPDX-License-Identifier: MIT
//
// Sensitivities: what a model loses when some of its matrices are rounded, measured. Groups of
// matrices, each in turn, are stored at two widths in a temporary .qsf file that otherwise keeps
// the weights as they are; the engine runs it, and its distributions are compared with those of the
// model itself.
//
// Work   a copy of the model is written and some hundred rows are run for each of at most
//        2 * kMaxGroups probes
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

// Matrices that are probed together: those of one kind in neighbouring layers.
struct TensorGroup {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t first_layer = 0;
  std::uint32_t n_layers = 1;
  std::vector<SourcePlace> members;
};

// Matrices by themselves where there are so few, otherwise bands of layers.
inline constexpr std::size_t kMaxGroups = 64;

// Returns the groups of all matrices whose type is a choice: not position embeddings and natively
// ternary matrices. In the order of the file by first member.
// Fails  as ModelSource::read_rows
Result<std::vector<TensorGroup>> sensitivity_groups(const ModelSource& source);

// What each group is rounded to: where errors are large and interact, and where they are small.
inline constexpr BlockFormat kProbeFormats[] = {{QuantType::kQ2Super, 64},
                                                {QuantType::kQ4Super, 64}};

// Returns how many rows every probe runs: as many as keep all probes together to 2e12
// multiplications, at least 256 and at most 2048; in any case no more than have room for their
// logits in an eighth of the budget.
std::uint64_t probe_rows(const ModelSpec& spec, std::uint64_t n_weights, std::size_t n_probes,
                         std::uint64_t budget_bytes) noexcept;

struct SensitivityOptions {
  GatherOptions gather;        // how the engine runs; on_progress is not called
  TranscodeOptions transcode;  // of the temporary files, with importance where it is known
  // Behind every probe, which `calibration` has by then; ends the measurement when it fails.
  std::function<Status(std::size_t done, std::size_t total)> on_probe;
};

// Measures, and fills in what of `calibration` comes of it; probes of the same rows that it has
// already, from the first on, are not run again. `output` is the path beside which
// temporary files have a name while they are written.
// Requires  tokens as Gatherer::run()
// Fails     as transcode() and Engine::open(); nothing is left then
Status measure_sensitivities(const ModelSource& source, std::span<const TokenId> tokens,
                             const std::string& output, const SensitivityOptions& options,
                             Calibration& calibration);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_SENSITIVITY_H_
