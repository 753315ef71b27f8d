// SPDX-License-Identifier: MIT

#include "import/hf/hf_config.h"

#include <algorithm>
#include <span>
#include <utility>

#include "import/hf/config_fields.h"
#include "import/hf/hf_chat_template.h"
#include "import/hf/hf_embedding.h"
#include "import/hf/hf_families.h"
#include "import/json_document.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 4U << 20;
constexpr std::uint64_t kMaxTokenizerConfigBytes = 64U << 20;
constexpr std::size_t kMaxEosIds = 1024;

struct Family {
  const char* name;  // under "architectures"
  Status (*parse)(ConfigFields&, HfConfig&);
  bool has_text_config = false;  // the keys of the language model are in an object of their own
  std::uint32_t n_vocab = 0;     // where files may leave it out
  bool headless = false;         // the class has no head, or one that predicts masked tokens
};
constexpr std::uint32_t kGemma3Vocab = 262208;
constexpr std::uint32_t kGemma3nVocab = 262400;
constexpr std::uint32_t kGemma4Vocab = 262144;
constexpr Family kFamilies[] = {
    {"BitNetForCausalLM", parse_bitnet},
    {"BitnetForCausalLM", parse_bitnet_1bit},
    {"BloomForCausalLM", parse_bloom},
    {"Cohere2ForCausalLM", parse_cohere2},
    {"CohereForCausalLM", parse_cohere},
    {"DeepseekV2ForCausalLM", parse_deepseek_v2},
    {"DeepseekV3ForCausalLM", parse_deepseek_v3},
    {"Exaone4ForCausalLM", parse_exaone4},
    {"FalconForCausalLM", parse_falcon},
    {"FalconH1ForCausalLM", parse_falcon_h1},
    {"GPT2LMHeadModel", parse_gpt2},
    {"GPTNeoXForCausalLM", parse_gptneox},
    {"GptOssForCausalLM", parse_gpt_oss},
    {"Gemma2ForCausalLM", parse_gemma2},
    {"Gemma3ForCausalLM", parse_gemma3, false, kGemma3Vocab},
    {"Gemma3ForConditionalGeneration", parse_gemma3, true, kGemma3Vocab},
    {"Gemma3TextModel", parse_gemma3_encoder, false, kGemma3Vocab, true},
    {"Gemma3nForCausalLM", parse_gemma3n, false, kGemma3nVocab},
    {"Gemma3nForConditionalGeneration", parse_gemma3n, true, kGemma3nVocab},
    {"Gemma4ForCausalLM", parse_gemma4, false, kGemma4Vocab},
    {"Gemma4ForConditionalGeneration", parse_gemma4, true, kGemma4Vocab},
    {"GemmaForCausalLM", parse_gemma},
    {"Glm4ForCausalLM", parse_glm4},
    {"Glm4MoeForCausalLM", parse_glm4moe},
    {"Glm4MoeLiteForCausalLM", parse_glm4moe_lite},
    {"GraniteForCausalLM", parse_granite},
    {"GraniteMoeForCausalLM", parse_granitemoe},
    {"GraniteMoeHybridForCausalLM", parse_granite4},
    {"GraniteMoeSharedForCausalLM", parse_granitemoeshared},
    {"InternLM2ForCausalLM", parse_internlm2},
    {"Lfm2ForCausalLM", parse_lfm2},
    {"Lfm2MoeForCausalLM", parse_lfm2moe},
    {"Lfm2VlForConditionalGeneration", parse_lfm2_vl, true},
    {"Llama4ForCausalLM", parse_llama4},
    {"Llama4ForConditionalGeneration", parse_llama4, true},
    {"LlamaForCausalLM", parse_llama},
    {"Ministral3ForCausalLM", parse_ministral3},
    {"Mistral3ForConditionalGeneration", parse_mistral3, true},
    {"MistralForCausalLM", parse_mistral},
    {"MPTForCausalLM", parse_mpt},
    {"MixtralForCausalLM", parse_mixtral},
    {"ModernBertForMaskedLM", parse_modernbert, false, 0, true},
    {"ModernBertModel", parse_modernbert, false, 0, true},
    {"MptForCausalLM", parse_mpt},
    {"NemotronHForCausalLM", parse_nemotron_h},
    {"NomicBertForMaskedLM", parse_nomic_bert, false, 0, true},
    {"NomicBertModel", parse_nomic_bert, false, 0, true},
    {"OPTForCausalLM", parse_opt},
    {"Olmo2ForCausalLM", parse_olmo2},
    {"Olmo3ForCausalLM", parse_olmo3},
    {"OlmoeForCausalLM", parse_olmoe},
    {"Phi3ForCausalLM", parse_phi3},
    {"PhiMoEForCausalLM", parse_phimoe},  // of published files
    {"PhiForCausalLM", parse_phi2},
    {"PhimoeForCausalLM", parse_phimoe},
    {"Qwen2ForCausalLM", parse_qwen2},
    {"Qwen2MoeForCausalLM", parse_qwen2moe},
    {"Qwen3ForCausalLM", parse_qwen3},
    {"Qwen3Model", parse_qwen3, false, 0, true},
    {"Qwen3MoeForCausalLM", parse_qwen3moe},
    {"Qwen3NextForCausalLM", parse_qwen3next},
    {"Qwen3_5ForCausalLM", parse_qwen35},
    {"Qwen3_5ForConditionalGeneration", parse_qwen35, true},
    {"Qwen3_5MoeForCausalLM", parse_qwen35moe},
    {"Qwen3_5MoeForConditionalGeneration", parse_qwen35moe, true},
    {"RWForCausalLM", parse_falcon},
    {"SmolLM3ForCausalLM", parse_smollm3},
    {"StableLmForCausalLM", parse_stablelm},
    {"Starcoder2ForCausalLM", parse_starcoder2},
};

