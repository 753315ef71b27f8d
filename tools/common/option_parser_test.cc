// SPDX-License-Identifier: MIT

#include "tools/common/option_parser.h"

#include <gtest/gtest.h>

namespace qsf_tools {
namespace {

// What a command line sets.
struct Values {
  std::string word = "a";
  std::vector<std::string> words;
  int number = 7;
  std::optional<std::uint64_t> seed;
  std::uint64_t bytes = 0;
  double share = 0.5;
  bool flag = false;
};

class OptionParserTest : public ::testing::Test {
 protected:
  // Returns the exit code, -1 for none.
  int parse(std::vector<const char*> arguments) {
    values_ = {};
    parser_.emplace("Tests options.", "qsf test");
    parser_->choice("--word", values_.word, {"a", "b"}, "A word").show_default();
    parser_->value("--words", values_.words, "Words");
    parser_->value("-n,--number", values_.number, "A number")
        .integer_in(1, 100)
        .alias("--old-name");
    parser_->value("--seed", values_.seed, "A seed");
    parser_->size_in_mb("--size", values_.bytes, "A size");
    parser_->value("--share", values_.share, "A share").number_above(0.0, 1.0).hidden();
    parser_->flag("--flag", values_.flag, "A flag");
    arguments.insert(arguments.begin(), "test");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const auto code = parser_->parse(static_cast<int>(arguments.size()), arguments.data());
    out_ = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    return code.value_or(-1);
  }

  std::optional<OptionParser> parser_;
  Values values_;
  std::string out_;
  std::string error_;
};

TEST_F(OptionParserTest, SetsWhatIsGivenAndKeepsTheRest) {
  EXPECT_EQ(parse({"--word", "b", "-n", "010", "--size=2.6", "--flag"}), -1);
  EXPECT_EQ(values_.word, "b");
  EXPECT_EQ(values_.number, 10);  // not octal
  EXPECT_EQ(values_.bytes, 2'600'000U);
  EXPECT_TRUE(values_.flag);
  EXPECT_EQ(values_.share, 0.5);
  EXPECT_FALSE(values_.seed);
  EXPECT_EQ(parser_->count("--number"), 1U);
  EXPECT_EQ(parser_->count("--word"), 1U);
  EXPECT_EQ(parser_->count("--seed"), 0U);
}

TEST_F(OptionParserTest, ARepeatedOptionTakesOneValueEachTime) {
  EXPECT_EQ(parse({"--words", "x", "--words", "y"}), -1);
  EXPECT_EQ(values_.words, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(parse({"--words", "x", "y"}), 2);
}

TEST_F(OptionParserTest, AnAliasIsTheSameOption) {
  EXPECT_EQ(parse({"--old-name", "12"}), -1);
  EXPECT_EQ(values_.number, 12);
  EXPECT_EQ(parser_->count("--number"), 1U);
  EXPECT_EQ(parse({"--old-name", "101"}), 2);
}

TEST_F(OptionParserTest, SaysWhatIsWrongInOneLine) {
  EXPECT_EQ(parse({"--number", "0"}), 2);
  EXPECT_EQ(error_,
            "qsf test: --number: '0', expected an integer from 1 to 100; see qsf test --help\n");
  EXPECT_EQ(parse({"--seed", "18446744073709551616"}), 2);
  EXPECT_EQ(error_,
            "qsf test: --seed: '18446744073709551616', expected an integer from 0 to "
            "18446744073709551615; see qsf test --help\n");
  EXPECT_EQ(parse({"--word", "c"}), 2);
  EXPECT_EQ(error_, "qsf test: --word: 'c', expected a or b; see qsf test --help\n");
  EXPECT_EQ(parse({"--share", "0"}), 2);
  EXPECT_EQ(error_,
            "qsf test: --share: '0', expected a number above 0 and at most 1; see qsf test "
            "--help\n");
  EXPECT_EQ(parse({"--size", "0"}), 2);
  EXPECT_EQ(error_,
            "qsf test: --size: '0', expected a size in MB (10^6 bytes), such as 200, 2.6M or 4G; "
            "see qsf test --help\n");
}

TEST_F(OptionParserTest, HelpListsOptionsButNotHiddenNames) {
  EXPECT_EQ(parse({"--help"}), 0);
  EXPECT_NE(out_.find("--word NAME:{a,b}=a  "), std::string::npos) << out_;
  EXPECT_NE(out_.find("-n,--number N  "), std::string::npos) << out_;
  EXPECT_EQ(out_.find("--share"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("--old-name"), std::string::npos) << out_;
  EXPECT_EQ(parse({"--version"}), 0);
  EXPECT_TRUE(out_.starts_with("qsf ")) << out_;
}

TEST(ParseSizeInMb, KnowsSuffixes) {
  EXPECT_EQ(parse_size_in_mb("200"), 200'000'000U);
  EXPECT_EQ(parse_size_in_mb("200M"), 200'000'000U);
  EXPECT_EQ(parse_size_in_mb("2.6m"), 2'600'000U);
  EXPECT_EQ(parse_size_in_mb("64k"), 64'000U);
  EXPECT_EQ(parse_size_in_mb("4G"), 4'000'000'000U);
  EXPECT_EQ(parse_size_in_mb("0.5"), 500'000U);
  for (const char* wrong : {"", "0", "-1", "M", "1T", "1 M", "1MB", "nan", "inf", "1e30", "0x10"}) {
    EXPECT_FALSE(parse_size_in_mb(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace qsf_tools
