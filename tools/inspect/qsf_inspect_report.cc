// SPDX-License-Identifier: MIT

#include "tools/inspect/qsf_inspect_report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tokenizer/tokenizer.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

using Json = nlohmann::ordered_json;

// Weights and bytes over some sections.
struct Sums {
  std::uint64_t n_weights = 0;
  std::uint64_t raw_bytes = 0;     // of tiles
  std::uint64_t stored_bytes = 0;  // of tiles

  double bits_per_weight() const {
    return n_weights == 0 ? 0.0
                          : static_cast<double>(raw_bytes) * 8 / static_cast<double>(n_weights);
  }
};

Sums sums_of(const qsf::SectionDirectory& d) {
  Sums sums;
  for (const qsf::TensorInfo& t : d.tensors) sums.n_weights += std::uint64_t{t.rows} * t.cols;
  for (const qsf::TileInfo& t : d.tiles) {
    sums.raw_bytes += t.raw_bytes;
    sums.stored_bytes += t.stored_bytes;
  }
  return sums;
}

Sums sums_of(const qsf::QsfReader& reader) {
  Sums all;
  for (const qsf::SectionDirectory& d : reader.directories()) {
    const Sums one = sums_of(d);
    all.n_weights += one.n_weights;
    all.raw_bytes += one.raw_bytes;
    all.stored_bytes += one.stored_bytes;
  }
  return all;
}

// Weight types of the matrices of a section: "4bit", or "2bit 4bit".
std::string types_of(const qsf::SectionDirectory& d) {
  std::map<qsf::QuantType, int> counts;
  for (const qsf::TensorInfo& t : d.tensors) {
    if (t.rows > 1) ++counts[t.format.type];
  }
  std::string text;
  for (const auto& [type, count] : counts) {
    text += (text.empty() ? "" : " ") + std::string(qsf::quant_type_name(type));
  }
  return text.empty() ? "-" : text;
}

std::uint64_t raw_bytes_of(const qsf::TensorInfo& tensor) {
  return qsf::tile_bytes(tensor, tensor.rows);
}

// The tokenizer, or why it cannot be used.
struct TokenizerSummary {
  std::uint64_t bytes = 0;
  std::string error;
  std::string kind;
  std::uint32_t n_tokens = 0;
  bool adds_bos = false;
};

std::string_view kind_name(qsf::TokenizerKind kind) {
  switch (kind) {
    case qsf::TokenizerKind::kByteBpe: return "byte-level BPE";
    case qsf::TokenizerKind::kScoredBpe: return "SentencePiece BPE";
    case qsf::TokenizerKind::kRankedBpe: return "character BPE";
    case qsf::TokenizerKind::kWordPiece: return "WordPiece";
  }
  return "unknown";
}

qsf::Status fill(const qsf::QsfReader& reader, TokenizerSummary& summary) {
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> section, reader.read_tokenizer());
  QSF_ASSIGN_OR_RETURN(const std::size_t index_bytes, qsf::Tokenizer::index_bytes(section));
  std::vector<std::byte> index(index_bytes);
  QSF_ASSIGN_OR_RETURN(const qsf::Tokenizer tokenizer, qsf::Tokenizer::open(section, index));
  summary.kind = kind_name(tokenizer.kind());
  summary.n_tokens = tokenizer.n_tokens();
  summary.adds_bos = tokenizer.adds_bos();
  return qsf::ok_status();
}

std::optional<TokenizerSummary> summarise_tokenizer(const qsf::QsfReader& reader) {
  if (reader.tokenizer_bytes() == 0) return std::nullopt;
  TokenizerSummary summary;
  summary.bytes = reader.tokenizer_bytes();
  const qsf::Status status = fill(reader, summary);
  if (!status.ok()) summary.error = valid_utf8(status.message());
  return summary;
}

Json value_of(const qsf::Metadata& m, const qsf::MetadataEntry& entry) {
  switch (entry.type) {
    case qsf::ValueType::kBool: return *m.get_bool(entry.key, false);
    case qsf::ValueType::kU32: return *m.get_u32(entry.key, 0);
    case qsf::ValueType::kU64: return *m.get_u64(entry.key, 0);
    case qsf::ValueType::kF32: return *m.get_f32(entry.key, 0);
    case qsf::ValueType::kText: return valid_utf8(*m.get_text(entry.key, ""));
    case qsf::ValueType::kU32Array: return *m.get_u32_array(entry.key);
    case qsf::ValueType::kF32Array: return *m.get_f32_array(entry.key);
  }
  return "type " + std::to_string(static_cast<unsigned>(entry.type)) + ", " +
         std::to_string(entry.value.size()) + " bytes";
}

