// SPDX-License-Identifier: MIT

#include "tools/inspect/qsf_inspect_gguf.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "import/gguf/ggml_repack.h"
#include "import/gguf/ggml_types.h"
#include "import/gguf/gguf_file.h"
#include "import/gguf/gguf_model.h"
#include "quant/block_format.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

using Json = nlohmann::ordered_json;

// Some tensors of one stored type, and what a conversion makes of them.
struct TypeCount {
  std::string source;
  std::string format;  // empty: not kept
  std::uint64_t n_tensors = 0;
  std::uint64_t n_weights = 0;
};

// What qsf-convert would do with its defaults.
struct Conversion {
  std::string error;  // empty: it is possible
  std::string architecture;
  std::string tokenizer;  // why it is not read; empty: it is, or there is none
  std::vector<TypeCount> matrices;
  std::vector<std::string> notes;  // what a conversion would warn of
};

void count_section(const qsf::GgufModel& model, qsf::SectionKind kind, std::uint32_t layer,
                   Conversion& conversion) {
  const auto tensors = model.tensors(kind, layer);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].rows == 1) continue;
    const auto format = model.kept_format(kind, layer, i);
    const std::string name = format ? std::string(qsf::quant_type_name(format->type)) : "";
    TypeCount* count = nullptr;
    for (TypeCount& known : conversion.matrices) {
      if (known.source == tensors[i].type && known.format == name) count = &known;
    }
    if (count == nullptr) {
      conversion.matrices.push_back({tensors[i].type, name});
      count = &conversion.matrices.back();
    }
    ++count->n_tensors;
    count->n_weights += std::uint64_t{tensors[i].rows} * tensors[i].cols;
  }
}

// Whether every matrix of the layers is ternary, and activations are not rounded as in a BitNet.
bool may_want_int8_rows(const qsf::GgufModel& model) {
  if (model.spec().int8_rows) return false;
  for (std::uint32_t layer = 0; layer < model.spec().n_layers; ++layer) {
    const auto tensors = model.tensors(qsf::SectionKind::kLayer, layer);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].rows == 1) continue;
      const auto format = model.kept_format(qsf::SectionKind::kLayer, layer, i);
      if (!format || (format->type != qsf::QuantType::kTernary &&
                      format->type != qsf::QuantType::kTernaryRow)) {
        return false;
      }
    }
  }
  return true;
}

Conversion plan_conversion(const std::string& path) {
  Conversion conversion;
  const auto opened = qsf::GgufModel::open(path);
  if (!opened) {
    conversion.error = valid_utf8(opened.error().message());
    return conversion;
  }
  const qsf::GgufModel& model = **opened;
  conversion.architecture = model.spec().architecture;
  if (!model.tokenizer()) conversion.tokenizer = valid_utf8(model.tokenizer().error().message());
  for (const std::string& warning : model.warnings()) {
    conversion.notes.push_back(valid_utf8(warning));
  }
  if (may_want_int8_rows(model)) {
    conversion.notes.emplace_back(
        "ternary, and the file does not say whether its activations are to be rounded to 8 bits as "
        "a BitNet's are; if so, qsf-convert --int8-rows");
  }
  count_section(model, qsf::SectionKind::kEmbedding, 0, conversion);
  for (std::uint32_t layer = 0; layer < model.spec().n_layers; ++layer) {
    count_section(model, qsf::SectionKind::kLayer, layer, conversion);
  }
  count_section(model, qsf::SectionKind::kFinal, 0, conversion);
  return conversion;
}

