// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_file.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "import/gguf/ggml_types.h"

namespace qsf {
namespace {

// Directories are a few hundred KB to some 15 MB, most of it the vocabulary.
constexpr std::uint64_t kFirstPieceBytes = 1U << 20;
constexpr std::uint64_t kMaxDirectoryBytes = 256U << 20;
constexpr std::uint64_t kMaxParts = 4096;

// The numbers in a path that ends in "-00002-of-00005.gguf".
struct PartName {
  std::string stem;  // before the "-"
  std::uint64_t number = 0;
  std::uint64_t count = 0;
};

std::optional<std::uint64_t> five_digits(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

std::optional<PartName> parse_part_name(std::string_view path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() < kPattern.size()) return std::nullopt;
  const std::string_view end = path.substr(path.size() - kPattern.size());
  const auto number = five_digits(end.substr(1, 5));
  const auto count = five_digits(end.substr(10, 5));
  if (end[0] != '-' || end.substr(6, 4) != "-of-" || end.substr(15) != ".gguf" || !number ||
      !count) {
    return std::nullopt;
  }
  return PartName{std::string(path.substr(0, path.size() - kPattern.size())), *number, *count};
}

std::string part_path(const PartName& name, std::uint64_t number) {
  char end[32];
  std::snprintf(end, sizeof end, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number, name.count);
  return name.stem + end;
}

// Returns which part a file is and of how many, 0 of 1 for a model in one file.
Result<std::pair<std::uint64_t, std::uint64_t>> split_keys(const GgufReader& directory) {
  QSF_ASSIGN_OR_RETURN(const auto number, directory.get_unsigned("split.no"));
  QSF_ASSIGN_OR_RETURN(const auto count, directory.get_unsigned("split.count"));
  return std::pair(number.value_or(0), std::max<std::uint64_t>(count.value_or(1), 1));
}

}  // namespace

// A directory does not state its length: when it seems truncated, a longer piece is read.
Result<GgufFile::Part> GgufFile::open_part(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(File file, File::open(path, ops));
  const std::uint64_t limit = std::min(file.size_bytes(), kMaxDirectoryBytes);
  std::uint64_t n_bytes = std::min(limit, kFirstPieceBytes);
  for (;;) {
    std::vector<std::byte> bytes(n_bytes);
    QSF_RETURN_IF_ERROR(file.read_exact_at(0, bytes));
    auto directory = GgufReader::parse(bytes, file.size_bytes());
    if (directory) return Part{std::move(file), std::move(bytes), std::move(*directory)};
    if (n_bytes == limit || directory.error().code() != StatusCode::kCorrupt) {
      return std::move(directory).error().with_context(path);
    }
    n_bytes = std::min(limit, 4 * n_bytes);
  }
}

Result<GgufFile> GgufFile::open(const std::string& path, FileOps& ops) {
  GgufFile model;
  QSF_ASSIGN_OR_RETURN(Part part, open_part(path, ops));
  auto split = split_keys(part.directory);
  if (!split) return std::move(split).error().with_context(path);
  model.parts_.push_back(std::move(part));
  if (split->second > 1) QSF_RETURN_IF_ERROR(model.open_other_parts(path, ops));
  QSF_RETURN_IF_ERROR(model.index_tensors().with_context(path));
  return model;
}

Status GgufFile::open_other_parts(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(const auto split, split_keys(keys()));
  const auto [own_number, count] = split;
  const auto name = parse_part_name(path);
  if (count > kMaxParts || !name || name->count != count || name->number != own_number + 1) {
    return corrupt("%s: part %" PRIu64 " of %" PRIu64 " of a model, expected at most %" PRIu64
                   " parts and a name that ends in -%05" PRIu64 "-of-%05" PRIu64
                   ".gguf; keep the published file names",
                   path.c_str(), own_number + 1, count, kMaxParts, own_number + 1, count);
  }
  Part own = std::move(parts_.front());
  parts_.clear();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i == own_number) {
      parts_.push_back(std::move(own));
      continue;
    }
    const std::string other = part_path(*name, i + 1);
    QSF_ASSIGN_OR_RETURN(Part part, open_part(other, ops));
    QSF_ASSIGN_OR_RETURN(const auto its, split_keys(part.directory));
    if (its.first != i || its.second != count) {
      return corrupt("%s: split.no and split.count say part %" PRIu64 " of %" PRIu64
                     ", expected %" PRIu64 " of %" PRIu64 "; the files do not belong together",
                     other.c_str(), its.first + 1, its.second, i + 1, count);
    }
    parts_.push_back(std::move(part));
  }
  return ok_status();
}

