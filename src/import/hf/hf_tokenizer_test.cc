// SPDX-License-Identifier: MIT
//
// Holds imported tokenizers to what their own libraries make of a hundred texts each, and the
// importer to clean refusals.

#include "import/hf/hf_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "import/hf/hf_pipeline.h"
#include "import/json_document.h"
#include "import/sentencepiece_model.h"
#include "import/testing/tokenizer_fixture.h"
#include "import/vocabulary.h"
#include "tokenizer/stream_decoder.h"

namespace qsf {
namespace {

using testing_support::encode;
using testing_support::open_tokenizer;
using testing_support::OpenTokenizer;
using testing_support::read_file;

std::string data_path(const std::string& folder) {
  return std::string(QSF_SOURCE_DIR) + "/testdata/tokenizer/" + folder + "/";
}

HfTokenizerFiles read_folder(const std::string& path) {
  HfTokenizerFiles files;
  for (const HfTokenizerFileName& entry : hf_tokenizer_file_names()) {
    files.*entry.content = read_file(path + entry.name);
  }
  return files;
}

struct Case {
  std::string text;
  std::vector<TokenId> ids;
  std::string decoded;
};

std::vector<Case> read_cases(const std::string& folder) {
  std::vector<Case> cases;
  const auto json = JsonDocument::parse(read_file(data_path(folder) + "cases.json").value_or(""));
  if (!json) return cases;
  for (const JsonValue& item : json->root().find("cases")->elements()) {
    Case one{std::string(*item.text("text")), {}, std::string(*item.text("decoded"))};
    for (const JsonValue& id : item.find("ids")->elements()) {
      one.ids.push_back(static_cast<TokenId>(*id.unsigned_integer()));
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokenizer, DecodeOptions{});
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  return text.append(decoder.finish());
}

void expect_cases(const Tokenizer& tokenizer, const std::vector<Case>& cases, bool parse_special,
                  std::optional<bool> add_special) {
  ASSERT_GE(cases.size(), 40U);
  for (const Case& one : cases) {
    const auto ids = encode(tokenizer, one.text, parse_special, add_special, add_special);
    EXPECT_EQ(ids, one.ids) << "\"" << one.text << "\"";
    // SentencePiece writes unknown characters as " U+2047 ", which no text contained.
    if (one.decoded.find("\xE2\x81\x87") != std::string::npos) continue;
    EXPECT_EQ(stream(tokenizer, one.ids), one.decoded) << "\"" << one.text << "\"";
    EXPECT_EQ(testing_support::decode(tokenizer, one.ids, /*skip_special=*/true), one.decoded);
  }
}

class HfVectorTest : public testing::TestWithParam<const char*> {};

TEST_P(HfVectorTest, EncodesAndDecodesAsTheOriginal) {
  const std::string folder = GetParam();
  HfTokenizerFiles files = read_folder(data_path(folder));
  const bool sentencepiece = files.tokenizer_model.has_value();
  const auto data = tokenizer_from_hf(files);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  auto opened = open_tokenizer(*data);
  ASSERT_TRUE(opened->tokenizer.has_value()) << opened->error;
  const auto cases = read_cases(folder);
  EXPECT_GE(cases.size(), 100U);
  // SentencePiece itself knows no special tokens in text and adds none.
  expect_cases(*opened->tokenizer, cases, !sentencepiece,
               sentencepiece ? std::optional(false) : std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(All, HfVectorTest,
                         testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen2", "falcon",
                                         "splits", "llama2", "mistral", "metaspace", "gemma",
                                         "no_fallback", "spm", "spm_collapse", "opt", "bloom",
                                         "phi2", "phi3", "gemma2", "stablelm2", "smollm2", "bert",
                                         "bert_cased"),
                         [](const auto& named) { return std::string(named.param); });

TEST(HfFolderTest, VocabularyAndMergesFilesEqualTheJson) {
  HfTokenizerFiles files = read_folder(data_path("gpt2"));
  files.tokenizer_json.reset();
  const auto data = tokenizer_from_hf(files);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  auto opened = open_tokenizer(*data);
  ASSERT_TRUE(opened->tokenizer.has_value()) << opened->error;
  std::vector<Case> plain;
  for (const Case& one : read_cases("gpt2")) {
    // added_tokens.json does not say which tokens strip spaces or want to stand alone.
    if (one.text.find('<') == std::string::npos && one.text.find("thethe") == std::string::npos) {
      plain.push_back(one);
    }
  }
  expect_cases(*opened->tokenizer, plain, true, std::nullopt);
}

TEST(HfFolderTest, ListsOfWordsEqualTheJson) {
  for (const char* folder : {"bert", "bert_cased"}) {
    HfTokenizerFiles files = read_folder(data_path(folder));
    const auto json = tokenizer_from_hf(files);
    ASSERT_TRUE(json.has_value()) << json.error().message();
    files.tokenizer_json.reset();
    const auto data = tokenizer_from_hf(files);
    ASSERT_TRUE(data.has_value()) << data.error().message();
    EXPECT_EQ(*write_tokenizer_section(*data), *write_tokenizer_section(*json)) << folder;
  }
  HfTokenizerFiles files = read_folder(data_path("bert"));
  const std::string folder_config = *files.tokenizer_config_json;
  files.tokenizer_json.reset();
  files.tokenizer_config_json.reset();
  const auto plain = tokenizer_from_hf(files);
  ASSERT_TRUE(plain.has_value()) << plain.error().message();
  files.tokenizer_config_json = folder_config;
  EXPECT_EQ(*write_tokenizer_section(*plain), *write_tokenizer_section(*tokenizer_from_hf(files)));
  files.vocab_txt = "a\r\n[UNK]\r\n\r\n##b\r\n[SEP]\r\n[CLS]";
  const auto lines = tokenizer_from_hf(files);
  ASSERT_TRUE(lines.has_value()) << lines.error().message();
  ASSERT_EQ(lines->tokens.size(), 6U);
  EXPECT_EQ(lines->tokens[3].text, "##b");
  EXPECT_EQ(lines->tokens[2].type, TokenType::kUnused);
  EXPECT_EQ(lines->bos, 5U);
  EXPECT_EQ(lines->eos, 4U);
  EXPECT_TRUE(lines->add_bos && lines->add_eos);
  const auto refusal = [&files](const char* vocabulary, const char* config) {
    files.vocab_txt = vocabulary;
    files.tokenizer_config_json = config;
    const auto data = tokenizer_from_hf(files);
    return data.has_value() ? std::string("accepted") : data.error().message();
  };
  EXPECT_EQ(refusal("[UNK]\n[CLS]\n[SEP]", "{}"), "accepted");
  EXPECT_NE(refusal("[UNK]\n[SEP]\n", "{}").find("\"[CLS]\", which begins"), std::string::npos);
  EXPECT_NE(refusal("[UNK]\n[CLS]\n", "{}").find("\"[SEP]\", which ends"), std::string::npos);
  const std::string endless(kMaxVocabTokens + 1, '\n');
  EXPECT_NE(refusal(endless.c_str(), "{}").find("more than 16777216 lines"), std::string::npos);
  EXPECT_NE(refusal("a\n", "{}").find("\"[UNK]\""), std::string::npos);
  EXPECT_NE(refusal("", "{}").find("\"[UNK]\""), std::string::npos);
  EXPECT_EQ(refusal("?\n[CLS]\n[SEP]\n", R"({"unk_token": "?"})"), "accepted");
  EXPECT_NE(refusal("[UNK]\n", R"({"tokenizer_class": "BertJapaneseTokenizer"})").find("Japanese"),
            std::string::npos);
  EXPECT_NE(refusal("[UNK]\n", R"({"do_basic_tokenize": false})").find("do_basic_tokenize"),
            std::string::npos);
}

// Words added to a vocabulary match the text as it is normalised, unless they are special.
TEST(HfFolderTest, AddedWordsMatchNormalisedText) {
  HfTokenizerFiles files;
  files.vocab_txt = "[UNK]\n[CLS]\n[SEP]\nc\n";
  files.added_tokens_json = R"({"CRISPR": 4, "Caf\u00e9": 5})";
  const auto data = tokenizer_from_hf(files);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  ASSERT_EQ(data->tokens.size(), 6U);
  const auto text_of = [&data](TokenId id) {
    for (const AddedToken& added : data->added) {
      if (added.id == id) return (added.normalized ? "normalised " : "plain ") + added.text;
    }
    return std::string("none");
  };
  EXPECT_EQ(text_of(4), "normalised crispr");
  EXPECT_EQ(text_of(5), "normalised cafe");
  EXPECT_EQ(text_of(1), "plain [CLS]");
  files.tokenizer_config_json = R"({"added_tokens_decoder": {
      "4": {"content": "CRISPR", "normalized": true}, "5": {"content": "DNA", "normalized": false},
      "1": {"content": "[CLS]", "special": true, "normalized": false}}})";
  files.added_tokens_json.reset();
  const auto decoder = tokenizer_from_hf(files);
  ASSERT_TRUE(decoder.has_value()) << decoder.error().message();
  ASSERT_GE(decoder->added.size(), 3U);
  for (const AddedToken& added : decoder->added) {
    if (added.id < 4) continue;
    EXPECT_EQ(added.text, added.id == 4 ? "crispr" : "DNA");
  }
}

TEST(HfFolderTest, RefusesWordPiecesThatItCannotRun) {
  const auto refusal = [](const std::string& members, const std::string& parts = "") {
    HfTokenizerFiles files;
    files.tokenizer_json = R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1})" +
                           members + "}" + parts + "}";
    const auto data = tokenizer_from_hf(files);
    return data.has_value() ? std::string("accepted") : data.error().message();
  };
  EXPECT_EQ(refusal(R"(, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100)"),
            "accepted");
  EXPECT_NE(refusal(R"(, "continuing_subword_prefix": "@@")").find("\"@@\""), std::string::npos);
  EXPECT_NE(refusal(R"(, "max_input_chars_per_word": 200)").find("200"), std::string::npos);
  EXPECT_NE(refusal(R"(, "unk_token": "?")").find("\"?\" for unknown words"), std::string::npos);
  EXPECT_EQ(refusal("", R"(, "decoder": {"type": "WordPiece", "prefix": "##"})"), "accepted");
}

// What a part of BERT's normaliser leaves out, and that accents go with capitals.
TEST(HfFolderTest, ReadsThePartsOfBertsNormalizer) {
  const auto operations = [](const std::string& members) {
    HfTokenizerFiles files;
    files.tokenizer_json = R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}},
        "normalizer": {"type": "BertNormalizer")" +
                           members + "}}";
    std::vector<TextOp> found;
    const auto data = tokenizer_from_hf(files);
    EXPECT_TRUE(data.has_value()) << data.error().message();
    for (const TextStep& step : data->steps) found.push_back(step.op);
    return found;
  };
  using enum TextOp;
  using Operations = std::vector<TextOp>;
  EXPECT_EQ(operations(""), (Operations{kCleanText, kSpaceIdeographs, kStripMarks, kLowercase}));
  EXPECT_EQ(operations(R"(, "lowercase": false, "strip_accents": null)"),
            (Operations{kCleanText, kSpaceIdeographs}));
  EXPECT_EQ(operations(R"(, "lowercase": false, "strip_accents": true, "clean_text": false)"),
            (Operations{kSpaceIdeographs, kStripMarks}));
  EXPECT_EQ(operations(R"(, "strip_accents": false, "handle_chinese_chars": false)"),
            (Operations{kCleanText, kLowercase}));
}

