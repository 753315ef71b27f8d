// SPDX-License-Identifier: MIT
//
// EngineSource: our own engine as a source of logits.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_ENGINE_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "ops/operator_observer.h"
#include "tools/common/kv_type_choice.h"
#include "tools/parity/qsf_parity_source.h"

namespace qsf_tools {

struct EngineSourceOptions {
  std::string model;
  std::uint32_t context = 0;
  unsigned n_threads = 0;
  KvTypeChoice kv_types;
  bool exact = false;
  qsf::OperatorObserver* observer = nullptr;  // outlives the source
};

class EngineSource final : public LogitsSource {
 public:
  // Fails  as Engine::open
  static qsf::Result<std::unique_ptr<EngineSource>> open(const EngineSourceOptions& options);

  const qsf::Engine& engine() const noexcept { return *engine_; }
  const EngineSourceOptions& options() const noexcept { return options_; }

  std::uint32_t n_vocab() const override { return engine_->spec().n_vocab; }
  qsf::Result<std::vector<std::uint32_t>> tokenize(const std::string& text,
                                                   bool parse_special) override;
  qsf::Status evaluate(std::span<const std::uint32_t> tokens, bool generated,
                       std::span<float> logits) override;
  nlohmann::json describe() const override;

 private:
  EngineSource(EngineSourceOptions options, std::unique_ptr<qsf::Engine> engine);

  EngineSourceOptions options_;
  std::unique_ptr<qsf::Engine> engine_;
  std::unique_ptr<qsf::Session> session_;
};

// Returns what the receipt says of a model and its tokenizer: shape, types, special tokens.
nlohmann::json describe_model(const qsf::Engine& engine);
nlohmann::json describe_tokenizer(const qsf::Engine& engine);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_ENGINE_H_
