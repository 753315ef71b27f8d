// SPDX-License-Identifier: MIT

#include "format/adapter_writer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/crc32.h"
#include "base/ranges.h"
#include "format/adapter_layout.h"
#include "io/atomic_file.h"

namespace qsf {
namespace {

// Buffers of the largest pair so far, used again for the next.
struct PairBuffers {
  std::vector<float> a;
  std::vector<float> b;
  std::vector<std::byte> stored;
};

Status check_finite(const AdapterPair& pair, std::span<const float> values, const char* matrix) {
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return ok_status();
  return invalid_argument("%s: element %td of %s is %g, expected a finite number",
                          adapter_pair_label(pair).c_str(), bad - values.begin(), matrix,
                          static_cast<double>(*bad));
}

// Reads a pair, chooses its type and turns it into the bytes of the file.
Status load_pair(const AdapterValues& values, std::size_t index, AdapterPair& pair,
                 PairBuffers& buffers) {
  buffers.a.resize(pair.a_values());
  buffers.b.resize(pair.b_values());
  QSF_RETURN_IF_ERROR(values.read_pair(index, buffers.a, buffers.b));
  QSF_RETURN_IF_ERROR(check_finite(pair, buffers.a, "A"));
  QSF_RETURN_IF_ERROR(check_finite(pair, buffers.b, "B"));
  const bool exact = fits_f16(buffers.a) && fits_f16(buffers.b);
  pair.type = exact ? AdapterType::kF16 : AdapterType::kF32;
  buffers.stored.assign(adapter_pair_bytes(pair), std::byte{0});
  const MutableByteSpan stored = buffers.stored;
  const std::uint64_t n = adapter_value_bytes(pair.type);
  encode_adapter_values(buffers.a, pair.type, stored.first(n * buffers.a.size()));
  encode_adapter_values(buffers.b, pair.type,
                        stored.subspan(adapter_a_bytes(pair), n * buffers.b.size()));
  return ok_status();
}

void encode_entry(const AdapterPair& pair, std::uint32_t crc, MutableByteSpan entry) {
  store_le(entry, adapter_pair_at::kKind, static_cast<std::uint32_t>(pair.kind));
  store_le(entry, adapter_pair_at::kLayer, pair.layer);
  store_le(entry, adapter_pair_at::kExpert, pair.expert);
  store_le(entry, adapter_pair_at::kRank, pair.rank);
  store_le(entry, adapter_pair_at::kIn, pair.in);
  store_le(entry, adapter_pair_at::kOut, pair.out);
  store_le(entry, adapter_pair_at::kScale, pair.scale);
  store_le(entry, adapter_pair_at::kType, static_cast<std::uint32_t>(pair.type));
  store_le(entry, adapter_pair_at::kCrc, crc);
}

// Returns all bytes in front of the data.
std::vector<std::byte> encode_front(const AdapterSpec& spec, std::span<const std::uint32_t> crcs,
                                    std::uint64_t file_bytes) {
  const std::size_t n_names = spec.name.size() + spec.architecture.size();
  std::vector<std::byte> bytes(adapter_data_offset(n_names, spec.pairs.size()));
  const MutableByteSpan front = bytes;
  const auto put = [front](std::size_t at, std::string_view text) {
    ranges::copy(as_bytes(text), front.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(adapter_at::kMagic, kAdapterMagic);
  store_le(front, adapter_at::kVersion, kAdapterVersion);
  store_le(front, adapter_at::kPairs, static_cast<std::uint32_t>(spec.pairs.size()));
  store_le(front, adapter_at::kFileBytes, file_bytes);
  store_le(front, adapter_at::kFingerprint, spec.base_fingerprint);
  store_le(front, adapter_at::kNameBytes, static_cast<std::uint32_t>(spec.name.size()));
  store_le(front, adapter_at::kArchitectureBytes,
           static_cast<std::uint32_t>(spec.architecture.size()));
  put(kAdapterHeadBytes, spec.name);
  put(kAdapterHeadBytes + spec.name.size(), spec.architecture);
  for (std::size_t i = 0; i < spec.pairs.size(); ++i) {
    encode_entry(spec.pairs[i], crcs[i],
                 front.subspan(adapter_entries_offset(n_names) + i * kAdapterEntryBytes,
                               kAdapterEntryBytes));
  }
  store_le(front, adapter_at::kCrc, crc32(ByteSpan(front).subspan(adapter_at::kPairs)));
  return bytes;
}

}  // namespace

Status write_adapter_file(const std::string& path, AdapterSpec spec, const AdapterValues& values,
                          FileOps& ops) {
  for (AdapterPair& pair : spec.pairs) pair.type = AdapterType::kF32;
  QSF_RETURN_IF_ERROR(validate(spec).with_context(path));
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, ops));
  PairBuffers buffers;
  std::vector<std::uint32_t> crcs;
  std::uint64_t end =
      adapter_data_offset(spec.name.size() + spec.architecture.size(), spec.pairs.size());
  for (std::size_t i = 0; i < spec.pairs.size(); ++i) {
    QSF_RETURN_IF_ERROR(load_pair(values, i, spec.pairs[i], buffers));
    crcs.push_back(crc32(buffers.stored));
    QSF_RETURN_IF_ERROR(file.write_at(end, buffers.stored));
    end += buffers.stored.size();
  }
  QSF_RETURN_IF_ERROR(file.write_at(0, encode_front(spec, crcs, end)));
  return file.commit();
}

}  // namespace qsf
