// SPDX-License-Identifier: MIT
//
// Real models, end to end: what they say and how probable they find a text, held to what other
// engines get from the same weights. Skips, saying so, where the shared models are absent.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

// Runs a command; returns its stdout and sets *exit_code.
std::string run(const std::string& command, int* exit_code) {
  std::string output;
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> block;
  std::size_t n = 0;
  while ((n = std::fread(block.data(), 1, block.size(), pipe)) > 0) output.append(block.data(), n);
  *exit_code = pclose(pipe);
  return output;
}

std::string tool(const char* name) {
  return std::string(QSF_BIN_DIR) + "/" + name;
}

class SharedModelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(QSF_SHARED_DIR)) GTEST_SKIP() << "no shared models at " << QSF_SHARED_DIR;
    scratch_ = fs::temp_directory_path() / ("qsf_stories_" + std::to_string(::getpid()));
    fs::create_directories(scratch_);
  }
  void TearDown() override { fs::remove_all(scratch_); }

  std::string convert(const std::string& folder, const std::string& type) {
    const std::string out = (scratch_ / (type + ".qsf")).string();
    int code = -1;
    run(tool("qsf-convert") + " --quiet --quant-type " + type + " " + folder + " " + out, &code);
    EXPECT_EQ(code, 0);
    return out;
  }

  fs::path scratch_;
};

constexpr const char* kStory =
    " Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One "
    "day, she saw a big, red ball.";

// hidden 64 and FFN 172: neither a multiple of the block's 64 columns in the second case, nor
// of 16.
TEST_F(SharedModelTest, Stories260KTellsItsStory) {
  const std::string model = convert(std::string(QSF_SHARED_DIR) + "/models/stories260K", "f32");
  int code = -1;
  const std::string text =
      run(tool("qsf-run") + " --temperature 0 --max-tokens 64 --prompt 'Once upon a time' " + model,
          &code);
  EXPECT_EQ(code, 0);
  // The echo is the prompt as the tokenizer reads it: SentencePiece puts a space in front.
  EXPECT_EQ(text.substr(0, std::string(kStory).size()), kStory);
}

// Writes the first bytes of the validation tales to a file of their own.
std::string text_head(const fs::path& folder, std::size_t n_bytes) {
  std::ifstream in(std::string(QSF_SHARED_DIR) + "/corpus/tales-valid.txt", std::ios::binary);
  std::string text(n_bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(n_bytes));
  const fs::path path = folder / "text.txt";
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

// Returns x of the last line "PPL = x +/- y".
double perplexity(const std::string& model, const std::string& text) {
  int code = -1;
  const std::string output =
      run(tool("qsf-perplexity") + " " + model + " --kv-type f32 --file " + text, &code);
  EXPECT_EQ(code, 0);
  const std::size_t at = output.rfind("PPL = ");
  return at == std::string::npos ? 0 : std::atof(output.c_str() + at + 6);
}

// llama.cpp's figures: scripts/measure/llama_cpp_perplexity.py on the GGUF files beside the two
// models, with llama-cpp-python 0.3.36.
TEST_F(SharedModelTest, Stories260KPerplexityEqualsLlamaCpp) {
  const std::string model = convert(std::string(QSF_SHARED_DIR) + "/models/stories260K", "f32");
  EXPECT_NEAR(perplexity(model, text_head(scratch_, 40000)) / 23.3649, 1.0, 0.002);
}

TEST_F(SharedModelTest, Tales5MPerplexityEqualsLlamaCpp) {
  const std::string model = convert(std::string(QSF_SHARED_DIR) + "/models/tales-5M", "f16");
  EXPECT_NEAR(perplexity(model, text_head(scratch_, 120000)) / 40.4657, 1.0, 0.002);
}

}  // namespace
