// SPDX-License-Identifier: MIT
//
// PeftAdapter: a PEFT folder (adapter_config.json and adapter_model.safetensors) as an adapter of a
// model in .qsf order.
//
// A pair of a fused projection becomes one for each of its parts, with the same A. Rows of families
// whose RoPE rotates neighbours are reordered, as those of the base were. fan_in_fan_out needs no
// care: it tells how the base is stored, and pairs are stored alike.
//
// Based on: PEFT's documentation, "PEFT checkpoint format".

#ifndef QSF_IMPORT_HF_PEFT_ADAPTER_H_
#define QSF_IMPORT_HF_PEFT_ADAPTER_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "format/adapter_spec.h"
#include "format/adapter_writer.h"
#include "format/model_spec.h"
#include "import/hf/peft_config.h"
#include "import/hf/peft_modules.h"
#include "import/safetensors.h"
#include "io/file.h"

namespace qsf {

inline constexpr const char* kPeftConfigName = "adapter_config.json";
inline constexpr const char* kPeftWeightsName = "adapter_model.safetensors";

// Returns whether a folder has an adapter_config.json.
bool is_peft_folder(const std::string& folder, FileOps& ops = system_file_ops());

class PeftAdapter final : public AdapterValues {
 public:
  // Opens a folder and checks names, shapes and ranks against the configuration and the base.
  // Requires  validate(base) is OK; `ops` outlives the adapter
  // Fails     kNotFound without one of the files; kCorrupt on a missing half of a pair, or ranks
  //           that disagree; kInvalidArgument where the base has no such layer or another shape;
  //           kUnsupported, naming it, on a feature, a module, a dtype; kIo. Messages begin with
  //           the folder or a file in it
  static Result<PeftAdapter> open(const std::string& folder, const ModelSpec& base,
                                  FileOps& ops = system_file_ops());

  // Named as the folder; base_fingerprint is 0; types are f32. validate() of it is OK.
  const AdapterSpec& spec() const noexcept { return spec_; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  Status read_pair(std::size_t index, std::span<float> a, std::span<float> b) const override;

 private:
  // The stored halves of a pair; those of a fused module belong to several.
  struct Source {
    const StoredTensor* a = nullptr;
    const StoredTensor* b = nullptr;
    OutputRows outputs;
  };
  friend class PeftAdapterMapper;

  PeftAdapter(ModelSpec base, SafetensorsModel weights)
      : base_(std::move(base)), weights_(std::move(weights)) {}

  ModelSpec base_;
  SafetensorsModel weights_;
  AdapterSpec spec_;
  std::vector<Source> sources_;  // of spec_.pairs
  std::vector<std::string> warnings_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_PEFT_ADAPTER_H_