std::string default_type_name(const qsf::ModelSpec& spec) {
  return spec.default_type ? std::string(qsf::quant_type_name(*spec.default_type)) : "mixed";
}

// All weights of a file that are stored in one way.
struct TypeSums {
  qsf::BlockFormat format;
  std::uint64_t n_tensors = 0;
  std::uint64_t n_weights = 0;
  std::uint64_t raw_bytes = 0;
};

// The most weights first.
std::vector<TypeSums> type_sums_of(const qsf::QsfReader& reader) {
  std::vector<TypeSums> all;
  for (const qsf::SectionDirectory& d : reader.directories()) {
    for (const qsf::TensorInfo& t : d.tensors) {
      auto at = std::find_if(all.begin(), all.end(),
                             [&](const TypeSums& sums) { return sums.format == t.format; });
      if (at == all.end()) at = all.insert(at, TypeSums{t.format});
      ++at->n_tensors;
      at->n_weights += std::uint64_t{t.rows} * t.cols;
      at->raw_bytes += raw_bytes_of(t);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const TypeSums& a, const TypeSums& b) { return a.n_weights > b.n_weights; });
  return all;
}

// "4bit/64 99.8 %, f16 0.2 %"
std::string type_shares(const qsf::QsfReader& reader) {
  const std::vector<TypeSums> all = type_sums_of(reader);
  std::uint64_t n_weights = 0;
  for (const TypeSums& sums : all) n_weights += sums.n_weights;
  std::string text;
  for (const TypeSums& sums : all) {
    char share[32];
    std::snprintf(share, sizeof share, " %.1f %%",
                  100.0 * static_cast<double>(sums.n_weights) / static_cast<double>(n_weights));
    text += (text.empty() ? "" : ", ") + std::string(qsf::quant_type_name(sums.format.type));
    if (qsf::fixed_block(sums.format.type) == 0) text += "/" + std::to_string(sums.format.block);
    text += share;
  }
  return text;
}

void add_model(std::string& text, const qsf::QsfReader& reader) {
  const qsf::ModelSpec& s = reader.spec();
  add_line(text, "architecture      %s", s.architecture.c_str());
  add_line(text, "layers            %u", s.n_layers);
  add_line(text, "hidden            %u", s.hidden);
  const char* const most = s.layer_heads.empty() ? "" : "at most ";
  add_line(text, "heads             %u, %s%u key-value, dimension %s%u", s.n_heads, most,
           s.n_kv_heads, most, s.head_dim);
  add_line(text, "ffn               %u, %s%s", s.ffn,
           std::string(qsf::activation_name(s.activation)).c_str(), s.gated_ffn ? ", gated" : "");
  if (s.n_experts != 0) {
    const std::string shared =
        s.shared_ffn == 0 ? "" : ", and a shared one of " + std::to_string(s.shared_ffn);
    add_line(text, "experts           %u, %u a token, ffn %u%s", s.n_experts, s.n_experts_used,
             s.expert_ffn, shared.c_str());
  }
  add_line(text, "norm              %s, epsilon %g",
           std::string(qsf::norm_type_name(s.norm)).c_str(), static_cast<double>(s.norm_epsilon));
  const std::string rope = s.positions != qsf::PositionEncoding::kRope
                               ? ""
                               : ", theta " + std::to_string(s.rope.theta) + ", " +
                                     std::to_string(s.rope_dims()) + " dimensions, scaling " +
                                     std::string(qsf::rope_scaling_name(s.rope.scaling));
  add_line(text, "positions         %u, %s%s", s.max_positions,
           std::string(qsf::position_encoding_name(s.positions)).c_str(), rope.c_str());
  add_line(text, "vocabulary        %u%s", s.n_vocab, s.tied_head ? ", head tied" : "");
  if (s.mtp_block) {
    add_line(text, "multi-token       a block that drafts for its model; cannot run alone");
  }
  if (s.pooling.has_value() || s.embeds_only) {
    add_line(text, "embeddings        pooling %s%s",
             std::string(qsf::pooling_name(s.pooling.value_or(qsf::Pooling::kMean))).c_str(),
             s.embeds_only ? "; cannot generate" : "");
  }
  add_line(text, "weights           %s%s%s", type_shares(reader).c_str(),
           s.calibrated ? "; calibrated" : "", s.natively_ternary ? "; natively ternary" : "");
  if (s.int8_rows) add_line(text, "activations       rounded to 8 bits by row, as trained");
}

// What the output suffers without a layer; nothing of other sections.
std::string importance_of(const qsf::SectionDirectory& d) {
  if (d.kind != qsf::SectionKind::kLayer) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", static_cast<double>(d.importance));
  return text;
}

