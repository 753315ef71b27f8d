// SPDX-License-Identifier: MIT
//
// Any bytes as a GGUF adapter of a small LLaMA: refused, or an adapter that the writer would take,
// with values that are finite. Seeds: scripts/check/fuzz.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "fuzz/adapted_model.h"
#include "import/gguf/gguf_adapter.h"
#include "io/testing/faulty_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  qsf::MemoryFileOps ops(std::as_bytes(std::span(data, size)));
  const auto adapter = qsf::GgufAdapter::open("a.gguf", qsf_fuzz::adapted_model("llama"), ops);
  if (!adapter) return 0;
  QSF_CHECK(qsf::validate(adapter->spec()).ok());
  for (std::size_t i = 0; i < adapter->spec().pairs.size(); ++i) {
    const qsf::AdapterPair& pair = adapter->spec().pairs[i];
    QSF_CHECK(pair.in <= 12 && pair.out <= 12);
    std::vector<float> a(pair.a_values());
    std::vector<float> b(pair.b_values());
    if (!adapter->read_pair(i, a, b).ok()) continue;
    QSF_CHECK(std::all_of(b.begin(), b.end(), [](float value) { return std::isfinite(value); }));
  }
  return 0;
}