Result<const Family*> find_family(const std::string& name) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (name == family.name) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  return unsupported("architecture \"%s\" is not supported; expected one of %s",
                     name.substr(0, 128).c_str(), known.c_str());
}

// Reads an id or a list of ids. Older files write -1 for none.
Result<std::vector<std::uint32_t>> parse_ids(const ConfigFields& fields, const char* key) {
  std::vector<std::uint32_t> ids;
  const JsonValue* value = fields.find(key);
  if (value == nullptr) return ids;
  const auto list = value->is_array() ? value->elements() : std::span(value, 1);
  if (list.size() > kMaxEosIds) {
    return corrupt("%s: %zu ids, expected at most %zu", key, list.size(), kMaxEosIds);
  }
  for (const JsonValue& id : list) {
    if (id.type() == JsonType::kSigned && id.number() == -1.0) continue;
    const auto number = id.unsigned_integer();
    if (!number || *number >= (1U << 24)) {
      return corrupt("%s: %s, expected a token id", key, id.shown().c_str());
    }
    ids.push_back(static_cast<std::uint32_t>(*number));
  }
  return ids;
}

void append_new(std::vector<std::uint32_t>& ids, const std::vector<std::uint32_t>& more) {
  for (const std::uint32_t id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

// Drops ids without an embedding row, with a warning. Models that were tuned with added tokens but
// kept their embedding have such files and run well without these ids.
void drop_outside(const char* file, const char* key, std::vector<std::uint32_t>& ids,
                  HfConfig& config) {
  std::erase_if(ids, [&](std::uint32_t id) {
    if (id < config.spec.n_vocab) return false;
    config.warnings.push_back(std::string(file) + ": " + key + " " + std::to_string(id) +
                              " is outside the vocabulary and ignored");
    return true;
  });
}

// A token of the whole model comes before that of its text model.
Status parse_special_tokens(const ConfigFields& whole, const ConfigFields& text, HfConfig& config) {
  ModelSpec& spec = config.spec;
  const auto parse = [&](const char* key) {
    return parse_ids(whole.find(key) != nullptr ? whole : text, key);
  };
  QSF_ASSIGN_OR_RETURN(std::vector<std::uint32_t> bos, parse("bos_token_id"));
  QSF_ASSIGN_OR_RETURN(std::vector<std::uint32_t> eos, parse("eos_token_id"));
  QSF_ASSIGN_OR_RETURN(std::vector<std::uint32_t> pad, parse("pad_token_id"));
  drop_outside("config.json", "bos_token_id", bos, config);
  drop_outside("config.json", "eos_token_id", eos, config);
  drop_outside("config.json", "pad_token_id", pad, config);
  if (!bos.empty()) spec.bos_id = bos[0];
  append_new(spec.eos_ids, eos);
  if (!pad.empty()) spec.pad_id = pad[0];
  return ok_status();
}

void note_dynamic_rope(const ConfigFields& fields, HfConfig& config) {
  const JsonValue* rope = rope_object(fields);
  if (rope == nullptr) return;
  const auto type = rope->contains("rope_type") ? rope->text("rope_type") : rope->text("type");
  if (type != "dynamic") return;
  config.warnings.push_back("dynamic scaling of RoPE is left out: the context ends at the " +
                            std::to_string(config.spec.max_positions) +
                            " positions that the model was trained for");
}

// Files of models that embed texts may have either key, of any family. "vision" lets the tokens of
// an image see each other, which are not in a text.
Status refuse_both_sides(ConfigFields& fields) {
  QSF_RETURN_IF_ERROR(refuse(fields, "is_causal", false));
  const char* key = "use_bidirectional_attention";
  const JsonValue* value = fields.find(key);
  if (value == nullptr || value->boolean() == false || value->text() == "vision") {
    return ok_status();
  }
  return unsupported("%s: %s is not supported", key, value->shown().c_str());
}

// Reads the keys of the language model, which are those of the whole file or of text_config.
Status parse_language_model(const Family& family, ConfigFields& fields, HfConfig& config) {
  config.spec.n_vocab = family.n_vocab == 0
                            ? fields.u32("vocab_size", 1, 1U << 24)
                            : fields.u32_or("vocab_size", family.n_vocab, 1, 1U << 24);
  config.n_mtp_layers = fields.u32_or("num_nextn_predict_layers", 0, 0, 64);
  QSF_RETURN_IF_ERROR(family.parse(fields, config));
  if (!config.spec.bidirectional) QSF_RETURN_IF_ERROR(refuse_both_sides(fields));
  if (family.headless) config.spec.embeds_only = config.spec.tied_head = true;
  note_dynamic_rope(fields, config);
  return fields.status();
}

Status parse_config(const JsonValue& json, HfConfig& config) {
  const ConfigFields whole(json);
  const JsonValue* architectures = whole.find("architectures");
  if (architectures == nullptr || architectures->elements().size() != 1 ||
      !architectures->elements()[0].text()) {
    return corrupt("architectures: expected a list of one name");
  }
  const std::string name(*architectures->elements()[0].text());
  QSF_ASSIGN_OR_RETURN(const Family* family, find_family(name));
  const JsonValue* text = family->has_text_config ? whole.find("text_config") : &json;
  if (text == nullptr || !text->is_object()) {
    return corrupt("text_config: expected an object with the language model of a %s", name.c_str());
  }
  config.multimodal = family->has_text_config;
  ConfigFields fields(*text);
  Status status = parse_language_model(*family, fields, config);
  if (family->has_text_config) status = std::move(status).with_context("text_config");
  QSF_RETURN_IF_ERROR(std::move(status));
  const char* quantised = "quantization_config";
  const JsonValue* quantisation = (whole.has(quantised) ? whole : fields).find(quantised);
  if (quantisation != nullptr) QSF_RETURN_IF_ERROR(parse_quantisation(*quantisation, config));
  config.spec.int8_rows = config.ternary != TernaryStorage::kNone;
  config.spec.source = "Hugging Face " + name;
  return parse_special_tokens(whole, fields, config);
}

// The ids of generation_config.json come first: generation stops at them.
Status parse_generation(const JsonValue& json, HfConfig& config) {
  const ConfigFields fields(json);
  QSF_ASSIGN_OR_RETURN(std::vector<std::uint32_t> ids, parse_ids(fields, "eos_token_id"));
  drop_outside("generation_config.json", "eos_token_id", ids, config);
  std::vector<std::uint32_t> all;
  append_new(all, ids);
  append_new(all, config.spec.eos_ids);
  config.spec.eos_ids = std::move(all);
  return ok_status();
}

// Python's json writes infinity as a word without quotes, which is no JSON. Puts quotes around it.
std::string with_quoted_infinities(std::string_view text) {
  constexpr std::string_view kWord = "Infinity";
  std::string quoted;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!in_string && text.substr(i, kWord.size()) == kWord) {
      quoted += '"' + std::string(kWord) + '"';
      i += kWord.size() - 1;
      continue;
    }
    quoted += text[i];
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      quoted += text[++i];
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
  }
  return quoted;
}