const char* type_name(qsf::GgufType type) {
  constexpr std::array<const char*, 13> kNames = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                  "i32", "f32", "bool", "string", "array",
                                                  "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

Json value_of(const qsf::GgufReader& gguf, const qsf::GgufKey& key) {
  switch (key.type) {
    case qsf::GgufType::kArray:
      return {{"array_of", type_name(key.element_type)}, {"length", key.n_elements}};
    case qsf::GgufType::kString: return valid_utf8(qsf::as_text(key.payload));
    case qsf::GgufType::kBool: return gguf.get_bool(key.name)->value_or(false);
    case qsf::GgufType::kF32:
    case qsf::GgufType::kF64: return gguf.get_float(key.name)->value_or(0.0);
    case qsf::GgufType::kI8: return qsf::load_le<std::int8_t>(key.payload, 0);
    case qsf::GgufType::kI16: return qsf::load_le<std::int16_t>(key.payload, 0);
    case qsf::GgufType::kI32: return qsf::load_le<std::int32_t>(key.payload, 0);
    case qsf::GgufType::kI64: return qsf::load_le<std::int64_t>(key.payload, 0);
    default: return gguf.get_unsigned(key.name)->value_or(0);
  }
}

std::string dims_text(const qsf::GgufTensor& tensor) {
  std::string text = "[";
  for (std::uint32_t d = 0; d < tensor.n_dims; ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(tensor.dims[d]);
  }
  return text + "]";
}

// Bytes by its type, or up to the next tensor where the type does not tell.
std::uint64_t bytes_of(const qsf::GgufTensor& tensor) {
  return tensor.n_bytes != 0 ? tensor.n_bytes : tensor.available_bytes;
}

std::uint64_t file_bytes(const qsf::GgufFile& file) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < file.n_parts(); ++i) sum += file.file(i).size_bytes();
  return sum;
}

std::string architecture_of(const qsf::GgufReader& gguf) {
  const auto name = gguf.get_string("general.architecture");
  return name && name->has_value() ? valid_utf8(**name) : "unknown";
}

void add_field(std::string& text, const char* label, const std::string& value) {
  char padded[32];
  std::snprintf(padded, sizeof padded, "%-18s", label);
  text += padded + value + "\n";
}

// A key's value on one line, long strings cut.
std::string line_of(const Json& value) {
  constexpr std::size_t kMaxBytes = 100;
  std::string line = for_terminal(value.dump());
  if (line.size() <= kMaxBytes) return line;
  std::size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;
  return line.substr(0, end) + " ...";
}

void add_conversion(const Conversion& conversion, std::string& text) {
  if (!conversion.error.empty()) {
    add_field(text, "conversion", "not possible: " + for_terminal(conversion.error));
    return;
  }
  const std::string_view ternary = qsf::quant_type_name(qsf::QuantType::kTernaryRow);
  for (const TypeCount& count : conversion.matrices) {
    const std::string matrices = std::to_string(count.n_tensors) + " matrices of " + count.source;
    add_field(text, "conversion",
              count.format.empty()
                  ? matrices + " requantised, to 8bit unless asked otherwise"
                  : matrices + " kept bit for bit as " + count.format +
                        (count.format == ternary ? ", for the disk as ternary-base3" : ""));
  }
  for (const std::string& note : conversion.notes) add_field(text, "note", for_terminal(note));
  if (!conversion.tokenizer.empty()) {
    add_field(text, "tokenizer", "not read: " + for_terminal(conversion.tokenizer));
  }
}

}  // namespace

bool is_gguf_file(const std::string& path) {
  const bool named = path.ends_with(".gguf");
  const auto file = qsf::File::open(path);
  std::byte magic[4];
  if (!file || file->size_bytes() < sizeof magic || !file->read_exact_at(0, magic).ok()) {
    return named;
  }
  return qsf::as_text(magic) == "GGUF" || (named && qsf::as_text(magic) != "QSF1");
}

