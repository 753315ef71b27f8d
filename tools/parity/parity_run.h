// SPDX-License-Identifier: MIT
//
// One comparison from beginning to end: opens both sides, compares their tokens, then their logits
// row by row, then greedy tokens, and keeps everything that the receipt records.

#ifndef QSF_TOOLS_PARITY_PARITY_RUN_H_
#define QSF_TOOLS_PARITY_PARITY_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "tools/parity/parity_options.h"
#include "tools/parity/parity_result.h"
#include "tools/parity/parity_source.h"
#include "tools/parity/parity_trace.h"

namespace qsf_tools {

class ParityRun {
 public:
  explicit ParityRun(const ParityOptions& options);

  // Compares. What goes wrong ends the comparison and stands in result().failure.
  void compare();
  // Writes traces, kernel records and recorded logits, where they are asked for.
  qsf::Status write_outputs();

  const ParityOptions& options() const noexcept { return options_; }
  const ParityResult& result() const noexcept { return result_; }
  const ParityObserver& observer() const noexcept { return observer_; }
  const EngineSource* ours() const noexcept { return ours_.get(); }
  const LogitsSource* reference() const noexcept { return reference_.get(); }
  // The .qsf file that ours() reads: the model, or what a GGUF model was converted to.
  const std::string& engine_path() const noexcept { return engine_path_; }
  double ours_seconds() const noexcept { return ours_seconds_; }
  double reference_seconds() const noexcept { return reference_seconds_; }
  // Of the file that write_outputs() wrote; empty: none.
  const std::string& kernel_records_sha256() const noexcept { return kernel_records_sha256_; }

 private:
  qsf::Status open_sources();
  qsf::Status open_reference(std::uint32_t context);
  qsf::Status find_tokens();
  qsf::Status check_ids() const;
  qsf::Status begin_recording();
  qsf::Status compare_prompt();
  qsf::Status compare_greedy();
  // Evaluates on one side, which may be absent, into rows of its buffer.
  qsf::Status evaluate_ours(std::span<const std::uint32_t> tokens, bool generated);
  qsf::Status evaluate_reference(std::span<const std::uint32_t> tokens, bool generated);
  qsf::Status record(std::size_t n_rows);
  std::span<const float> row_of(const std::vector<float>& logits, std::size_t row) const;
  bool comparing() const noexcept { return !options_.reference.empty(); }

  const ParityOptions& options_;
  std::string engine_path_;
  ParityResult result_;
  ParityObserver observer_;
  ParityObserver reference_observer_;
  std::unique_ptr<EngineSource> ours_;
  std::unique_ptr<LogitsSource> reference_;
  std::optional<LogitsRecorder> recorder_;
  std::vector<float> ours_logits_;       // rows of the evaluation in work
  std::vector<float> reference_logits_;  // the same
  std::size_t last_row_ = 0;             // of both buffers: what a greedy token is chosen from
  double ours_seconds_ = 0.0;
  double reference_seconds_ = 0.0;
  std::string kernel_records_sha256_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_RUN_H_
