// SPDX-License-Identifier: MIT

#include "import/hf/hf_pipeline.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "import/bert_steps.h"
#include "import/gguf/gguf_tokenizer.h"
#include "tokenizer/character_steps.h"
#include "tokenizer/nfc.h"

namespace qsf {

namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
// A sequence may hold sequences; real files have two levels.
constexpr int kMaxDepth = 8;

std::string type_of(const JsonValue& json) {
  return std::string(json.text("type").value_or("none").substr(0, 60));
}

Status unknown_part(const char* part, const JsonValue& json) {
  return unsupported("tokenizer.json: %s \"%s\" is not supported", part, type_of(json).c_str());
}

const JsonValue* sequence_of(const JsonValue& json, const char* member) noexcept {
  const JsonValue* list = json.find(member);
  return list != nullptr && list->is_array() ? list : nullptr;
}

void add_step(TextOp op, TextStage stage, std::string text, std::string replacement,
              TokenizerData& data) {
  TextStep step;
  step.op = op;
  step.stage = stage;
  step.text = std::move(text);
  step.replacement = std::move(replacement);
  data.steps.push_back(std::move(step));
}

void add_split(std::string expression, SplitBehavior behavior, bool invert, TokenizerData& data) {
  add_step(TextOp::kSplit, TextStage::kPreTokenizer, std::move(expression), "", data);
  data.steps.back().behavior = behavior;
  data.steps.back().invert = invert;
}

// A step that changes text must come before every split; after a split it would change pieces.
Status check_before_splits(const char* what, const TokenizerData& data) {
  if (data.steps.empty() || data.steps.back().op != TextOp::kSplit) return ok_status();
  return unsupported("tokenizer.json: pre-tokeniser \"%s\" after a split is not supported", what);
}

Result<SplitBehavior> behavior_of(const JsonValue& json) {
  const std::string_view name = json.text("behavior").value_or("Isolated");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported("tokenizer.json: split behaviour \"%s\" is not known",
                     std::string(name.substr(0, 60)).c_str());
}

// Reads {"Regex": ...} or {"String": ...}.
Result<std::string> pattern_of(const JsonValue& json) {
  const JsonValue* pattern = json.find("pattern");
  if (pattern != nullptr) {
    if (const auto text = pattern->text("String")) return escape_expression(*text);
    if (const auto expression = pattern->text("Regex")) return adapt_expression(*expression);
  }
  return corrupt("tokenizer.json: \"%s\" without a pattern", type_of(json).c_str());
}

// Returns the text of {"pattern": {"String": text}}.
std::optional<std::string_view> pattern_string(const JsonValue& json) noexcept {
  const JsonValue* pattern = json.find("pattern");
  return pattern == nullptr ? std::nullopt : pattern->text("String");
}

Status add_replace(const JsonValue& json, TokenizerData& data) {
  const auto text = pattern_string(json);
  const auto content = json.text("content");
  if (!text || text->empty() || !content) {
    return unsupported(
        "tokenizer.json: normaliser \"Replace\" of anything but a string is not supported");
  }
  add_step(TextOp::kReplace, TextStage::kNormalizer, std::string(*text), std::string(*content),
           data);
  return ok_status();
}

// Without "strip_accents", accents are stripped where letters become lowercase.
void add_bert(const JsonValue& json, TokenizerData& data) {
  const bool lowercase = json.boolean("lowercase").value_or(true);
  add_bert_normalizer({.clean_text = json.boolean("clean_text").value_or(true),
                       .space_ideographs = json.boolean("handle_chinese_chars").value_or(true),
                       .strip_marks = json.boolean("strip_accents").value_or(lowercase),
                       .lowercase = lowercase},
                      data);
}

Status add_normalizer(const JsonValue& json, int depth, TokenizerData& data) {
  const std::string type = type_of(json);
  if (type == "Sequence" && depth < kMaxDepth) {
    const JsonValue* list = sequence_of(json, "normalizers");
    if (list == nullptr) return corrupt("tokenizer.json: a sequence without normalizers");
    for (const JsonValue& part : list->elements())
      QSF_RETURN_IF_ERROR(add_normalizer(part, depth + 1, data));
    return ok_status();
  }
  if (type == "Prepend") {
    const std::string_view text = json.text("prepend").value_or("");
    if (text.empty()) return corrupt("tokenizer.json: \"Prepend\" without a text");
    add_step(TextOp::kPrepend, TextStage::kNormalizer, std::string(text), "", data);
    return ok_status();
  }
  if (type == "Replace") return add_replace(json, data);
  if (type == "BertNormalizer") {
    add_bert(json, data);
    return ok_status();
  }
  if (type == "NFC") {
    if (!data.steps.empty()) {
      return unsupported("tokenizer.json: normaliser \"NFC\" behind another is not supported");
    }
    data.nfc = true;
    return ok_status();
  }
  return unknown_part("normaliser", json);
}

// Returns the scheme of a Metaspace part: "always", "first" or "never".
std::string prepend_scheme(const JsonValue& json) {
  if (const auto scheme = json.text("prepend_scheme")) return std::string(*scheme);
  return json.boolean("add_prefix_space").value_or(true) ? "always" : "never";
}

Status check_metaspace(const JsonValue& json) {
  const std::string_view symbol = json.text("replacement").value_or(kSpaceSymbol);
  const std::string scheme = prepend_scheme(json);
  if (symbol != kSpaceSymbol || (scheme != "always" && scheme != "first" && scheme != "never")) {
    return unsupported(
        "tokenizer.json: \"Metaspace\" with another symbol than U+2581 or the scheme "
        "\"%s\" is not supported",
        scheme.substr(0, 20).c_str());
  }
  return ok_status();
}

Status add_metaspace(const JsonValue& json, TokenizerData& data) {
  QSF_RETURN_IF_ERROR(check_metaspace(json));
  QSF_RETURN_IF_ERROR(check_before_splits("Metaspace", data));
  const std::string scheme = prepend_scheme(json);
  add_step(TextOp::kReplace, TextStage::kPreTokenizer, " ", std::string(kSpaceSymbol), data);
  if (scheme != "never") {
    add_step(TextOp::kPrepend, TextStage::kPreTokenizer, std::string(kSpaceSymbol), "", data);
    data.steps.back().unless_present = true;
    data.steps.back().first_only = scheme == "first";
  }
  if (json.boolean("split").value_or(true)) {
    add_split(std::string(kSpaceSymbol), SplitBehavior::kMergedWithNext, false, data);
  }
  return ok_status();
}

Status add_byte_level(const JsonValue& json, TokenizerData& data) {
  if (json.boolean("add_prefix_space").value_or(true)) {
    QSF_RETURN_IF_ERROR(check_before_splits("ByteLevel\" with \"add_prefix_space", data));
    add_step(TextOp::kPrepend, TextStage::kPreTokenizer, " ", "", data);
    data.steps.back().unless_present = true;
  }
  if (json.boolean("use_regex").value_or(true)) {
    add_split(gpt2_expression(), SplitBehavior::kIsolated, false, data);
  }
  return ok_status();
}

Status add_pre_tokenizer(const JsonValue& json, int depth, TokenizerData& data) {
  const std::string type = type_of(json);
  if (type == "Sequence" && depth < kMaxDepth) {
    const JsonValue* list = sequence_of(json, "pretokenizers");
    if (list == nullptr) return corrupt("tokenizer.json: a sequence without pretokenizers");
    for (const JsonValue& part : list->elements())
      QSF_RETURN_IF_ERROR(add_pre_tokenizer(part, depth + 1, data));
    return ok_status();
  }
  if (type == "ByteLevel") return add_byte_level(json, data);
  if (type == "Metaspace") return add_metaspace(json, data);
  if (type == "Split") {
    QSF_ASSIGN_OR_RETURN(const SplitBehavior behavior, behavior_of(json));
    QSF_ASSIGN_OR_RETURN(std::string expression, pattern_of(json));
    add_split(std::move(expression), behavior, json.boolean("invert").value_or(false), data);
    return ok_status();
  }
  if (type == "Digits") {
    const bool each = json.boolean("individual_digits").value_or(false);
    add_split(each ? "\\p{N}" : "\\p{N}+", SplitBehavior::kIsolated, false, data);
    return ok_status();
  }
  if (type == "Punctuation") {
    QSF_ASSIGN_OR_RETURN(const SplitBehavior behavior, behavior_of(json));
    add_split("[\\p{P}!-/:-@\\[-`{-~]", behavior, false, data);
    return ok_status();
  }
  if (type == "WhitespaceSplit") {
    add_split("\\s", SplitBehavior::kRemoved, false, data);
    return ok_status();
  }
  if (type == "BertPreTokenizer") {
    add_bert_splits(data);
    return ok_status();
  }
  return unknown_part("pre-tokeniser", json);
}

Status read_decoder(const JsonValue& json, int depth, TokenizerData& data) {
  const std::string type = type_of(json);
  if (type == "Sequence" && depth < kMaxDepth) {
    const JsonValue* list = sequence_of(json, "decoders");
    if (list == nullptr) return corrupt("tokenizer.json: a sequence without decoders");
    for (const JsonValue& part : list->elements())
      QSF_RETURN_IF_ERROR(read_decoder(part, depth + 1, data));
    return ok_status();
  }
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return ok_status();
  if (type == "Metaspace") {
    QSF_RETURN_IF_ERROR(check_metaspace(json));
    data.unescape_spaces = true;
    data.strip_leading_space = prepend_scheme(json) != "never";
    return ok_status();
  }
  if (type == "WordPiece" && data.kind == TokenizerKind::kWordPiece) {
    data.strip_leading_space = true;  // "cleanup" of English punctuation is left out
    return ok_status();
  }
  if (type == "Replace") {
    if (pattern_string(json) == kSpaceSymbol && json.text("content") == " ") {
      data.unescape_spaces = true;
      return ok_status();
    }
  }
  if (type == "Strip") {
    const auto start = json.unsigned_integer("start");
    if (json.text("content") == " " && start.value_or(0) <= 1 &&
        json.unsigned_integer("stop").value_or(0) == 0) {
      data.strip_leading_space = start.value_or(0) == 1;
      return ok_status();
    }
  }
  return unknown_part("decoder", json);
}

// Copies an expression and rewrites syntax that PCRE2 reads differently.
class ExpressionAdapter {
 public:
  explicit ExpressionAdapter(std::string_view source) : source_(source) {}