void expect_model(const std::string& vectors, const std::string& folder) {
  HfTokenizerFiles files = read_folder(folder);
  const auto data = tokenizer_from_hf(files);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  auto opened = open_tokenizer(*data);
  ASSERT_TRUE(opened->tokenizer.has_value()) << opened->error;
  EXPECT_EQ((*opened)->bos(), 1U);
  EXPECT_TRUE((*opened)->adds_bos());
  EXPECT_FALSE((*opened)->adds_eos());
  EXPECT_TRUE((*opened)->is_stop(2));
  expect_cases(*opened->tokenizer, read_cases(vectors), false, false);
}

TEST(HfFolderTest, TalesModelAgreesWithSentencePiece) {
  for (const std::string& folder : {std::string(QSF_SOURCE_DIR) + "/models/tales-5M/",
                                    std::string(QSF_SHARED_DIR) + "/models/tales-5M/"}) {
    if (read_file(folder + "tokenizer.model").has_value()) return expect_model("tales_5m", folder);
  }
  GTEST_SKIP() << "tales-5M is neither in models/ nor beside the checkout: not checked";
}

TEST(HfFolderTest, Stories260KAgreesWithSentencePiece) {
  const std::string folder = std::string(QSF_SHARED_DIR) + "/models/stories260K/";
  if (!read_file(folder + "tokenizer.model").has_value()) {
    GTEST_SKIP() << folder << " is not there: not checked";
  }
  expect_model("stories260k", folder);
}