qsf::Result<std::string> gguf_text_report(const std::string& path, bool tensors) {
  QSF_ASSIGN_OR_RETURN(const qsf::GgufFile file, qsf::GgufFile::open(path));
  const qsf::GgufReader& gguf = file.keys();
  std::map<std::string, std::uint64_t> types;
  std::uint64_t n_weights = 0;
  for (const qsf::GgufFile::Entry& entry : file.tensors()) {
    ++types[entry.tensor->type_name];
    n_weights += entry.tensor->n_elements;
  }
  std::string type_list;
  for (const auto& [type, count] : types) {
    type_list += (type_list.empty() ? ": " : ", ") + std::to_string(count) + " " + type;
  }
  std::string text;
  add_field(text, "file", for_terminal(valid_utf8(path)));
  add_field(text, "format",
            "GGUF version " + std::to_string(gguf.version()) + ", " + megabytes(file_bytes(file)) +
                (file.n_parts() == 1 ? "" : " in " + std::to_string(file.n_parts()) + " files"));
  add_field(text, "architecture", for_terminal(architecture_of(gguf)));
  add_field(text, "tensors", std::to_string(file.tensors().size()) + type_list);
  add_field(text, "weights", std::to_string(n_weights));
  add_conversion(plan_conversion(path), text);
  text += "\nkeys (" + std::to_string(gguf.keys().size()) + ")\n";
  for (const qsf::GgufKey& key : gguf.keys()) {
    text += "  " + for_terminal(valid_utf8(key.name)) + " = " + line_of(value_of(gguf, key)) + "\n";
  }
  if (!tensors) return text;
  text += "\ntensors (" + std::to_string(file.tensors().size()) + ")\n";
  for (const qsf::GgufFile::Entry& entry : file.tensors()) {
    const qsf::GgufTensor& t = *entry.tensor;
    char line[96];
    std::snprintf(line, sizeof line, "  %-8s %12" PRIu64 " bytes  ", t.type_name, bytes_of(t));
    text += line + for_terminal(valid_utf8(t.name)) + " " + dims_text(t) + "\n";
  }
  return text;
}

qsf::Result<std::string> gguf_json_report(const std::string& path) {
  QSF_ASSIGN_OR_RETURN(const qsf::GgufFile file, qsf::GgufFile::open(path));
  const qsf::GgufReader& gguf = file.keys();
  Json json;
  json["file"] = valid_utf8(path);
  json["format"] = "GGUF";
  json["version"] = gguf.version();
  json["bytes"] = file_bytes(file);
  json["parts"] = file.n_parts();
  json["alignment"] = gguf.alignment();
  json["architecture"] = architecture_of(gguf);
  Json& keys = json["keys"] = Json::object();
  for (const qsf::GgufKey& key : gguf.keys()) keys[valid_utf8(key.name)] = value_of(gguf, key);
  Json& tensors = json["tensors"] = Json::array();
  for (const qsf::GgufFile::Entry& entry : file.tensors()) {
    const qsf::GgufTensor& t = *entry.tensor;
    tensors.push_back({{"name", valid_utf8(t.name)},
                       {"type", t.type_name},
                       {"type_number", t.type},
                       {"dims", std::vector<std::uint64_t>(t.dims, t.dims + t.n_dims)},
                       {"bytes", bytes_of(t)},
                       {"part", entry.part},
                       {"offset", t.file_offset}});
  }
  const Conversion plan = plan_conversion(path);
  Json& conversion = json["conversion"];
  conversion["possible"] = plan.error.empty() && plan.tokenizer.empty();
  if (!plan.error.empty()) conversion["error"] = plan.error;
  if (!plan.tokenizer.empty()) conversion["error"] = plan.tokenizer;
  if (plan.error.empty()) {
    conversion["architecture"] = plan.architecture;
    conversion["notes"] = plan.notes;
    Json& matrices = conversion["matrices"] = Json::array();
    for (const TypeCount& count : plan.matrices) {
      matrices.push_back({{"type", count.source},
                          {"kept_as", count.format.empty() ? Json() : Json(count.format)},
                          {"tensors", count.n_tensors},
                          {"weights", count.n_weights}});
    }
  }
  return json.dump(2) + "\n";
}

}  // namespace qsf_tools
