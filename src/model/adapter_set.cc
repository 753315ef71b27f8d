// SPDX-License-Identifier: MIT

#include "model/adapter_set.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/check.h"
#include "quant/block_format.h"
#include "stream/weight_pager.h"

namespace qsf {
namespace {

bool comes_before(const MatrixRef& a, const MatrixRef& b) noexcept {
  return std::tie(a.section, a.tensor) < std::tie(b.section, b.tensor);
}

std::uint64_t grouped_b_bytes(const AdapterPair& pair) noexcept {
  const std::uint64_t n_values = std::uint64_t{align_up(pair.out, kRowGroup)} * pair.rank;
  return align_up(n_values * adapter_value_bytes(pair.type), kAdapterAlign);
}

// What read_pair() writes and what is kept of it.
std::uint64_t loaded_bytes(const AdapterPair& pair) noexcept {
  return adapter_a_bytes(pair) + std::max(adapter_b_bytes(pair), grouped_b_bytes(pair));
}

// Transposes each group of 16 rows where it lies; rows behind the last are zeros.
// Shapes  from [rows, rank]; to [groups][rank][16]
void group_rows(std::byte* b, const AdapterPair& pair, std::span<std::byte> scratch) {
  const std::size_t value_bytes = adapter_value_bytes(pair.type);
  const std::size_t row_bytes = pair.rank * value_bytes;
  for (std::uint32_t first = 0; first < pair.out; first += kRowGroup) {
    const std::uint32_t n_rows = std::min<std::uint32_t>(kRowGroup, pair.out - first);
    std::byte* const group = b + first * row_bytes;
    std::fill(scratch.begin(), scratch.end(), std::byte{0});
    std::memcpy(scratch.data(), group, n_rows * row_bytes);
    for (std::size_t r = 0; r < pair.rank; ++r) {
      for (std::size_t row = 0; row < kRowGroup; ++row) {
        std::memcpy(group + (r * kRowGroup + row) * value_bytes,
                    scratch.data() + row * row_bytes + r * value_bytes, value_bytes);
      }
    }
  }
}

// The matrix that a pair changes. Requires  check_adapter_fits()
MatrixRef matrix_of(const AdapterPair& pair, const QsfReader& base) {
  const std::uint32_t n_layers = base.n_layers();
  std::uint32_t section = layer_section(pair.layer);
  TensorKind kind = pair.kind;
  if (kind == TensorKind::kHead) {
    const bool tied = base.spec().tied_head;
    section = tied ? embedding_section() : final_section(n_layers);
    if (tied) kind = TensorKind::kTokenEmbedding;
  }
  const auto tensor =
      base.directories()[section].find(kind, static_cast<std::uint16_t>(pair.expert));
  QSF_CHECK(tensor.has_value());
  return {section, static_cast<std::uint32_t>(*tensor), pair.out, pair.in};
}

}  // namespace

std::uint64_t AdapterSet::region_bytes(std::span<const AdapterReader> adapters) noexcept {
  std::uint64_t n_bytes = 0;
  for (const AdapterReader& adapter : adapters) {
    for (const AdapterPair& pair : adapter.spec().pairs) n_bytes += loaded_bytes(pair);
  }
  return n_bytes;
}

std::uint64_t AdapterSet::heap_bytes(std::span<const AdapterReader> adapters) noexcept {
  std::uint64_t n_bytes = 0;
  for (const AdapterReader& adapter : adapters) {
    const std::uint64_t n_pairs = adapter.spec().pairs.size();
    n_bytes += n_pairs * sizeof(Entry);
  }
  return n_bytes;
}

std::uint32_t AdapterSet::max_rank(std::span<const AdapterReader> adapters) noexcept {
  std::uint32_t rank = 0;
  for (const AdapterReader& adapter : adapters) {
    for (const AdapterPair& pair : adapter.spec().pairs) rank = std::max(rank, pair.rank);
  }
  return rank;
}

Result<AdapterSet> AdapterSet::load(std::span<const AdapterReader> adapters, const QsfReader& base,
                                    MutableByteSpan region) {
  QSF_CHECK(region.size() >= region_bytes(adapters));
  AdapterSet set;
  set.max_rank_ = max_rank(adapters);
  std::vector<std::byte> scratch;
  std::size_t at = 0;
  for (const AdapterReader& adapter : adapters) {
    std::vector<Entry>& entries = set.adapters_.emplace_back();
    entries.reserve(adapter.spec().pairs.size());
    for (std::size_t i = 0; i < adapter.spec().pairs.size(); ++i) {
      const AdapterPair& pair = adapter.spec().pairs[i];
      std::byte* const a = region.data() + at;
      QSF_RETURN_IF_ERROR(
          adapter.read_pair(i, {a, static_cast<std::size_t>(adapter_pair_bytes(pair))}));
      std::byte* const b = a + adapter_a_bytes(pair);
      scratch.resize(kRowGroup * pair.rank * adapter_value_bytes(pair.type));
      group_rows(b, pair, scratch);
      entries.push_back({matrix_of(pair, base),
                         {.a = a,
                          .b = b,
                          .rank = pair.rank,
                          .scale = pair.scale,
                          .halves = pair.type == AdapterType::kF16}});
      at += loaded_bytes(pair);
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& x, const Entry& y) { return comes_before(x.matrix, y.matrix); });
  }
  return set;
}

LowRankPair AdapterSet::find(std::uint32_t adapter, const MatrixRef& matrix) const noexcept {
  const std::vector<Entry>& entries = adapters_[adapter];
  const auto place = std::lower_bound(
      entries.begin(), entries.end(), matrix,
      [](const Entry& e, const MatrixRef& m) { return comes_before(e.matrix, m); });
  const bool found = place != entries.end() && !comes_before(matrix, place->matrix);
  return found ? place->pair : LowRankPair{};
}

}  // namespace qsf