TEST(HfFolderTest, ConfigurationSetsSpecialTokensAndRules) {
  HfTokenizerFiles files = read_folder(data_path("spm"));
  files.tokenizer_config_json = R"({"add_bos_token": false, "add_eos_token": true,
    "eos_token": {"content": "<|end|>"}, "pad_token": "<unk>", "legacy": false,
    "added_tokens_decoder": {"481": {"content": "<|end|>", "special": true, "rstrip": true},
                             "480": {"content": "<tool>", "normalized": false}}})";
  files.added_tokens_json = R"({"<extra>": 482})";
  const auto data = tokenizer_from_hf(files);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  EXPECT_EQ(data->eos, 481U);
  EXPECT_EQ(data->pad, 0U);
  EXPECT_FALSE(data->add_bos);
  EXPECT_TRUE(data->add_eos);
  EXPECT_EQ(data->stop_ids, std::vector<TokenId>{481});
  auto opened = open_tokenizer(*data);
  ASSERT_TRUE(opened->tokenizer.has_value()) << opened->error;
  // With legacy off only the first word has a space in front.
  const auto ids =
      encode(*opened->tokenizer, "a<extra>a<|end|> \n<tool>", true, std::nullopt, std::nullopt);
  ASSERT_EQ(ids.size(), 6U);
  EXPECT_EQ(ids[1], 482U);
  EXPECT_NE(ids[0], ids[2]);
  EXPECT_EQ(std::vector<TokenId>(ids.begin() + 3, ids.end()),
            (std::vector<TokenId>{481, 480, 481}));
}

