// SPDX-License-Identifier: MIT

#include "import/sentencepiece_model.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/bit_cast.h"

namespace qsf {

namespace {

constexpr std::string_view kPieceSpaceSymbol = "\xE2\x96\x81";  // U+2581

// One field of a protobuf message.
struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire_type = 0;
  std::uint64_t value = 0;  // wire types 0, 1 and 5
  ByteSpan bytes;           // wire type 2
};

// Walks over the fields of one message.
class MessageReader {
 public:
  explicit MessageReader(ByteSpan bytes) noexcept : reader_(bytes) {}

  // Returns true and fills `field` while there is another one; false at the end or on a bad field,
  // which ok() tells apart.
  bool next(Field& field) noexcept {
    if (!ok_ || reader_.remaining() == 0) return false;
    const std::uint64_t tag = read_varint();
    field = {};
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.wire_type = static_cast<std::uint32_t>(tag & 7U);
    if (tag >> 32 != 0 || field.number == 0) ok_ = false;
    switch (field.wire_type) {
      case 0: field.value = read_varint(); break;
      case 1: field.value = reader_.read<std::uint64_t>(); break;
      case 2: field.bytes = reader_.read_bytes(read_varint()); break;
      case 5: field.value = reader_.read<std::uint32_t>(); break;
      default: ok_ = false;
    }
    ok_ = ok_ && reader_.ok();
    return ok_;
  }
  bool ok() const noexcept { return ok_; }

 private:
  std::uint64_t read_varint() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = reader_.read<std::uint8_t>();
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    ok_ = false;
    return 0;
  }

  ByteReader reader_;
  bool ok_ = true;
};

Status damaged(const char* what) {
  return corrupt("tokenizer.model: %s: invalid SentencePiece message; the file is damaged", what);
}

struct Specs {
  std::uint64_t model_type = 1;  // the proto's default: unigram
  bool byte_fallback = false;
  bool space_suffix = false;
  std::int32_t unk = 0;
  std::int32_t bos = 1;
  std::int32_t eos = 2;
  std::int32_t pad = -1;
  bool has_character_map = false;
  std::string normalizer;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};

Status read_trainer_spec(ByteSpan bytes, Specs& specs) {
  MessageReader reader(bytes);
  for (Field field; reader.next(field);) {
    const auto id = static_cast<std::int32_t>(field.value & 0xFFFFFFFFU);
    switch (field.number) {
      case 3: specs.model_type = field.value; break;
      case 24: specs.space_suffix = field.value != 0; break;
      case 35: specs.byte_fallback = field.value != 0; break;
      case 40: specs.unk = id; break;
      case 41: specs.bos = id; break;
      case 42: specs.eos = id; break;
      case 43: specs.pad = id; break;
      default: break;
    }
  }
  return reader.ok() ? ok_status() : damaged("trainer spec");
}

Status read_normalizer_spec(ByteSpan bytes, Specs& specs) {
  MessageReader reader(bytes);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case 1: specs.normalizer = as_text(field.bytes); break;
      case 2: specs.has_character_map = !field.bytes.empty(); break;
      case 3: specs.add_dummy_prefix = field.value != 0; break;
      case 4: specs.remove_extra_spaces = field.value != 0; break;
      case 5: specs.escape_spaces = field.value != 0; break;
      default: break;
    }
  }
  return reader.ok() ? ok_status() : damaged("normalizer spec");
}

Status read_piece(ByteSpan bytes, TokenizerData& data) {
  VocabToken token;
  std::uint64_t type = 1;
  MessageReader reader(bytes);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case 1: token.text = as_text(field.bytes); break;
      case 2: token.score = bit_cast<float>(static_cast<std::uint32_t>(field.value)); break;
      case 3: type = field.value; break;
      default: break;
    }
  }
  if (!reader.ok() || type < 1 || type > 6) return damaged("piece");
  token.type = static_cast<TokenType>(type);
  data.tokens.push_back(std::move(token));
  return ok_status();
}

Status check_specs(const Specs& specs) {
  constexpr const char* kNames[] = {"an unknown", "a Unigram", "a BPE", "a word", "a character"};
  if (specs.model_type != 2) {
    return unsupported("tokenizer.model: %s model (type %llu), expected a BPE model (type 2)",
                       kNames[specs.model_type <= 4 ? specs.model_type : 0],
                       static_cast<unsigned long long>(specs.model_type));
  }
  if (specs.has_character_map) {
    return unsupported(
        "tokenizer.model: normaliser \"%s\" changes characters, expected \"identity\"",
        specs.normalizer.substr(0, 40).c_str());
  }
  if (specs.space_suffix || !specs.escape_spaces) {
    return unsupported("tokenizer.model: spaces as suffixes or unescaped are not supported");
  }
  return ok_status();
}

TokenId special_id(std::int32_t id, std::size_t n_tokens) noexcept {
  return id >= 0 && static_cast<std::size_t>(id) < n_tokens ? static_cast<TokenId>(id) : kNoToken;
}

void add_steps(const Specs& specs, TokenizerData& data) {
  TextStep step;
  step.stage = TextStage::kNormalizer;
  if (specs.remove_extra_spaces) {
    step.op = TextOp::kCollapseSpaces;
    data.steps.push_back(step);
  }
  if (specs.add_dummy_prefix) {
    step.op = TextOp::kPrepend;
    step.text = " ";
    data.steps.push_back(step);
  }
  step.op = TextOp::kReplace;
  step.text = " ";
  step.replacement = kPieceSpaceSymbol;
  data.steps.push_back(std::move(step));
}

}  // namespace

Result<TokenizerData> tokenizer_from_sentencepiece(ByteSpan file) {
  TokenizerData data;
  data.kind = TokenizerKind::kScoredBpe;
  Specs specs;
  MessageReader reader(file);
  for (Field field; reader.next(field);) {
    if (field.wire_type != 2) continue;
    switch (field.number) {
      case 1: QSF_RETURN_IF_ERROR(read_piece(field.bytes, data)); break;
      case 2: QSF_RETURN_IF_ERROR(read_trainer_spec(field.bytes, specs)); break;
      case 3: QSF_RETURN_IF_ERROR(read_normalizer_spec(field.bytes, specs)); break;
      default: break;
    }
  }
  if (!reader.ok()) return damaged("model");
  if (data.tokens.empty()) return damaged("no pieces");
  QSF_RETURN_IF_ERROR(check_specs(specs));
  data.byte_fallback = specs.byte_fallback;
  data.fuse_unknown = true;
  data.unescape_spaces = true;
  data.strip_leading_space = specs.add_dummy_prefix;
  data.unk = special_id(specs.unk, data.tokens.size());
  data.bos = special_id(specs.bos, data.tokens.size());
  data.eos = special_id(specs.eos, data.tokens.size());
  data.pad = special_id(specs.pad, data.tokens.size());
  if (data.eos != kNoToken) data.stop_ids.push_back(data.eos);
  add_steps(specs, data);
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    const VocabToken& token = data.tokens[id];
    const bool control = token.type == TokenType::kControl;
    if ((!control && token.type != TokenType::kUserDefined) || token.text.empty()) continue;
    AddedToken added;
    added.text = token.text;
    added.id = id;
    added.special = control;
    added.normalized =
        !control;  // SentencePiece matches its own symbols after the spaces are escaped
    data.added.push_back(std::move(added));
  }
  return data;
}

}  // namespace qsf