void add_sections(std::string& text, const qsf::QsfReader& reader, const ReportOptions& options) {
  const bool measured =
      std::any_of(reader.directories().begin(), reader.directories().end(),
                  [](const qsf::SectionDirectory& d) { return d.importance != 0.0F; });
  const auto column = [measured](const std::string& importance) {
    return measured
               ? std::string(11 - std::min<std::size_t>(importance.size(), 10), ' ') + importance
               : "";
  };
  add_line(text, "%s", "");
  add_line(text, "%-12s %14s %14s %8s %6s %6s%s %-6s %s", "section", "offset", "bytes", "tensors",
           "tiles", "bits", column("importance").c_str(), "packed", "types");
  for (const qsf::SectionDirectory& d : reader.directories()) {
    add_line(text, "%-12s %14llu %14llu %8zu %6zu %6.2f%s %-6s %s",
             qsf::section_label(d.kind, d.layer).c_str(),
             static_cast<unsigned long long>(d.file_offset),
             static_cast<unsigned long long>(d.stored_bytes), d.tensors.size(), d.tiles.size(),
             sums_of(d).bits_per_weight(), column(importance_of(d)).c_str(),
             std::string(qsf::compression_name(d.compression)).c_str(), types_of(d).c_str());
    if (!options.tensors) continue;
    for (const qsf::TensorInfo& t : d.tensors) {
      add_line(text, "  %-20s [%u, %u] %s, block %u, layout %u, expert %u, %llu bytes",
               std::string(qsf::tensor_kind_name(t.kind)).c_str(), t.rows, t.cols,
               std::string(qsf::quant_type_name(t.format.type)).c_str(), t.format.block,
               static_cast<unsigned>(t.layout), t.expert,
               static_cast<unsigned long long>(raw_bytes_of(t)));
    }
  }
  for (const qsf::SectionInfo& s : reader.sections()) {
    if (s.name == "embedding" || s.name == "final") continue;
    add_line(text, "%-12s %14llu %14llu", s.name.c_str(),
             static_cast<unsigned long long>(s.file_offset),
             static_cast<unsigned long long>(s.bytes));
  }
}

void add_tokenizer(std::string& text, const qsf::QsfReader& reader) {
  const std::optional<TokenizerSummary> summary = summarise_tokenizer(reader);
  add_line(text, "%s", "");
  if (!summary) {
    add_line(text, "tokenizer         none");
  } else if (!summary->error.empty()) {
    add_line(text, "tokenizer         cannot be used: %s", summary->error.c_str());
  } else {
    add_line(text, "tokenizer         %s, %u tokens%s, %llu bytes", summary->kind.c_str(),
             summary->n_tokens, summary->adds_bos ? ", adds a begin token" : "",
             static_cast<unsigned long long>(summary->bytes));
  }
}

// Values of many lines, such as chat templates, are shown by their beginning.
void add_metadata(std::string& text, const qsf::Metadata& metadata) {
  constexpr std::size_t kShown = 72;
  add_line(text, "%s", "");
  for (const qsf::MetadataEntry& entry : metadata.entries()) {
    std::string value = value_of(metadata, entry).dump();
    if (value.size() > kShown) {
      value = valid_utf8(std::string_view(value).substr(0, kShown)) + "... (" +
              std::to_string(entry.value.size()) + " bytes)";
    }
    add_line(text, "%-28s %s", entry.key.c_str(), value.c_str());
  }
}

Json json_of(const qsf::SectionDirectory& d, const ReportOptions& options) {
  const Sums sums = sums_of(d);
  Json section = {{"name", qsf::section_label(d.kind, d.layer)},
                  {"offset", d.file_offset},
                  {"bytes", d.stored_bytes},
                  {"weights", sums.n_weights},
                  {"raw_bytes", sums.raw_bytes},
                  {"stored_bytes", sums.stored_bytes},
                  {"bits_per_weight", sums.bits_per_weight()},
                  {"compression", qsf::compression_name(d.compression)},
                  {"importance", d.importance},
                  {"n_tensors", d.tensors.size()},
                  {"n_tiles", d.tiles.size()}};
  if (!options.tensors) return section;
  Json& tensors = section["tensors"] = Json::array();
  for (const qsf::TensorInfo& t : d.tensors) {
    tensors.push_back({{"kind", qsf::tensor_kind_name(t.kind)},
                       {"rows", t.rows},
                       {"cols", t.cols},
                       {"type", qsf::quant_type_name(t.format.type)},
                       {"block", t.format.block},
                       {"layout", static_cast<unsigned>(t.layout)},
                       {"expert", t.expert},
                       {"bytes", raw_bytes_of(t)}});
  }
  return section;
}