Status parse_file(const char* name, std::string_view text,
                  Status (*parse)(const JsonValue&, HfConfig&), HfConfig& config) {
  auto json = JsonDocument::parse(with_quoted_infinities(text));
  Status status = json ? parse(json->root(), config) : std::move(json).error();
  return std::move(status).with_context(name);
}

// Returns the text of a file, empty when there is none.
Result<std::string> read_text(const std::string& path, std::uint64_t max_bytes, FileOps& ops) {
  if (ops.path_kind(path) == PathKind::kMissing) return std::string();
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, file.read_all(max_bytes));
  return std::string(as_text(bytes));
}

}  // namespace

Result<HfConfig> parse_hf_config(const HfConfigTexts& texts) {
  HfConfig config;
  QSF_RETURN_IF_ERROR(parse_file("config.json", texts.config, parse_config, config));
  if (!texts.generation_config.empty()) {
    QSF_RETURN_IF_ERROR(
        parse_file("generation_config.json", texts.generation_config, parse_generation, config));
  }
  QSF_ASSIGN_OR_RETURN(HfChatTemplate chat,
                       read_hf_chat_template({texts.chat_template, texts.tokenizer_config,
                                              texts.chat_template_json}));
  config.spec.chat_template = std::move(chat.text);
  config.warnings.insert(config.warnings.end(), chat.warnings.begin(), chat.warnings.end());
  QSF_RETURN_IF_ERROR(validate(config.spec).with_context("config.json"));
  return config;
}

