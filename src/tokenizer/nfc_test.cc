// SPDX-License-Identifier: MIT
//
// Normal form C on the cases Unicode's rules distinguish. Whole texts are held to another
// implementation by the vectors of the tokenizers that ask for it.

#include "tokenizer/nfc.h"

#include <gtest/gtest.h>

#include <string>

namespace qsf {
namespace {

std::string nfc(std::string text) {
  normalize_nfc(text, nullptr);
  return text;
}

// The marks of `text` after normalising; 'T' in `trust` is a marked byte.
std::string marks_of(std::string text, const std::string& trust) {
  std::string marks;
  for (const char c : trust) marks.push_back(c == 'T' ? '\1' : '\0');
  EXPECT_EQ(text.size(), marks.size());
  normalize_nfc(text, &marks);
  EXPECT_EQ(text.size(), marks.size());
  for (char& c : marks) c = c == '\1' ? 'T' : 'u';
  return marks;
}

TEST(NfcTest, LeavesComposedTextAlone) {
  for (const char* text : {"", "plain", "\xC3\xA9t\xC3\xA9", "\xE4\xB8\x96\xE7\x95\x8C",
                           "\xEA\xB0\x81", "\xF0\x9F\x98\x80", "\xCC\x81", "x\xCC\xB4"}) {
    EXPECT_EQ(nfc(text), text);
  }
}

TEST(NfcTest, ComposesAsUnicodeSays) {
  EXPECT_EQ(nfc("e\xCC\x81"), "\xC3\xA9");                         // U+00E9
  EXPECT_EQ(nfc("xe\xCC\x81x e\xCC\x81"), "x\xC3\xA9x \xC3\xA9");  // and what is around it
  EXPECT_EQ(nfc("\xC3\xA9\xCC\xA3"), "\xE1\xBA\xB9\xCC\x81");      // reordered: U+1EB9 U+0301
  EXPECT_EQ(nfc("a\xCC\x95\xCC\x80"), "\xC3\xA0\xCC\x95");         // class 232 behind 230
  EXPECT_EQ(nfc("a\xCC\x84\xCC\x80"), "\xC4\x81\xCC\x80");         // equal classes keep order
  EXPECT_EQ(nfc("\xE2\x84\xAB"), "\xC3\x85");                      // angstrom sign
  EXPECT_EQ(nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");      // an excluded composition
  EXPECT_EQ(nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81");  // Hangul
  EXPECT_EQ(nfc("\xEA\xB0\x80\xE1\x86\xA8"), "\xEA\xB0\x81");
  EXPECT_EQ(nfc("\xEA\xB0\x80\xE1\x86\xA7"), "\xEA\xB0\x80\xE1\x86\xA7");  // no consonant
  EXPECT_EQ(nfc("\xE3\x81\x8B\xE3\x82\x99"), "\xE3\x81\x8C");              // kana with its mark
  EXPECT_EQ(nfc("\xF0\x9D\x85\x9E"), "\xF0\x9D\x85\x97\xF0\x9D\x85\xA5");  // grows
}

TEST(NfcTest, BytesThatAreNoUtf8Stay) {
  EXPECT_EQ(nfc("e\xFF\xCC\x81"), "e\xFF\xCC\x81");
  EXPECT_EQ(nfc("\xCC"), "\xCC");
  EXPECT_EQ(nfc("\xCC"
                "e\xCC\x81\xE2\x82"),
            "\xCC\xC3\xA9\xE2\x82");
  EXPECT_EQ(nfc("\xA9\xCC\x81"), "\xA9\xCC\x81");
  EXPECT_EQ(nfc("\xC3\xCC\x81"), "\xC3\xCC\x81");
}

TEST(NfcTest, MarksFollowWhatChanges) {
  EXPECT_EQ(marks_of("a<e\xCC\x81>b", "TTTTTTT"), "TTTTTT");
  EXPECT_EQ(marks_of("a<e\xCC\x81>b", "TTTuuTT"), "TTuuTT");
  EXPECT_EQ(marks_of("a<e\xCC\x81>b", "uuTTTuu"), "uuTTuu");
  EXPECT_EQ(marks_of("\xF0\x9D\x85\x9Ex", "TTTuT"), "TTTuuuuuT");
  EXPECT_EQ(marks_of("ab", "Tu"), "Tu");
}

// Ordered in quadratic time they would take hours.
TEST(NfcTest, AMillionMarksAreOrdered) {
  std::string text = "a";
  while (text.size() < 2'000'000) text += "\xCC\x95\xCC\xA3";
  const std::string composed = nfc(text);
  EXPECT_EQ(composed.substr(0, 5), "\xE1\xBA\xA1\xCC\xA3");
}

}  // namespace
}  // namespace qsf
