// SPDX-License-Identifier: MIT
//
// What rounding activations to int8 costs a real model of 4-bit weights: hardly anything of its
// perplexity, and a small turn of its logits. The truth is the same model with exact products.

#include <gtest/gtest.h>
#include <qsf/qsf.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

// The beginning of "The Frog-King" in Margaret Hunt's translation of 1884.
constexpr const char* kText =
    "In old times when wishing still helped one, there lived a king whose daughters were all "
    "beautiful, but the youngest was so beautiful that the sun itself, which has seen so much, was "
    "astonished whenever it shone in her face. Close by the King's castle lay a great dark forest, "
    "and under an old lime-tree in the forest was a well, and when the day was very warm, the "
    "King's child went out into the forest and sat down by the side of the cool fountain, and when "
    "she was dull she took a golden ball, and threw it up on high and caught it, and this ball was "
    "her favorite plaything. Now it happened that on one occasion the princess's golden ball did "
    "not fall into the little hand which she was holding up for it, but on to the ground beyond, "
    "and rolled straight into the water. The King's daughter followed it with her eyes, but it "
    "vanished, and the well was deep, so deep that the bottom could not be seen. On this she began "
    "to cry, and cried louder and louder, and could not be comforted. And as she thus lamented "
    "some one said to her, \"What ails thee, King's daughter? Thou weepest so that even a stone "
    "would show pity.\" She looked round to the side from whence the voice came, and saw a frog "
    "stretching forth its thick, ugly head from the water. \"Ah! old water-splasher, is it thou?\" "
    "said she; \"I am weeping for my golden ball, which has fallen into the well.\" \"Be quiet, "
    "and "
    "do not weep,\" answered the frog, \"I can help thee, but what wilt thou give me if I bring "
    "thy "
    "plaything up again?\" \"Whatever thou wilt have, dear frog,\" said she -- \"My clothes, my "
    "pearls and jewels, and even the golden crown which I am wearing.\"";

struct EngineFree {
  void operator()(QSFEngine* engine) const { qsf_free(engine); }
};
struct SessionFree {
  void operator()(QSFSession* session) const { qsf_session_free(session); }
};
using EnginePtr = std::unique_ptr<QSFEngine, EngineFree>;
using SessionPtr = std::unique_ptr<QSFSession, SessionFree>;

EnginePtr open_engine(bool exact) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 2);
  qsf_config_set_kv_type(config, QSF_KV_F32);
  qsf_config_set_exact(config, exact ? 1 : 0);
  QSFEngine* engine = nullptr;
  qsf_error error = {};
  const std::string model = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";
  EXPECT_EQ(qsf_engine_open(model.c_str(), config, &engine, &error), QSF_OK) << error.message;
  qsf_config_free(config);
  return EnginePtr(engine);
}

SessionPtr open_session(QSFEngine* engine) {
  QSFSession* session = nullptr;
  EXPECT_EQ(qsf_session_create(engine, &session, nullptr), QSF_OK);
  return SessionPtr(session);
}

using Logits = std::vector<std::vector<float>>;

Logits prompt_logits(QSFEngine* engine, const std::vector<int>& tokens, std::size_t n_vocab) {
  Logits rows(tokens.size(), std::vector<float>(n_vocab));
  const auto store = [](std::size_t row, int first, const float* logits, std::size_t n,
                        void* user) {
    std::copy_n(logits, n, (*static_cast<Logits*>(user))[row].begin() + first);
  };
  const SessionPtr session = open_session(engine);
  EXPECT_EQ(qsf_session_prefill_logits(session.get(), tokens.data(), tokens.size(), store, &rows,
                                       nullptr),
            QSF_OK);
  return rows;
}

Logits generated_logits(QSFEngine* engine, const std::vector<int>& tokens, std::size_t n_vocab) {
  Logits rows(tokens.size(), std::vector<float>(n_vocab));
  const SessionPtr session = open_session(engine);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(qsf_session_step(session.get(), tokens[i], rows[i].data(), nullptr), QSF_OK);
  }
  return rows;
}

// Mean negative log probability of each next token.
double mean_loss(const Logits& rows, const std::vector<int>& tokens) {
  double total = 0;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    double sum = 0;
    for (const float logit : rows[i]) sum += std::exp(static_cast<double>(logit));
    total += std::log(sum) - rows[i][static_cast<std::size_t>(tokens[i + 1])];
  }
  return total / static_cast<double>(tokens.size() - 1);
}

double smallest_cosine(const Logits& a, const Logits& b) {
  double smallest = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (std::size_t c = 0; c < a[i].size(); ++c) {
      ab += static_cast<double>(a[i][c]) * b[i][c];
      aa += static_cast<double>(a[i][c]) * a[i][c];
      bb += static_cast<double>(b[i][c]) * b[i][c];
    }
    smallest = std::min(smallest, ab / std::sqrt(aa * bb));
  }
  return smallest;
}

class Int8RowsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(rounded_, nullptr);
    ASSERT_NE(exact_, nullptr);
    qsf_model_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(qsf_engine_model_info(exact_.get(), &info, nullptr), QSF_OK);
    n_vocab_ = static_cast<std::size_t>(info.n_vocab);
    tokens_.resize(std::strlen(kText));
    std::size_t n_tokens = 0;
    ASSERT_EQ(qsf_engine_tokenize(exact_.get(), kText, std::strlen(kText), QSF_TOKENIZE_DEFAULT,
                                  tokens_.data(), tokens_.size(), &n_tokens, nullptr),
              QSF_OK);
    tokens_.resize(n_tokens);
    ASSERT_GT(n_tokens, 300U);
  }

  void compare(Logits (*logits_of)(QSFEngine*, const std::vector<int>&, std::size_t)) {
    const Logits rounded = logits_of(rounded_.get(), tokens_, n_vocab_);
    const Logits exact = logits_of(exact_.get(), tokens_, n_vocab_);
    EXPECT_NE(rounded, exact) << "rows were not rounded";
    const double ratio = std::exp(mean_loss(rounded, tokens_) - mean_loss(exact, tokens_));
    const double cosine = smallest_cosine(rounded, exact);
    EXPECT_NEAR(ratio, 1.0, 0.003);
    EXPECT_GE(cosine, 0.999);
    RecordProperty("perplexity_ratio", std::to_string(ratio));
    RecordProperty("smallest_cosine", std::to_string(cosine));
  }

  EnginePtr rounded_ = open_engine(false);
  EnginePtr exact_ = open_engine(true);
  std::size_t n_vocab_ = 0;
  std::vector<int> tokens_;
};

TEST_F(Int8RowsTest, PromptRowsKeepThePerplexity) {
  compare(prompt_logits);
}

TEST_F(Int8RowsTest, GeneratedRowsKeepThePerplexity) {
  compare(generated_logits);
}

}  // namespace