TEST(HfFolderTest, TokensWithARoleAreControlTokens) {
  HfTokenizerFiles files = read_folder(data_path("gemma2"));
  std::string& json = *files.tokenizer_json;
  const std::string entry = R"("content":"<start_of_turn>","single_word":false,"lstrip":false,)"
                            R"("rstrip":false,"normalized":false,"special":)";
  ASSERT_NE(json.find(entry + "true"), std::string::npos);
  json.replace(json.find(entry), entry.size() + 4, entry + "false");
  const auto data = tokenizer_from_hf(files);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  auto opened = open_tokenizer(*data);
  ASSERT_TRUE(opened->tokenizer.has_value()) << opened->error;
  const TokenId turn = (*opened)->find_token("<start_of_turn>");
  EXPECT_TRUE((*opened)->is_control(turn));
  EXPECT_EQ(encode(*opened->tokenizer, "<start_of_turn>", true), std::vector<TokenId>{turn});
  EXPECT_GT(encode(*opened->tokenizer, "<start_of_turn>", false).size(), 1U);
  // What has no role stays text.
  EXPECT_FALSE((*opened)->is_control((*opened)->find_token("<table>")));
  files.tokenizer_config_json.reset();
  const auto plain = tokenizer_from_hf(files);
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->tokens[turn].type, TokenType::kUserDefined);
}

// What chat templates call bos_token and eos_token.
TEST(HfFolderTest, TextsOfSpecialTokensAreThoseOfTheConfiguration) {
  const auto texts = [](const HfTokenizerFiles& files) {
    const auto data = tokenizer_from_hf(files);
    EXPECT_TRUE(data.has_value()) << data.error().message();
    auto opened = open_tokenizer(*data);
    const Tokenizer& tokenizer = *opened->tokenizer;
    return std::string(tokenizer.token_text(tokenizer.bos())) + " " +
           std::string(tokenizer.token_text(tokenizer.eos()));
  };
  EXPECT_EQ(texts(read_folder(data_path("opt"))), "</s> </s>");
  EXPECT_EQ(texts(read_folder(data_path("phi2"))), "<|endoftext|> <|endoftext|>");
  EXPECT_EQ(texts(read_folder(data_path("phi3"))), "<s> <|endoftext|>");
  EXPECT_EQ(texts(read_folder(data_path("gemma2"))), "<bos> <eos>");
  HfTokenizerFiles qwen = read_folder(data_path("qwen2"));
  qwen.tokenizer_config_json = R"({"bos_token": null, "eos_token": {"content": "<|user|>"}})";
  EXPECT_EQ(texts(qwen), " <|user|>");
}

