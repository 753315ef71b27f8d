// SPDX-License-Identifier: MIT
//
// Any text as adapter_config.json and, behind a zero, names of tensors, one a line: refused, or a
// finite scale for every module and rows of B that lie inside the stored matrix. Seeds:
// scripts/check/fuzz.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "format/adapter_spec.h"
#include "fuzz/adapted_model.h"
#include "import/hf/peft_config.h"
#include "import/hf/peft_modules.h"

namespace {

void check_name(std::string_view line, const qsf::Result<qsf::PeftConfig>& config) {
  const auto name = qsf::parse_peft_tensor_name(line);
  if (!name) return;
  if (config) {
    const auto scale = config->scale_of(name->module);
    QSF_CHECK(!scale || std::isfinite(*scale));
  }
  for (const std::string_view architecture : {"llama", "phi3", "gpt2", "falcon", "qwen3moe"}) {
    const qsf::ModelSpec spec = qsf_fuzz::adapted_model(architecture);
    const auto targets = qsf::find_peft_targets(spec, name->module);
    if (!targets) continue;
    for (const qsf::AdapterTarget& target : *targets) {
      QSF_CHECK(qsf::is_adaptable(target.kind) && target.layer < spec.n_layers);
      for (std::uint32_t row = 0; row < target.rows; ++row) {
        QSF_CHECK(qsf::stored_output(spec, target.outputs, row) < target.outputs.n_stored);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(text.find('\0'), size);
  const auto config = qsf::parse_peft_config(text.substr(0, zero));
  std::string_view names = text.substr(std::min(zero + 1, size));
  while (!names.empty()) {
    const std::size_t end = std::min(names.find('\n'), names.size());
    check_name(names.substr(0, end), config);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return 0;
}
