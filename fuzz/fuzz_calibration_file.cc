// SPDX-License-Identifier: MIT
//
// Any bytes as a calibration file, the checksum not enforced: refused, or what it promises; and
// what is read is written as it was. Needs qsf_calibration_files. Seeds: scripts/check/fuzz.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "convert/calibrate/calibration.h"
#include "convert/calibrate/calibration_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto read = qsf::decode_calibration(bytes, {.verify_crc = false});
  if (!read) return 0;
  QSF_CHECK(read->layers.size() == read->model.n_layers);
  QSF_CHECK(qsf::column_importance(*read).has_value());
  for (const float value : qsf::layer_importance(*read)) QSF_CHECK(value > 0.0F);
  QSF_CHECK(qsf::check_calibrated(*read, read->model).ok());
  const std::vector<std::byte> written = qsf::encode_calibration(*read);
  constexpr std::size_t kCrcBytes = 4;
  QSF_CHECK(written.size() == size);
  QSF_CHECK(std::equal(written.begin(), written.end() - kCrcBytes, bytes.begin()));
  return 0;
}