TEST(HfFolderTest, OptPutsItsEndOfTextInFront) {
  const auto data = tokenizer_from_hf(read_folder(data_path("opt")));
  ASSERT_TRUE(data.has_value()) << data.error().message();
  EXPECT_EQ(data->bos, 2U);
  EXPECT_EQ(data->eos, 2U);
  EXPECT_EQ(data->pad, 1U);
  EXPECT_TRUE(data->add_bos);
  EXPECT_EQ(data->stop_ids, std::vector<TokenId>{2});
}

// A tokenizer of texts to embed: the last row, which is the embedding, is that of the end of text.
TEST(HfFolderTest, ATemplateEndsEveryText) {
  HfTokenizerFiles files;
  files.tokenizer_json =
      R"({"added_tokens": [{"id": 2, "content": "<|endoftext|>", "special": true},
                                              {"id": 3, "content": "<|im_end|>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
       "pair": [], "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [2],
                                                        "tokens": ["<|endoftext|>"]}}}]},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";
  files.tokenizer_config_json = R"({"eos_token": "<|im_end|>", "add_bos_token": false})";
  auto data = tokenizer_from_hf(files);
  ASSERT_TRUE(data) << data.error().message();
  const auto opened = open_tokenizer(*data);
  ASSERT_TRUE(opened->tokenizer.has_value()) << opened->error;
  std::vector<TokenId> ids;
  ASSERT_TRUE(opened->tokenizer->encode("ab", {.parse_special = false}, ids).ok());
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 1, 2}));
}

TEST(HfFolderTest, NamesWhatItDoesNotSupport) {
  const auto refusal = [](const std::string& json) {
    HfTokenizerFiles files;
    files.tokenizer_json = json;
    const auto data = tokenizer_from_hf(files);
    return data.has_value() ? std::string("accepted") : data.error().message();
  };
  const auto with = [](const std::string& members) {
    return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})" +
           members + "}";
  };
  EXPECT_EQ(refusal(with("")), "accepted");
  using testing_support::read_file;
  EXPECT_NE(refusal(R"({"model": {"type": "Unigram", "vocab": []}})").find("Unigram"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"model": {"type": "WordPiece", "vocab": {}}})").find("vocabulary"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"model": {"type": "WordLevel", "vocab": {}}})").find("WordLevel"),
            std::string::npos);
  EXPECT_NE(refusal(with(R"(, "normalizer": {"type": "Lowercase"})")).find("Lowercase"),
            std::string::npos);
  EXPECT_NE(refusal(with(R"(, "normalizer": {"type": "NFKC"})")).find("NFKC"), std::string::npos);
  EXPECT_EQ(refusal(with(R"(, "normalizer": {"type": "NFC"})")), "accepted");
  EXPECT_NE(refusal(with(R"(, "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "x"}, {"type": "NFC"}]})"))
                .find("NFC"),
            std::string::npos);
  EXPECT_NE(
      refusal(with(R"(, "pre_tokenizer": {"type": "UnicodeScripts"})")).find("UnicodeScripts"),
      std::string::npos);
  EXPECT_NE(refusal(with(R"(, "decoder": {"type": "WordPiece"})")).find("WordPiece"),
            std::string::npos);
  EXPECT_NE(refusal(with(R"(, "post_processor": {"type": "Odd"})")).find("Odd"), std::string::npos);
  HfTokenizerFiles none;
  EXPECT_EQ(tokenizer_from_hf(none).error().code(), StatusCode::kNotFound);
}

