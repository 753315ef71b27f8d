// SPDX-License-Identifier: MIT

#include "format/model_fingerprint.h"

#include <array>

#include "base/fnv1a.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {
namespace {

class Fingerprint {
 public:
  void add(ByteSpan bytes) noexcept { value_ = fnv1a(bytes, value_); }
  void add(std::uint64_t number) noexcept {
    std::array<std::byte, sizeof number> bytes;
    store_le(MutableByteSpan(bytes), 0, number);
    add(ByteSpan(bytes));
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = kFnv1aStart;
};

void add_spec(const ModelSpec& spec, Fingerprint& print) {
  std::array<std::byte, kHeaderBytes> header{};
  encode_spec_header(spec, header);
  // End and padding tokens do not influence the computed numbers.
  const ByteSpan bytes = header;
  print.add(
      bytes.subspan(header_at::kArchitecture, header_at::kIndexOffset - header_at::kArchitecture));
  const Metadata metadata = encode_spec_metadata(spec);
  for (const MetadataEntry& entry : metadata.entries()) {
    if (!entry.required) continue;
    print.add(as_bytes(entry.key));
    print.add(entry.value.size());
    print.add(entry.value);
  }
}

void add_section(const SectionDirectory& section, Fingerprint& print) {
  print.add(section.tensors.size());
  for (const TensorInfo& tensor : section.tensors) {
    print.add(static_cast<std::uint64_t>(tensor.kind));
    print.add(std::uint64_t{tensor.rows} << 32U | tensor.cols);
    print.add(static_cast<std::uint64_t>(tensor.format.type));
    print.add(tensor.format.block);
    print.add(static_cast<std::uint64_t>(tensor.layout));
    print.add(tensor.expert);
  }
  print.add(section.tiles.size());
  for (const TileInfo& tile : section.tiles) {
    print.add(std::uint64_t{tile.raw_bytes} << 32U | tile.crc);
    print.add(std::uint64_t{tile.tensor} << 32U | tile.first_row);
  }
}

}  // namespace

std::uint64_t model_fingerprint(const QsfReader& reader) {
  Fingerprint print;
  add_spec(reader.spec(), print);
  for (const SectionDirectory& section : reader.directories()) add_section(section, print);
  if (const SectionInfo* tokenizer = reader.find_section("tokenizer")) {
    print.add(tokenizer->bytes);
    print.add(tokenizer->crc);
  }
  return print.value();
}

}  // namespace qsf
