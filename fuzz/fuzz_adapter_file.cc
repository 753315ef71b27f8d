// SPDX-License-Identifier: MIT
//
// Any bytes as an adapter file, the checksums not enforced: refused, or what it promises. Seeds:
// scripts/check/fuzz.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "format/adapter_reader.h"
#include "io/testing/faulty_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  qsf::MemoryFileOps ops(std::as_bytes(std::span(data, size)));
  const auto reader =
      qsf::AdapterReader::open(qsf::File::open("a.qsfa", ops).value(), {.verify_crc = false});
  if (!reader) return 0;
  QSF_CHECK(qsf::validate(reader->spec()).ok());
  QSF_CHECK(reader->values_bytes() <= size);
  for (std::size_t i = 0; i < reader->spec().pairs.size(); ++i) {
    const qsf::AdapterPair& pair = reader->spec().pairs[i];
    std::vector<std::byte> stored(qsf::adapter_pair_bytes(pair));
    if (!reader->read_pair(i, stored).ok()) continue;
    std::vector<float> a(pair.a_values());
    qsf::decode_adapter_values(
        qsf::ByteSpan(stored).first(a.size() * qsf::adapter_value_bytes(pair.type)), pair.type, a);
    QSF_CHECK(std::all_of(a.begin(), a.end(), [](float value) { return std::isfinite(value); }));
  }
  return 0;
}
