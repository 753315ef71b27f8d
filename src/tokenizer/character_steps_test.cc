// SPDX-License-Identifier: MIT

#include "tokenizer/character_steps.h"

#include <gtest/gtest.h>

#include <string>

namespace qsf {
namespace {

using Step = void (*)(std::string&, std::string*);

std::string after(Step step, std::string text) {
  step(text, nullptr);
  return text;
}

// The text and its marks, of which 'x' is a marked byte.
std::string marks_after(Step step, std::string text, std::string shown) {
  for (char& mark : shown) mark = mark == 'x' ? 1 : 0;
  step(text, &shown);
  EXPECT_EQ(text.size(), shown.size());
  for (char& mark : shown) mark = mark == 1 ? 'x' : '.';
  return text + "|" + shown;
}

TEST(CharacterStepsTest, CleanTextKeepsTextAndSpaces) {
  EXPECT_EQ(after(clean_text, "a b"), "a b");
  EXPECT_EQ(after(clean_text, ""), "");
  EXPECT_EQ(after(clean_text, "a\tb\nc\rd"), "a b c d");
  EXPECT_EQ(after(clean_text,
                  "a\xC2\xA0"
                  "b\xE3\x80\x80"
                  "c\xE2\x80\xA8"),
            "a b c ");
  using namespace std::string_literals;
  EXPECT_EQ(after(clean_text, "a\0b\x01\x0B\x7F"s), "ab");
  EXPECT_EQ(after(clean_text,
                  "a\xC2\x85"  // next line, a control character
                  "\xC2\xAD"   // soft hyphen
                  "\xE2\x80\x8B\xEF\xBB\xBF\xEF\xBF\xBD\xEE\x80\x80"
                  "b"),
            "ab");
}

TEST(CharacterStepsTest, CleanTextDropsWhatIsNoUtf8) {
  EXPECT_EQ(after(clean_text, "a\xFF\xC3(\xE4\xB8"), "a(");
  for (const Step step : {&space_ideographs, &strip_marks, &lowercase}) {
    EXPECT_EQ(after(step, "a\xFF\xC3(\xE4\xB8"), "a\xFF\xC3(\xE4\xB8");
  }
}

TEST(CharacterStepsTest, IdeographsStandAlone) {
  EXPECT_EQ(after(space_ideographs, "a\xE6\x88\x91\xE4\xB8\xAD"), "a \xE6\x88\x91  \xE4\xB8\xAD ");
  EXPECT_EQ(after(space_ideographs, "\xF0\xA0\x80\x80"), " \xF0\xA0\x80\x80 ");
  for (const char* other : {"\xE3\x81\x82", "\xED\x95\x9C", "\xE3\x80\x82", "\xF0\xAB\xA0\xA0"}) {
    EXPECT_EQ(after(space_ideographs, other), other);
  }
}

TEST(CharacterStepsTest, MarksAreStripped) {
  EXPECT_EQ(after(strip_marks, "caf\xC3\xA9 \xC3\x85ngstr\xC3\xB6m"), "cafe Angstrom");
  EXPECT_EQ(after(strip_marks, "e\xCC\x81\xCC\xA3z"), "ez");
  EXPECT_EQ(after(strip_marks, "\xC4\xB0"), "I");                         // dotted capital I
  EXPECT_EQ(after(strip_marks, "\xC3\x9F\xC3\xB8"), "\xC3\x9F\xC3\xB8");  // have no decomposition
  EXPECT_EQ(after(strip_marks, "\xED\x95\x9C"), "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB");
  EXPECT_EQ(after(strip_marks, "\xE0\xA4\xBF"), "\xE0\xA4\xBF");  // a spacing mark
  // Spacing marks with classes go in their order: U+302E has 224, U+1D165 has 216.
  EXPECT_EQ(after(strip_marks, "a\xE3\x80\xAE\xF0\x9D\x85\xA5"), "a\xF0\x9D\x85\xA5\xE3\x80\xAE");
}

TEST(CharacterStepsTest, LettersBecomeLowercaseEachByItself) {
  EXPECT_EQ(after(lowercase, "ABC \xC3\x89 \xD0\x96"), "abc \xC3\xA9 \xD0\xB6");
  EXPECT_EQ(after(lowercase, "\xC4\xB0I"), "i\xCC\x87i");
  EXPECT_EQ(after(lowercase, "\xCE\xA3\xCE\xA3"), "\xCF\x83\xCF\x83");  // no final sigma
  EXPECT_EQ(after(lowercase, "\xE1\xBA\x9E"), "\xC3\x9F");
}

TEST(CharacterStepsTest, MarksFollowTheirCharacters) {
  EXPECT_EQ(marks_after(clean_text,
                        "a\tb\x01"
                        "c",
                        "x.x.x"),
            "a bc|x.xx");
  EXPECT_EQ(marks_after(space_ideographs, "a\xE6\x88\x91", ".xxx"), "a \xE6\x88\x91 |.xxxxx");
  EXPECT_EQ(marks_after(space_ideographs, "\xE6\x88\x91", "x.x"), " \xE6\x88\x91 |.....");
  EXPECT_EQ(marks_after(strip_marks, "\xC3\xA9z", "xx."), "ez|x.");
  EXPECT_EQ(marks_after(lowercase, "\xC4\xB0Z", "xx."), "i\xCC\x87z|xxx.");
}

}  // namespace
}  // namespace qsf
