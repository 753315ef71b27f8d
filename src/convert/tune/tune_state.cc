// SPDX-License-Identifier: MIT

#include "convert/tune/tune_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "io/atomic_file.h"
#include "io/file.h"

namespace qsf {
namespace {

constexpr std::string_view kMagicAndVersion("QSFTUNE\1", 8);

// Far from any that is found: a field keeps its sign.
constexpr float kLargestFactor = 0.75F;

template <typename T>
MutableByteSpan bytes_of(T& value) noexcept {
  return std::as_writable_bytes(std::span(&value, 1));
}

Status damaged(const std::string& path) {
  return corrupt("%s: not the state of this tuning, or damaged; remove this file and run again",
                 path.c_str());
}

}  // namespace

std::vector<MutableByteSpan> TuneState::parts() {
  return {bytes_of(n_steps),
          bytes_of(n_done),
          bytes_of(before),
          bytes_of(least),
          bytes_of(is_measured),
          std::as_writable_bytes(std::span(factors)),
          std::as_writable_bytes(std::span(means)),
          std::as_writable_bytes(std::span(squares)),
          std::as_writable_bytes(std::span(best))};
}

Status TuneState::read(const std::string& path, FileOps& ops) {
  const auto file = File::open(path, ops);
  if (!file && file.error().code() == StatusCode::kNotFound) return ok_status();
  if (!file) return Status(file.error());
  const std::uint64_t expected_steps = n_steps;
  std::uint32_t crc = 0;
  std::uint32_t stored = 0;
  std::uint64_t n_bytes = kMagicAndVersion.size() + sizeof crc;
  for (const MutableByteSpan part : parts()) n_bytes += part.size();
  if (file->size_bytes() != n_bytes) return damaged(path);
  std::array<std::byte, kMagicAndVersion.size()> start;
  QSF_RETURN_IF_ERROR(file->read_exact_at(0, start));
  std::uint64_t at = start.size();
  for (const MutableByteSpan part : parts()) {
    QSF_RETURN_IF_ERROR(file->read_exact_at(at, part));
    crc = crc32(part, crc);
    at += part.size();
  }
  QSF_RETURN_IF_ERROR(file->read_exact_at(at, bytes_of(stored)));
  if (as_text(start) == kMagicAndVersion && crc == stored && n_steps == expected_steps &&
      n_done <= n_steps) {
    return ok_status();
  }
  return damaged(path);
}

Status TuneState::write(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, ops));
  QSF_RETURN_IF_ERROR(file.write_at(0, as_bytes(kMagicAndVersion)));
  std::uint64_t at = kMagicAndVersion.size();
  std::uint32_t crc = 0;
  for (const MutableByteSpan part : parts()) {
    QSF_RETURN_IF_ERROR(file.write_at(at, part));
    crc = crc32(part, crc);
    at += part.size();
  }
  QSF_RETURN_IF_ERROR(file.write_at(at, bytes_of(crc)));
  return file.commit();
}

// The first moments are biased towards 0, which is what the divisors undo.
void TuneState::step(std::span<const float> gradients, float learning_rate) noexcept {
  constexpr float kMeanDecay = 0.9F;
  constexpr float kSquareDecay = 0.95F;
  constexpr float kEpsilon = 1e-8F;
  QSF_CHECK(gradients.size() == factors.size() && n_done < n_steps);
  ++n_done;
  double mean_left = 1.0;
  double square_left = 1.0;
  for (std::uint64_t i = 0; i < n_done && mean_left + square_left > 1e-9; ++i) {
    mean_left *= static_cast<double>(kMeanDecay);
    square_left *= static_cast<double>(kSquareDecay);
  }
  const auto mean_scale = static_cast<float>(1.0 / (1.0 - mean_left));
  const auto square_scale = static_cast<float>(1.0 / (1.0 - square_left));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const float g = gradients[i];
    means[i] = kMeanDecay * means[i] + (1.0F - kMeanDecay) * g;
    squares[i] = kSquareDecay * squares[i] + (1.0F - kSquareDecay) * g * g;
    const float size = std::sqrt(squares[i] * square_scale) + kEpsilon;
    factors[i] = std::clamp(factors[i] - learning_rate * means[i] * mean_scale / size,
                            -kLargestFactor, kLargestFactor);
  }
}

}  // namespace qsf