Status GgufFile::index_tensors() {
  for (std::uint32_t part = 0; part < parts_.size(); ++part) {
    for (const GgufTensor& tensor : parts_[part].directory.tensors()) {
      tensors_.push_back({&tensor, part});
    }
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  for (std::size_t i = 1; i < tensors_.size(); ++i) {
    if (tensors_[i].tensor->name == tensors_[i - 1].tensor->name) {
      return corrupt("tensor \"%s\" appears in two parts",
                     shown_gguf_text(tensors_[i].tensor->name).c_str());
    }
  }
  QSF_ASSIGN_OR_RETURN(const auto n_tensors, keys().get_unsigned("split.tensors.count"));
  if (n_tensors.has_value() && *n_tensors != tensors_.size()) {
    return corrupt("%zu tensors in all parts, expected %" PRIu64 " from split.tensors.count",
                   tensors_.size(), *n_tensors);
  }
  return ok_status();
}

const GgufFile::Entry* GgufFile::find(std::string_view name) const noexcept {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const Entry& e, std::string_view n) { return e.tensor->name < n; });
  return at == tensors_.end() || at->tensor->name != name ? nullptr : &*at;
}

Status GgufFile::read(const Entry& entry, std::uint64_t offset, MutableByteSpan to) const {
  return parts_[entry.part].file.read_exact_at(entry.tensor->file_offset + offset, to);
}

Result<std::vector<float>> read_gguf_vector(const GgufFile& file, const GgufFile::Entry& entry) {
  const GgufTensor& t = *entry.tensor;
  const std::string name = shown_gguf_text(t.name);
  if (t.dims[0] * t.dims[1] != t.n_elements || t.n_elements > kMaxGgufVector) {
    return corrupt("tensor \"%s\": %llu elements in %u dimensions, expected two of at most 2^24",
                   name.c_str(), static_cast<unsigned long long>(t.n_elements), t.n_dims);
  }
  return read_gguf_rows(file, entry);
}

Result<std::vector<float>> read_gguf_rows(const GgufFile& file, const GgufFile::Entry& entry) {
  const GgufTensor& t = *entry.tensor;
  const std::string name = shown_gguf_text(t.name);
  const auto row_bytes = ggml_row_bytes(t.type, t.dims[0]);
  if (t.n_elements > kMaxGgufVector) {
    return corrupt("tensor \"%s\": %llu elements, expected at most 2^24", name.c_str(),
                   static_cast<unsigned long long>(t.n_elements));
  }
  const std::uint64_t n_rows = t.n_elements / t.dims[0];
  if (!can_decode(t.type) || !row_bytes || *row_bytes > t.available_bytes / n_rows) {
    return unsupported("tensor \"%s\": type %s is not supported", name.c_str(), t.type_name);
  }
  std::vector<std::byte> bytes(*row_bytes * n_rows);
  std::vector<float> values(t.n_elements);
  QSF_RETURN_IF_ERROR(file.read(entry, 0, bytes));
  for (std::uint64_t row = 0; row < n_rows; ++row) {
    decode_ggml_row(t.type, ByteSpan(bytes).subspan(row * *row_bytes, *row_bytes),
                    std::span(values).subspan(row * t.dims[0], t.dims[0]));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return corrupt("tensor \"%s\": element %zu is not finite", name.c_str(), i);
  }
  return values;
}

}  // namespace qsf