  Result<std::string> run() {
    for (; at_ < source_.size(); ++at_) QSF_RETURN_IF_ERROR(step());
    // In Ruby's syntax ^ and $ always match at the edges of lines.
    return has_anchor_ ? "(?m)" + out_ : out_;
  }

 private:
  Status step() {
    const char c = source_[at_];
    const char next = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    if (c == '\\') {
      if (next == 'h' || next == 'H' || next == 'u' || next == '\0') return refuse("an escape");
      out_.push_back(c);
      out_.push_back(next);
      ++at_;
      return ok_status();
    }
    if (class_depth_ == 0) {
      has_anchor_ = has_anchor_ || c == '^' || c == '$';
      out_.push_back(c);
      if (c == '[') open_class(next);
      return ok_status();
    }
    return step_in_class(c, next);
  }

  void open_class(char next) {
    ++class_depth_;
    if (next == '^') out_.push_back(source_[++at_]);
    // A closing bracket right after the opening one is a literal.
    if (at_ + 1 < source_.size() && source_[at_ + 1] == ']') {
      out_ += "\\]";
      ++at_;
    }
  }

  Status step_in_class(char c, char next) {
    if (c == '&' && next == '&') return refuse("an intersection of classes");
    if (c == '[' && next == ':') {
      const std::size_t end = source_.find(":]", at_ + 2);
      if (end == std::string_view::npos) return refuse("an unfinished class name");
      out_.append(source_.substr(at_, end + 2 - at_));
      at_ = end + 1;
      return ok_status();
    }
    if (c == '[') {  // a union: the inner brackets fall away
      if (next == '^' || next == ']') return refuse("a negated class inside a class");
      ++class_depth_;
      return ok_status();
    }
    if (c == ']' && --class_depth_ > 0) return ok_status();
    out_.push_back(c);
    return ok_status();
  }