Result<HfConfig> read_hf_config(const std::string& folder, FileOps& ops) {
  if (ops.path_kind(folder + "/config.json") == PathKind::kMissing) {
    return not_found("%s: no config.json found; expected a folder with a Hugging Face model",
                     folder.c_str());
  }
  QSF_ASSIGN_OR_RETURN(const std::string config,
                       read_text(folder + "/config.json", kMaxConfigBytes, ops));
  QSF_ASSIGN_OR_RETURN(const std::string generation,
                       read_text(folder + "/generation_config.json", kMaxConfigBytes, ops));
  QSF_ASSIGN_OR_RETURN(const std::string tokenizer,
                       read_text(folder + "/tokenizer_config.json", kMaxTokenizerConfigBytes, ops));
  QSF_ASSIGN_OR_RETURN(const std::string chat,
                       read_text(folder + "/chat_template.jinja", kMaxChatTemplateBytes, ops));
  QSF_ASSIGN_OR_RETURN(const std::string chat_json,
                       read_text(folder + "/chat_template.json", kMaxChatTemplateJsonBytes, ops));
  auto result = parse_hf_config({config, generation, tokenizer, chat, chat_json});
  if (!result) return std::move(result).error().with_context(folder);
  QSF_RETURN_IF_ERROR(read_hf_embedding(folder, ops, *result));
  return result;
}

}  // namespace qsf
