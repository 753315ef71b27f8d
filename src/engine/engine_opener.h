// SPDX-License-Identifier: MIT
//
// EngineOpener: makes an engine step by step; a step that fails leaves nothing behind.

#ifndef QSF_ENGINE_ENGINE_OPENER_H_
#define QSF_ENGINE_ENGINE_OPENER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "io/disk_probe.h"
#include "io/scratch_file.h"

namespace qsf {

class EngineOpener {
 public:
  explicit EngineOpener(const EngineOptions& options);
  ~EngineOpener();

  // Fails  as Engine::open
  Result<std::unique_ptr<Engine::Impl>> open(const std::string& path);
  // Fails  as Engine::plan_file
  Result<EnginePlan> plan(const std::string& path, bool with_memory_rate);

 private:
  const ModelSpec& spec() const;
  Status prepare(const std::string& path);
  Status read_directories(const std::string& path);
  Status leave_out_layers();
  Status take_cut();
  const SectionInfo* tokenizer_section() const;
  Status open_device(bool direct, unsigned depth);
  bool is_cold() const;
  unsigned n_queues() const;
  Status probe_disk();
  Status make_plan();
  Status make_plan_with_drafts();
  Status make_plan_with_lookup();
  Status make_spill_file();
  Status map_memory();
  Status load_tokenizer();
  Status load_weights();
  Status make_kv_store(const KvShape& shape);
  Status make_prefix_cache(const KvShape& shape);
  Status make_sparse_prefill_states();
  Status make_h2o_evictions();
  void make_states();
  Status attend_bidirectionally();
  void leave_out_prefix_cache(const char* reason);
  void choose_drafts();
  void leave_out_speculation(const char* reason);
  Status open_draft_model();
  void leave_out_draft_model(const std::string& path, const char* reason);
  Status make_speculation();
  Status leave_out_sketch(Status planned);
  Status make_head();
  Status make_decoder();
  void describe_reading();
  void log_plan() const;

  std::unique_ptr<Engine::Impl> impl_;
  MachineFacts machine_;
  std::optional<ProbeCell> disk_;  // the best way to read the disk; none: not measured
  bool reads_once_ = false;        // all weights, and no budget counts what reading takes
  bool fills_cache_ = false;
  std::uint64_t tokenizer_index_bytes_ = 0;
  std::unique_ptr<ScratchFile> spill_file_;  // until the KV store takes it
};

}  // namespace qsf

#endif  // QSF_ENGINE_ENGINE_OPENER_H_
