// SPDX-License-Identifier: MIT
//
// Routings of a mixture of experts in files: which experts each row of a text chose, layer by
// layer, to be recorded from one model and replayed on another.
//
// A file is text. Its first line is "qsf-routing 1", then a line for each row and layer, in the
// order in which passes ran:
//
//   p 3 17:0.21 4:0.17 ; 90:-1.52 33:-1.6
//
// a row of a prompt (g: a generated one) at layer 3, the experts that it took with their weights,
// the best first, and behind the semicolon the next ones with the router's scores. Where the row's
// experts were guessed before the layer ran, the guesses follow, the surest first:
//
//   g 3 17:0.21 4:0.17 ; 90:-1.52 33:-1.6 > 4 90
//
// A replay reads layers, experts and guesses alone, and of these as many as the model takes.

#ifndef QSF_TOOLS_BENCH_BENCH_ROUTING_H_
#define QSF_TOOLS_BENCH_BENCH_ROUTING_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "format/model_spec.h"
#include "model/expert_router.h"

namespace qsf_tools {

// Gives rows the experts of a file: the n-th row at a layer those of the layer's n-th line, and
// from its end on those of its beginning. Weights stay the ones of the router, by rank.
class RoutingReplay final : public qsf::RoutingHook {
 public:
  // Fails  kIo; kInvalidArgument, naming the line, for a file that does not fit the model
  static qsf::Result<std::unique_ptr<RoutingReplay>> read(const std::string& path,
                                                          const qsf::ModelSpec& spec);
  void routed(std::uint32_t layer, const qsf::Row& row, std::span<const float> scores,
              std::span<qsf::ExpertChoice> chosen) override;
  void guessed(std::uint32_t layer, const qsf::Row& row,
               std::span<qsf::ExpertChoice> guessed) override;

 private:
  explicit RoutingReplay(const qsf::ModelSpec& spec);
  qsf::Status add_line(const std::string& line);
  qsf::Status add_experts(std::istringstream& text, std::vector<std::uint32_t>& all) const;

  std::uint32_t n_experts_;
  std::uint32_t n_used_;
  // By layer: the experts and the guesses of its lines, the next line, and how many lines beyond it
  // were guessed.
  std::vector<std::vector<std::uint32_t>> experts_;  // [rows, n_used_]
  std::vector<std::vector<std::uint32_t>> guesses_;  // the same
  std::vector<std::size_t> next_;
  std::vector<std::size_t> n_guessed_;
};

// Writes what rows choose to a file.
class RoutingRecorder final : public qsf::RoutingHook {
 public:
  // Fails  kIo when the file cannot be created
  static qsf::Result<std::unique_ptr<RoutingRecorder>> create(const std::string& path);
  void routed(std::uint32_t layer, const qsf::Row& row, std::span<const float> scores,
              std::span<qsf::ExpertChoice> chosen) override;
  void guessed(std::uint32_t layer, const qsf::Row& row,
               std::span<qsf::ExpertChoice> guessed) override;
  // Ends the file. Fails  kIo when it is incomplete
  qsf::Status finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  RoutingRecorder(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<std::vector<std::uint32_t>> guesses_;  // of rows whose layer is about to run
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_ROUTING_H_
