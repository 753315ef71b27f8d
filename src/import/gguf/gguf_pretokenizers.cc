// SPDX-License-Identifier: MIT
//
// The one table of pre-tokenisers that GGUF files name. The expressions are the models' own, as
// their tokenizer.json files state them, with characters beyond ASCII written as \x{...}; the one
// exception is kTrailingSpace, which stands for \s+$ and finds the same text without trying every
// character of a long run of spaces as a beginning.

#include "import/gguf/gguf_pretokenizers.h"

namespace qsf {

namespace {

constexpr const char* kGpt2 =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";
constexpr const char* kLlama3 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N)re"
    R"re(}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kQwen2 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\)re"
    R"re(r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kGpt4o =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:)re"
    R"re('s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{)re"
    R"re(Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}])re"
    R"re(+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kTekken =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\)re"
    R"re(r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kPunctuation = R"re([\p{P}$+<=>^~|`]+)re";
constexpr const char* kThreeDigits = R"re([0-9][0-9][0-9])re";
constexpr const char* kDigit = R"re(\p{N})re";
constexpr const char* kDigits = R"re(\p{N}+)re";
constexpr const char* kUpToThreeDigits = R"re(\p{N}{1,3})re";
constexpr const char* kLineBreak = R"re([\r\n])re";
constexpr const char* kDeepseekLetters =
    R"re(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\)re"
    R"re(x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\)re"
    R"re(x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F)re"
    R"re(}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1)re"
    R"re(CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00})re"
    R"re(-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{)re"
    R"re(1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})re"
    R"re(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{)re"
    R"re(1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115})re"
    R"re(\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{21)re"
    R"re(39}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x)re"
    R"re({2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69)re"
    R"re(B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\)re"
    R"re(x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{)re"
    R"re(104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A)re"
    R"re(0}-\x{118DF}\x{1E900}-\x{1E943}]+)re";
constexpr const char* kDeepseekPunctuation =
    R"re(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)re";
constexpr const char* kTrailingSpace = R"re((?<!\s)\s++$)re";
constexpr const char* kDeepseekCjk = R"re([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)re";
constexpr const char* kSpacedLetters = R"re(\s?\p{L}+)re";
constexpr const char* kSpacedPunctuation = R"re(\s?\p{P}+)re";
constexpr const char* kDeepseek3Cjk =
    R"re([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)re";
constexpr const char* kDeepseek3Words =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{)re"
    R"re(M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kBloom =
    R"re( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)re";

// clang-format off
constexpr GgufPretokenizer kPretokenizers[] = {
    {"default", {kPunctuation, kGpt2, kDigits, kThreeDigits}, false, false},
    {"gpt-2", {kGpt2}, false, false},
    {"phi-2", {kGpt2}, false, false},
    {"mpt", {kGpt2}, false, false},
    {"olmo", {kGpt2}, false, false},
    {"jais", {kGpt2}, false, false},
    {"gigachat", {kGpt2}, false, false},
    {"exaone4", {kGpt2}, false, false},
    {"trillion", {kGpt2}, false, false},
    {"falcon", {kPunctuation, kGpt2, kThreeDigits}, false, false},
    {"starcoder", {kDigit, kGpt2}, false, false},
    {"refact", {kDigit, kGpt2}, false, false},
    {"command-r", {kDigit, kGpt2}, false, false},
    {"smollm", {kDigit, kGpt2}, false, false},
    {"codeshell", {kDigit, kGpt2}, false, false},
    {"exaone", {kDigit, kGpt2}, false, false},
    {"minerva-7b", {kDigit, kGpt2}, false, false},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"pixtral", {kLlama3}, true, true},
    {"dbrx", {kLlama3}, false, false},
    {"smaug-bpe", {kLlama3}, false, false},
    {"chatglm-bpe", {kLlama3}, false, false},
    {"glm4", {kLlama3}, false, false},
    {"qwen2", {kQwen2}, false, false},
    {"deepseek-r1-qwen", {kQwen2}, false, false},
    {"stablelm2", {kQwen2}, false, false},
    {"megrez", {kQwen2}, false, false},
    {"hunyuan", {kQwen2}, false, false},
    {"gpt-4o", {kGpt4o}, false, false},
    {"llama4", {kGpt4o}, false, false},
    {"tekken", {kTekken}, true, true},
    {"deepseek-llm", {kLineBreak, kDeepseekLetters, kDeepseekPunctuation, kTrailingSpace, kDeepseekCjk, kDigits}, false, false},
    {"deepseek-coder", {kLineBreak, kSpacedLetters, kSpacedPunctuation, kDeepseekCjk, kDigit}, false, false},
    {"deepseek-v3", {kUpToThreeDigits, kDeepseek3Cjk, kDeepseek3Words}, false, false},
    {"hunyuan-dense", {kUpToThreeDigits, kDeepseek3Cjk, kDeepseek3Words}, false, false},
    {"bloom", {kBloom}, false, false},
    {"poro-chat", {kBloom}, false, false},
    {"gpt3-finnish", {kBloom}, false, false},
    {"viking", {kBloom, kDigit}, false, false},
};
// clang-format on

}  // namespace

const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name) noexcept {
  for (const GgufPretokenizer& entry : kPretokenizers) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::span<const GgufPretokenizer> gguf_pretokenizers() noexcept {
  return kPretokenizers;
}

const char* gpt2_expression() noexcept {
  return kGpt2;
}

}  // namespace qsf
