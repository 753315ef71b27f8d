// SPDX-License-Identifier: MIT
//
// Golden models: the logits they must give, and an engine's through the public interface.

#ifndef QSF_TESTS_MODEL_TESTING_GOLDEN_MODEL_H_
#define QSF_TESTS_MODEL_TESTING_GOLDEN_MODEL_H_

#include <gtest/gtest.h>
#include <qsf/qsf.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace qsf_tools {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// expected.bin of a golden model: layout in scripts/golden/make_golden_models.py.
struct Golden {
  struct Case {
    std::uint32_t prompt_length;
    std::vector<std::vector<float>> rows;  // after the prompt, then after each decode step
  };
  std::vector<int> tokens;
  std::vector<Case> cases;
  double largest = 0;  // |logit|

  explicit Golden(const std::filesystem::path& path) {
    const std::string bytes = read_file(path);
    std::size_t at = 8;
    const auto next_u32 = [&] {
      std::uint32_t value;
      std::memcpy(&value, bytes.data() + at, 4);
      at += 4;
      return value;
    };
    if (bytes.compare(0, 8, "QSFGOLD1") != 0) return;
    const std::uint32_t n_vocab = next_u32();
    const std::uint32_t n_tokens = next_u32();
    const std::uint32_t n_cases = next_u32();
    for (std::uint32_t i = 0; i < n_tokens; ++i) tokens.push_back(static_cast<int>(next_u32()));
    for (std::uint32_t c = 0; c < n_cases; ++c) {
      Case item{next_u32(), {}};
      item.rows.resize(next_u32(), std::vector<float>(n_vocab));
      for (std::vector<float>& row : item.rows) {
        std::memcpy(row.data(), bytes.data() + at, n_vocab * 4);
        at += n_vocab * 4;
        for (const float logit : row)
          largest = std::max(largest, std::fabs(static_cast<double>(logit)));
      }
      cases.push_back(std::move(item));
    }
  }
};

struct EngineDeleter {
  void operator()(QSFEngine* engine) const { qsf_free(engine); }
};
struct SessionDeleter {
  void operator()(QSFSession* session) const { qsf_session_free(session); }
};
using EnginePtr = std::unique_ptr<QSFEngine, EngineDeleter>;
using SessionPtr = std::unique_ptr<QSFSession, SessionDeleter>;

inline EnginePtr open_engine(const std::filesystem::path& path, qsf_kv_type kv, int rows_per_pass,
                             int n_threads, bool exact = false) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_kv_type(config, kv);
  qsf_config_set_rows_per_pass(config, rows_per_pass);
  qsf_config_set_threads(config, n_threads);
  qsf_config_set_exact(config, exact ? 1 : 0);
  QSFEngine* engine = nullptr;
  qsf_error error = {};
  EXPECT_EQ(qsf_engine_open(path.c_str(), config, &engine, &error), QSF_OK) << error.message;
  qsf_config_free(config);
  return EnginePtr(engine);
}

inline SessionPtr open_session(QSFEngine* engine) {
  QSFSession* session = nullptr;
  qsf_error error = {};
  EXPECT_EQ(qsf_session_create(engine, &session, &error), QSF_OK) << error.message;
  return SessionPtr(session);
}

// Logits of one case: the last prompt row and every decode step.
inline std::vector<std::vector<float>> run_case(QSFEngine* engine, const Golden& golden,
                                                const Golden::Case& item,
                                                std::size_t tokens_per_call = 0) {
  const SessionPtr session = open_session(engine);
  std::vector<std::vector<float>> rows(item.rows.size(), std::vector<float>(item.rows[0].size()));
  const std::size_t step = tokens_per_call == 0 ? item.prompt_length : tokens_per_call;
  qsf_error error = {};
  for (std::size_t done = 0; done < item.prompt_length; done += step) {
    const std::size_t n = std::min<std::size_t>(step, item.prompt_length - done);
    EXPECT_EQ(
        qsf_session_prefill(session.get(), golden.tokens.data() + done, n, rows[0].data(), &error),
        QSF_OK)
        << error.message;
  }
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(qsf_session_step(session.get(), golden.tokens[item.prompt_length + i - 1],
                               rows[i].data(), &error),
              QSF_OK)
        << error.message;
  }
  return rows;
}

// Largest |got - expected|; infinite when any of them is no number.
inline double largest_error(const std::vector<std::vector<float>>& got,
                            const std::vector<std::vector<float>>& expected) {
  double worst = 0;
  for (std::size_t row = 0; row < expected.size(); ++row) {
    for (std::size_t i = 0; i < expected[row].size(); ++i) {
      const double error = std::fabs(static_cast<double>(got[row][i]) - expected[row][i]);
      if (!(error <= 1e30)) return HUGE_VAL;
      worst = std::max(worst, error);
    }
  }
  return worst;
}

}  // namespace qsf_tools

#endif  // QSF_TESTS_MODEL_TESTING_GOLDEN_MODEL_H_
