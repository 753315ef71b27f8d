// SPDX-License-Identifier: MIT
//
// SHA-256 against the standard's own examples, in one piece and in every pair of pieces.

#include "tools/parity/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace qsf_tools {
namespace {

TEST(Sha256Test, GivesTheStandardsExamples) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesGiveTheWhole) {
  const std::string text = std::string(63, 'x') + std::string(70, 'y');
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.add(std::string_view(text).substr(0, cut));
    hash.add(std::string_view(text).substr(cut));
    EXPECT_EQ(hash.finish(), sha256_of(text)) << cut;
  }
}

TEST(Sha256Test, AFileThatIsNotThereHasNone) {
  EXPECT_FALSE(sha256_of_file("/nonexistent/file").has_value());
}

}  // namespace
}  // namespace qsf_tools