Json model_json(const qsf::ModelSpec& s) {
  Json model = {{"architecture", s.architecture},
                {"layers", s.n_layers},
                {"hidden", s.hidden},
                {"heads", s.n_heads},
                {"kv_heads", s.n_kv_heads},
                {"head_dim", s.head_dim},
                {"ffn", s.ffn},
                {"vocabulary", s.n_vocab},
                {"positions", s.max_positions},
                {"activation", qsf::activation_name(s.activation)},
                {"gated_ffn", s.gated_ffn},
                {"norm", qsf::norm_type_name(s.norm)},
                {"position_encoding", qsf::position_encoding_name(s.positions)},
                {"tied_head", s.tied_head},
                {"calibrated", s.calibrated},
                {"natively_ternary", s.natively_ternary},
                {"weight_type", default_type_name(s)},
                {"block", s.block}};
  if (s.n_experts != 0) {
    model["experts"] = s.n_experts;
    model["experts_used"] = s.n_experts_used;
    model["expert_ffn"] = s.expert_ffn;
    model["shared_expert_ffn"] = s.shared_ffn;
  }
  if (s.pooling.has_value()) model["pooling"] = qsf::pooling_name(*s.pooling);
  if (s.embeds_only) model["embeds_only"] = true;
  if (s.mtp_block) model["mtp_block"] = true;
  if (s.positions == qsf::PositionEncoding::kRope) model["rope_theta"] = s.rope.theta;
  model["bos"] = s.bos_id ? Json(*s.bos_id) : Json();
  model["eos"] = s.eos_ids;
  model["pad"] = s.pad_id ? Json(*s.pad_id) : Json();
  return model;
}

}  // namespace

void add_line(std::string& text, const char* format, ...) {
  char line[512];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  text += line;
  text += '\n';
}

std::string text_report(const qsf::QsfReader& reader, const ReportOptions& options) {
  const Sums sums = sums_of(reader);
  std::string text;
  add_line(text, "file              %s", valid_utf8(reader.file().path()).c_str());
  add_line(text, "size              %s, %llu bytes, format version %u",
           megabytes(reader.file().size_bytes()).c_str(),
           static_cast<unsigned long long>(reader.file().size_bytes()), qsf::kQsfVersion);
  add_model(text, reader);
  add_line(text, "parameters        %llu, %.3f bits each%s",
           static_cast<unsigned long long>(sums.n_weights), sums.bits_per_weight(),
           sums.stored_bytes == sums.raw_bytes ? "" : " before compression");
  if (sums.stored_bytes != sums.raw_bytes) {
    add_line(text, "compressed        %s to %s", megabytes(sums.raw_bytes).c_str(),
             megabytes(sums.stored_bytes).c_str());
  }
  add_sections(text, reader, options);
  add_tokenizer(text, reader);
  add_metadata(text, reader.metadata());
  return text;
}

std::string json_report(const qsf::QsfReader& reader, const ReportOptions& options) {
  const Sums sums = sums_of(reader);
  Json report = {{"file", valid_utf8(reader.file().path())},
                 {"bytes", reader.file().size_bytes()},
                 {"version", qsf::kQsfVersion},
                 {"model", model_json(reader.spec())},
                 {"weights", sums.n_weights},
                 {"bits_per_weight", sums.bits_per_weight()},
                 {"raw_bytes", sums.raw_bytes},
                 {"stored_bytes", sums.stored_bytes}};
  for (const TypeSums& type : type_sums_of(reader)) {
    report["weight_types"].push_back({{"type", qsf::quant_type_name(type.format.type)},
                                      {"block", type.format.block},
                                      {"tensors", type.n_tensors},
                                      {"weights", type.n_weights},
                                      {"bytes", type.raw_bytes}});
  }
  for (const qsf::SectionDirectory& d : reader.directories()) {
    report["sections"].push_back(json_of(d, options));
  }
  for (const qsf::SectionInfo& s : reader.sections()) {
    report["section_directory"].push_back({{"name", s.name},
                                           {"offset", s.file_offset},
                                           {"bytes", s.bytes},
                                           {"required", s.required}});
  }
  if (const auto summary = summarise_tokenizer(reader)) {
    report["tokenizer"] = summary->error.empty() ? Json{{"kind", summary->kind},
                                                        {"tokens", summary->n_tokens},
                                                        {"adds_bos", summary->adds_bos},
                                                        {"bytes", summary->bytes}}
                                                 : Json{{"error", summary->error}};
  }
  for (const qsf::MetadataEntry& entry : reader.metadata().entries()) {
    report["metadata"][entry.key] = value_of(reader.metadata(), entry);
  }
  return report.dump(2) + "\n";
}

}  // namespace qsf_tools
