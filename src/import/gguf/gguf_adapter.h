// SPDX-License-Identifier: MIT
//
// GgufAdapter: a LoRA adapter in a GGUF file, as llama.cpp writes it, as an adapter of a model in
// .qsf order.
//
// A tensor NAME of the base has a pair NAME.lora_a, [in, rank] with the contiguous dimension first,
// and NAME.lora_b, [rank, out]. Rows are in the order of the base's GGUF file: fused projections
// are split, and query and key rows in pair order reordered, as GgufModel does with weights.
//
// Based on: llama.cpp (convert_lora_to_gguf.py and src/llama-adapter.cpp).

#ifndef QSF_IMPORT_GGUF_GGUF_ADAPTER_H_
#define QSF_IMPORT_GGUF_GGUF_ADAPTER_H_

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
#include "import/adapter_rows.h"
#include "import/gguf/gguf_file.h"

namespace qsf {

// Returns whether a GGUF file says that it is an adapter.
bool is_gguf_adapter(const GgufFile& file);

class GgufAdapter final : public AdapterValues {
 public:
  // Opens a file and checks keys, names and shapes against the base. The scale is alpha / rank;
  // an alpha of 0 means 1, as in llama.cpp.
  // Requires  validate(base) is OK; `ops` outlives the adapter
  // Fails     as GgufFile::open; kCorrupt on a missing key or half of a pair, or ranks that
  //           disagree; kInvalidArgument where the base has another architecture, no such layer or
  //           another shape; kUnsupported, naming it, on a file that is no LoRA adapter, a tensor
  //           or a type. Messages begin with the file's name
  static Result<GgufAdapter> open(const std::string& path, const ModelSpec& base,
                                  FileOps& ops = system_file_ops());

  // Named as the file, without ".gguf"; base_fingerprint is 0; types are f32. validate() is OK.
  const AdapterSpec& spec() const noexcept { return spec_; }

  Status read_pair(std::size_t index, std::span<float> a, std::span<float> b) const override;

 private:
  // The stored halves of a pair; those of a fused tensor belong to several.
  struct Source {
    const GgufFile::Entry* a = nullptr;
    const GgufFile::Entry* b = nullptr;
    OutputRows outputs;
  };
  friend class GgufAdapterMapper;

  GgufAdapter(ModelSpec base, GgufFile file) : base_(std::move(base)), file_(std::move(file)) {}
  Status read_rows(const GgufFile::Entry& entry, std::span<float> out) const;

  ModelSpec base_;
  GgufFile file_;
  AdapterSpec spec_;
  std::vector<Source> sources_;  // of spec_.pairs
};

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_ADAPTER_H_
