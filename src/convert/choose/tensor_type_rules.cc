// SPDX-License-Identifier: MIT

#include "convert/choose/tensor_type_rules.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <utility>
#include <vector>

#include "import/gguf/gguf_arch.h"

namespace qsf {
namespace {

struct PatternDeleter {
  void operator()(pcre2_code* p) const noexcept { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
};

class Pattern {
 public:
  static Result<Pattern> compile(const std::string& text) {
    int error = 0;
    PCRE2_SIZE at = 0;
    Pattern pattern;
    pattern.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                      PCRE2_CASELESS, &error, &at, nullptr));
    if (pattern.code_ == nullptr) {
      PCRE2_UCHAR why[128] = {};
      pcre2_get_error_message(error, why, sizeof why);
      return invalid_argument("--tensor-type %s: not a regular expression: %s at character %zu",
                              text.c_str(), reinterpret_cast<const char*>(why), std::size_t{at});
    }
    pattern.match_.reset(pcre2_match_data_create_from_pattern(pattern.code_.get(), nullptr));
    return pattern;
  }

  bool is_found_in(const std::string& name) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                       match_.get(), nullptr) >= 0;
  }

 private:
  std::unique_ptr<pcre2_code, PatternDeleter> code_;
  std::unique_ptr<pcre2_match_data, PatternDeleter> match_;
};

bool has_a_type_to_choose(const SourceTensor& tensor) noexcept {
  return tensor.rows > 1 && !is_float_type(preset_type(QuantType::kQ4, tensor.kind));
}

// As in GGUF files, where most architectures name a kind alike; a kind without such a name has that
// of `qsf inspect`.
std::string name_of(const SourcePlace& t) {
  const TensorKind kind = t.source->kind;
  const std::string name = gguf_tensor_name({}, kind, t.section.layer);
  if (!name.empty()) return name;
  const std::string own = std::string(tensor_kind_name(kind)) + ".weight";
  return t.section.kind == SectionKind::kLayer
             ? "blk." + std::to_string(t.section.layer) + "." + own
             : own;
}

Status set_format(const TensorTypeRule& rule, const SourcePlace& t, std::uint32_t block,
                  TensorFormats& formats) {
  if (is_vocabulary(t.source->kind) && !is_vocabulary_type(rule.type)) {
    return invalid_argument(
        "--tensor-type %s=%s: matches %s, and embedding and head cannot be ternary; expected a "
        "type such as 8bit, q6_k or 4bit",
        rule.pattern.c_str(), std::string(quant_type_name(rule.type)).c_str(), name_of(t).c_str());
  }
  return formats.set(t.source->kind, t.section.layer, block_format(rule.type, block));
}

}  // namespace

Result<TensorTypeRule> parse_tensor_type_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const TypeTraits* const traits =
      equals == std::string_view::npos ? nullptr : find_type_traits(text.substr(equals + 1));
  if (traits == nullptr || equals == 0) {
    return invalid_argument(
        "%s: expected PATTERN=TYPE with a type of --head-type, such as "
        "ffn_down=q6_k",
        std::string(text).c_str());
  }
  return TensorTypeRule{std::string(text.substr(0, equals)), traits->type};
}

Result<TensorFormats> formats_by_rules(const ModelSource& source,
                                       std::span<const TensorTypeRule> rules, std::uint32_t block) {
  std::vector<Pattern> patterns;
  for (const TensorTypeRule& rule : rules) {
    QSF_ASSIGN_OR_RETURN(Pattern pattern, Pattern::compile(rule.pattern));
    patterns.push_back(std::move(pattern));
  }
  TensorFormats formats;
  std::vector<bool> is_found(rules.size(), false);
  std::string names;  // of the first layer and outside layers, for the message
  for (const SourcePlace& t : tensors_of(source)) {
    if (!has_a_type_to_choose(*t.source)) continue;
    const std::string name = name_of(t);
    if (t.section.layer == 0 && names.find(name) == std::string::npos) {
      names += (names.empty() ? "" : ", ") + name;
    }
    bool is_set = false;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (!patterns[i].is_found_in(name)) continue;
      is_found[i] = true;
      if (is_set) continue;
      QSF_RETURN_IF_ERROR(set_format(rules[i], t, block, formats));
      is_set = true;
    }
  }
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (is_found[i]) continue;
    return invalid_argument("--tensor-type %s: is in no name of a matrix; there are %s",
                            rules[i].pattern.c_str(), names.c_str());
  }
  return formats;
}

}  // namespace qsf
