// SPDX-License-Identifier: MIT

#include "ranks/opening.h"

#include <algorithm>

#include "base/crc32.h"
#include "io/file.h"

namespace qsf {
namespace {

constexpr std::size_t kIdentifyingBytes = std::size_t{1} << 20;

void write_text(std::string_view text, ByteWriter& to) {
  to.write(static_cast<std::uint32_t>(text.size()));
  to.write_text(text);
}

std::string read_text(ByteReader& from) {
  return std::string(from.read_text(from.read<std::uint32_t>()));
}

// Reads or writes every option that a rank needs, in one order.
template <typename Field>
void for_each_option(EngineOptions& options, Field field) {
  field(options.n_threads);
  field(options.max_context);
  field(options.rows_per_pass);
  field(options.k_type);
  field(options.v_type);
  field(options.kv_policy.policy);
  field(options.kv_policy.window);
  field(options.kv_policy.sinks);
  field(options.kv_policy.heavy);
  field(options.kv_policy.rope_reindex);
  field(options.attention);
  field(options.sparse_prefill.local);
  field(options.sparse_prefill.heavy);
  field(options.sparse_prefill.chunk);
  field(options.sparse_prefill.sinks);
  field(options.sparse_prefill.ranking);
  field(options.prompt_mask.chunk);
  field(options.prompt_mask.window);
  field(options.exact);
  field(options.experts_used);
  field(options.quality);
  field(options.pin);
  field(options.n_sequences);
  field(options.kv_positions);
  field(options.ram_budget_bytes);
}

}  // namespace

Status identify_file(const std::string& path, Opening& opening) {
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path));
  opening.file_bytes = file.size_bytes();
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(std::min<std::uint64_t>(kIdentifyingBytes, opening.file_bytes)));
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, bytes));
  opening.file_crc = crc32(bytes);
  return ok_status();
}

std::vector<std::byte> encode_opening(const Opening& opening) {
  ByteWriter to;
  to.write(static_cast<std::uint8_t>(opening.plans_only ? 1 : 0));
  write_text(opening.version, to);
  write_text(opening.path, to);
  to.write(opening.file_bytes);
  to.write(opening.file_crc);
  EngineOptions options = opening.options;
  for_each_option(options, [&to](const auto& value) { to.write(value); });
  to.write(static_cast<std::uint32_t>(options.adapters.size()));
  for (const AdapterFile& adapter : options.adapters) {
    write_text(adapter.path, to);
    write_text(adapter.name, to);
  }
  to.write(opening.ring_bytes);
  to.write(static_cast<std::uint32_t>(opening.plan.size()));
  for (const RingWindow& window : opening.plan) {
    to.write(static_cast<std::uint32_t>(window.rank));
    to.write(window.first);
    to.write(window.last);
  }
  return std::move(to.bytes());
}

Result<Opening> decode_opening(ByteSpan bytes) {
  ByteReader from(bytes);
  Opening opening;
  opening.plans_only = from.read<std::uint8_t>() != 0;
  opening.version = read_text(from);
  opening.path = read_text(from);
  opening.file_bytes = from.read<std::uint64_t>();
  opening.file_crc = from.read<std::uint32_t>();
  for_each_option(opening.options, [&from](auto& value) {
    value = from.read<std::remove_reference_t<decltype(value)>>();
  });
  const auto n_adapters = from.read<std::uint32_t>();
  for (std::uint32_t i = 0; i < n_adapters && from.ok(); ++i) {
    AdapterFile& adapter = opening.options.adapters.emplace_back();
    adapter.path = read_text(from);
    adapter.name = read_text(from);
  }
  opening.ring_bytes = from.read<std::uint64_t>();
  const auto n_windows = from.read<std::uint32_t>();
  for (std::uint32_t i = 0; i < n_windows && from.ok(); ++i) {
    RingWindow& window = opening.plan.emplace_back();
    window.rank = from.read<std::uint32_t>();
    window.first = from.read<std::uint32_t>();
    window.last = from.read<std::uint32_t>();
  }
  if (!from.ok() || from.remaining() != 0) {
    return corrupt("message that opens a model: %zu bytes, and as many are not expected",
                   bytes.size());
  }
  return opening;
}

}  // namespace qsf