  static Status refuse(const char* what) {
    return unsupported("tokenizer.json: an expression has %s, which is not supported", what);
  }

  std::string_view source_;
  std::string out_;
  std::size_t at_ = 0;
  int class_depth_ = 0;
  bool has_anchor_ = false;
};

std::string replaced_all(std::string_view text, const TextStep& step) {
  std::string replaced;
  std::size_t done = 0;
  for (std::size_t at = text.find(step.text); at != std::string_view::npos;
       at = text.find(step.text, done)) {
    replaced.append(text, done, at - done).append(step.replacement);
    done = at + step.text.size();
  }
  return replaced.append(text, done);
}

}  // namespace

Status add_hf_normalizer(const JsonValue* json, TokenizerData& data) {
  return json == nullptr ? ok_status() : add_normalizer(*json, 0, data);
}

Status add_hf_pre_tokenizer(const JsonValue* json, TokenizerData& data) {
  return json == nullptr ? ok_status() : add_pre_tokenizer(*json, 0, data);
}

Status read_hf_decoder(const JsonValue* json, TokenizerData& data) {
  return json == nullptr ? ok_status() : read_decoder(*json, 0, data);
}

bool hf_part_has_type(const JsonValue* json, std::string_view type) noexcept {
  if (json == nullptr) return false;
  const auto own = json->text("type");
  if (!own) return false;
  if (own == type) return true;
  for (const char* list_name : {"normalizers", "pretokenizers", "decoders", "processors"}) {
    const JsonValue* list = sequence_of(*json, list_name);
    if (list == nullptr) continue;
    for (const JsonValue& part : list->elements()) {
      if (part.text("type") == type) return true;
    }
  }
  return false;
}

std::string apply_hf_normalizer(const TokenizerData& data, std::string_view text) {
  std::string result(text);
  if (data.nfc) normalize_nfc(result, nullptr);
  for (const TextStep& step : data.steps) {
    if (step.stage != TextStage::kNormalizer) continue;
    switch (step.op) {
      case TextOp::kPrepend: result.insert(0, step.text); break;
      case TextOp::kReplace: result = replaced_all(result, step); break;
      case TextOp::kCleanText: clean_text(result, nullptr); break;
      case TextOp::kSpaceIdeographs: space_ideographs(result, nullptr); break;
      case TextOp::kStripMarks: strip_marks(result, nullptr); break;
      case TextOp::kLowercase: lowercase(result, nullptr); break;
      default: break;
    }
  }
  return result;
}

Result<std::string> adapt_expression(std::string_view expression) {
  return ExpressionAdapter(expression).run();
}

std::string escape_expression(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-#&~ ").find(c) != std::string_view::npos) {
      escaped.push_back('\\');
    }
    escaped.push_back(c);
  }
  return escaped;
}

}  // namespace qsf