TEST(HfFolderTest, HostileJsonIsRefused) {
  for (
      const char* json : {
          "",
          "[",
          "[]",
          "7",
          "{",
          "{}",
          "{\"model\": 1}",
          "{\"model\": []}",
          "\xFF",
          R"({"model": {"type": "BPE", "vocab": [], "merges": []}})",
          R"({"model": {"type": "BPE", "vocab": {}, "merges": []}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}})",
          R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})",
          R"({"model": {"type": "BPE", "vocab": {"a": "0"}, "merges": []}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": {}}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [[1, 2]]}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": {}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [1]})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"id": 1}]})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
               "added_tokens": [{"id": 99999999, "content": "x"}]})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": 3})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Sequence"}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "Split"}})",
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
               "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}})",
      }) {
    HfTokenizerFiles files;
    files.tokenizer_json = json;
    EXPECT_FALSE(tokenizer_from_hf(files).has_value()) << json;
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i)
    deep += "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[";
  HfTokenizerFiles files;
  files.tokenizer_json = deep;
  EXPECT_FALSE(tokenizer_from_hf(files).has_value());
}

// A merge of three bytes' damage may leave a valid file; what counts is that nothing breaks.
TEST(SentencePieceModelTest, EveryPrefixAndChangedByteEndsCleanly) {
  const std::string model = read_file(data_path("spm_collapse") + "tokenizer.model").value();
  int accepted = 0;
  for (std::size_t n = 0; n < model.size(); ++n) {
    const auto data = tokenizer_from_sentencepiece(as_bytes(std::string_view(model).substr(0, n)));
    if (data.has_value()) ++accepted;
  }
  EXPECT_LT(accepted, static_cast<int>(model.size()) / 2);
  Rng rng(1);
  for (std::size_t i = 0; i < model.size(); ++i) {
    std::string changed = model;
    changed[i] = static_cast<char>(changed[i] ^ static_cast<char>(1 + rng.below(255)));
    const auto data = tokenizer_from_sentencepiece(as_bytes(changed));
    if (!data.has_value()) continue;
    const auto section = write_tokenizer_section(*data);
    EXPECT_TRUE(section.has_value() || !section.error().message().empty());
  }
}

TEST(SentencePieceModelTest, RefusesOtherKindsByName) {
  // trainer_spec { model_type: 1 } and one piece "a".
  const std::string unigram(
      "\x0A\x03\x0A\x01"
      "a"
      "\x12\x02\x18\x01",
      9);
  EXPECT_NE(tokenizer_from_sentencepiece(as_bytes(unigram)).error().message().find("Unigram"),
            std::string::npos);
  // model_type: 2, normalizer_spec { name: "n" precompiled_charsmap: "x" }
  const std::string mapped(
      "\x0A\x03\x0A\x01"
      "a"
      "\x12\x02\x18\x02\x1A\x06\x0A\x01n\x12\x01x",
      17);
  EXPECT_NE(tokenizer_from_sentencepiece(as_bytes(mapped)).error().message().find("\"n\""),
            std::string::npos);
}

TEST(ByteAlphabetTest, IsABijection) {
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<unsigned char>(i);
    EXPECT_EQ(bytes_of_alphabet(alphabet_of_byte(byte)), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(alphabet_of_byte(' '), "\xC4\xA0");
  EXPECT_EQ(alphabet_of_byte('\n'), "\xC4\x8A");
  EXPECT_FALSE(bytes_of_alphabet(" ").has_value());
  EXPECT_FALSE(bytes_of_alphabet("\xC4").has_value());
}

TEST(ExpressionTest, AdaptsRubySyntax) {
  EXPECT_EQ(adapt_expression(" ?[^(\\s|[.,!?])]+").value(), " ?[^(\\s|.,!?)]+");
  EXPECT_EQ(adapt_expression("\\s+$").value(), "(?m)\\s+$");
  EXPECT_EQ(adapt_expression("[^\\r\\n\\p{L}]?[]x]").value(), "[^\\r\\n\\p{L}]?[\\]x]");
  EXPECT_EQ(adapt_expression("[[:alpha:]_]").value(), "[[:alpha:]_]");
  EXPECT_FALSE(adapt_expression("[a&&b]").has_value());
  EXPECT_FALSE(adapt_expression("[a[^b]]").has_value());
  EXPECT_FALSE(adapt_expression("\\h").has_value());
  EXPECT_EQ(escape_expression("a.b"), "a\\.b");
}

}  // namespace
}  // namespace qsf
