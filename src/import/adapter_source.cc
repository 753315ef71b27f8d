// SPDX-License-Identifier: MIT

#include "import/adapter_source.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "format/adapter_reader.h"
#include "import/gguf/gguf_adapter.h"
#include "import/gguf/gguf_file.h"
#include "import/hf/peft_adapter.h"
#include "io/file.h"

namespace qsf {
namespace {

// The values of an adapter file, decoded.
class StoredAdapterValues final : public AdapterValues {
 public:
  explicit StoredAdapterValues(AdapterReader reader) : reader_(std::move(reader)) {}

  Status read_pair(std::size_t index, std::span<float> a, std::span<float> b) const override {
    const AdapterPair& pair = reader_.spec().pairs[index];
    QSF_CHECK(a.size() == pair.a_values() && b.size() == pair.b_values());
    std::vector<std::byte> stored(adapter_pair_bytes(pair));
    QSF_RETURN_IF_ERROR(reader_.read_pair(index, stored));
    const std::uint64_t value_bytes = adapter_value_bytes(pair.type);
    const ByteSpan bytes = stored;
    decode_adapter_values(bytes.first(a.size() * value_bytes), pair.type, a);
    decode_adapter_values(bytes.subspan(adapter_a_bytes(pair), b.size() * value_bytes), pair.type,
                          b);
    return ok_status();
  }

 private:
  AdapterReader reader_;
};

bool begins_with(const std::string& path, std::string_view magic, FileOps& ops) {
  const auto file = File::open(path, ops);
  std::byte start[4];
  if (!file || file->size_bytes() < sizeof start) return false;
  return file->read_exact_at(0, start).ok() && as_text(start) == magic;
}

}  // namespace

AdapterFormat find_adapter_format(const std::string& path, FileOps& ops) {
  switch (ops.path_kind(path)) {
    case PathKind::kDirectory:
      return is_peft_folder(path, ops) ? AdapterFormat::kPeft : AdapterFormat::kNone;
    case PathKind::kRegular: break;
    default: return AdapterFormat::kNone;
  }
  const auto own = is_adapter_file(path, ops);
  if (own && *own) return AdapterFormat::kQsf;
  if (!begins_with(path, "GGUF", ops)) return AdapterFormat::kNone;
  const auto gguf = GgufFile::open(path, ops);
  return gguf && is_gguf_adapter(*gguf) ? AdapterFormat::kGguf : AdapterFormat::kNone;
}

Result<AdapterSource> open_adapter(const std::string& path, const ModelSpec& base, FileOps& ops) {
  switch (find_adapter_format(path, ops)) {
    case AdapterFormat::kPeft: {
      QSF_ASSIGN_OR_RETURN(PeftAdapter adapter, PeftAdapter::open(path, base, ops));
      AdapterSource source = {adapter.spec(), nullptr, adapter.warnings()};
      source.values = std::make_unique<PeftAdapter>(std::move(adapter));
      return source;
    }
    case AdapterFormat::kGguf: {
      QSF_ASSIGN_OR_RETURN(GgufAdapter adapter, GgufAdapter::open(path, base, ops));
      AdapterSource source = {adapter.spec(), nullptr, {}};
      source.values = std::make_unique<GgufAdapter>(std::move(adapter));
      return source;
    }
    case AdapterFormat::kQsf: {
      QSF_ASSIGN_OR_RETURN(File file, File::open(path, ops));
      QSF_ASSIGN_OR_RETURN(AdapterReader reader, AdapterReader::open(std::move(file)));
      AdapterSource source = {reader.spec(), nullptr, {}};
      source.values = std::make_unique<StoredAdapterValues>(std::move(reader));
      if (source.spec.architecture == base.architecture) return source;
      return invalid_argument("%s: made for a %s, but the model is a %s", path.c_str(),
                              source.spec.architecture.c_str(), base.architecture.c_str());
    }
    case AdapterFormat::kNone: break;
  }
  return invalid_argument(
      "%s: no adapter; expected a PEFT folder with adapter_config.json, a GGUF adapter or an "
      "adapter file of qsf convert",
      path.c_str());
}

}  // namespace qsf
