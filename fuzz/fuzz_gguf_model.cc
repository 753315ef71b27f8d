// SPDX-License-Identifier: MIT
//
// Any bytes as a GGUF model: opened, and rows of every tensor read, as f32 and as they are kept.
// Needs qsf_import_models and qsf_io_testing.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "import/gguf/gguf_model.h"
#include "io/testing/faulty_file.h"
#include "quant/codec.h"

namespace {

// Reads the first and the last rows of a tensor. What reads without a failure is finite, and what
// is kept decodes to the same; a zero of Q4_0 may lose its sign.
void read_tensor(const qsf::GgufModel& model, qsf::SectionKind section, std::uint32_t layer,
                 std::size_t tensor) {
  const qsf::SourceTensor& t = model.tensors(section, layer)[tensor];
  constexpr std::uint64_t kMaxWeights = 1U << 20;
  if (t.rows == 0 || t.cols == 0) std::abort();
  if (t.cols > kMaxWeights) return;
  std::vector<float> row(t.cols);
  for (const std::uint32_t r : {0U, t.rows - 1}) {
    const bool read = model.read_rows(section, layer, tensor, r, row).ok();
    if (read && !std::all_of(row.begin(), row.end(), [](float w) { return std::isfinite(w); })) {
      std::abort();
    }
    if (t.rows == 1) return;
    const auto format = model.kept_format(section, layer, tensor);
    if (!format || qsf::is_float_type(format->type)) continue;
    if (!qsf::is_valid(*format)) std::abort();
    std::vector<std::byte> kept(qsf::row_major_bytes(*format, t.cols));
    if (!model.read_kept_rows(section, layer, tensor, r, 1, kept).ok() || !read) continue;
    std::vector<float> decoded(t.cols);
    qsf::decode_row(*format, kept, decoded);
    if (decoded != row) std::abort();
  }
}

void read_model(qsf::ByteSpan file, qsf::ModelPart part) {
  using namespace qsf;
  MemoryFileOps ops(file);
  const auto opened = GgufModel::open("model.gguf", I2sLayout::kAuto, ops, part);
  if (!opened) return;
  const GgufModel& model = **opened;
  // Whatever is accepted is a specification that the writer takes.
  if (!validate(model.spec()).ok()) std::abort();
  const auto read_section = [&](SectionKind section, std::uint32_t layer) {
    const std::size_t n = model.tensors(section, layer).size();
    for (std::size_t i = 0; i < n; ++i) read_tensor(model, section, layer, i);
  };
  read_section(SectionKind::kEmbedding, 0);
  for (std::uint32_t layer = 0; layer < model.spec().n_layers; ++layer) {
    read_section(SectionKind::kLayer, layer);
  }
  read_section(SectionKind::kFinal, 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  const qsf::ByteSpan file = std::as_bytes(std::span(data, n_bytes));
  for (const qsf::ModelPart part : {qsf::ModelPart::kModel, qsf::ModelPart::kMtpBlock}) {
    read_model(file, part);
  }
  return 0;
}
