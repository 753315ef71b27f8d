// SPDX-License-Identifier: MIT
//
// Tests of base/: statuses and results, bytes, half precision, CRC-32, SipHash, the generator,
// text, cosines and threads of conversions.

#include <gtest/gtest.h>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/cosine.h"
#include "base/crc32.h"
#include "base/f16.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/run_on_threads.h"
#include "base/siphash.h"
#include "base/status.h"
#include "base/utf8_text.h"

namespace qsf {
namespace {

TEST(StatusTest, OkIsEmptyAndOnePointerWide) {
  EXPECT_TRUE(ok_status().ok());
  EXPECT_EQ(ok_status().code(), StatusCode::kOk);
  EXPECT_EQ(ok_status().message(), "");
  EXPECT_EQ(sizeof(Status), sizeof(void*));
}

TEST(StatusTest, CarriesCodeMessageAndContext) {
  const Status status = corrupt("%d bytes, expected %d", 3, 4).with_context("a.qsf");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(status.message(), "a.qsf: 3 bytes, expected 4");
  const Status copy = status;
  EXPECT_EQ(copy.message(), status.message());
}

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("%d is odd", value);
  return value / 2;
}

Result<int> quarter(int value) {
  QSF_ASSIGN_OR_RETURN(const int once, half(value));
  QSF_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

TEST(ResultTest, MacrosPassValuesAndFailures) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().message(), "3 is odd");
  EXPECT_DEATH(static_cast<void>(quarter(6).value()), "check failed");
}

TEST(BytesTest, ReaderStopsAtTheEndForGood) {
  ByteWriter writer;
  writer.write<std::uint16_t>(0x1234);
  writer.write<std::uint8_t>(7);
  ByteReader reader(writer.view());
  EXPECT_EQ(reader.read<std::uint16_t>(), 0x1234);
  EXPECT_EQ(reader.read<std::uint32_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.read<std::uint8_t>(), 0);
}

TEST(BytesTest, CheckedArithmetic) {
  const std::uint64_t big = std::numeric_limits<std::uint64_t>::max();
  EXPECT_FALSE(checked_add(big, 1).has_value());
  EXPECT_FALSE(checked_mul(big, 2).has_value());
  EXPECT_EQ(checked_add(1, 2), 3U);
  EXPECT_EQ(align_up(4097, 4096), 8192U);
  EXPECT_EQ(ceil_div(9, 4), 3U);
}

TEST(F16Test, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const F16 h{static_cast<std::uint16_t>(bits)};
    const float wide = to_f32(h);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_f32(to_f16(wide))));
    } else {
      EXPECT_EQ(to_f16(wide).bits, h.bits) << bits;
    }
  }
}

TEST(F16Test, KnownValues) {
  EXPECT_EQ(to_f32(F16{0x3C00}), 1.0F);
  EXPECT_EQ(to_f32(F16{0x0001}), 0x1p-24F);
  EXPECT_EQ(to_f32(F16{0x7BFF}), kF16Max);
  EXPECT_TRUE(std::isinf(to_f32(F16{0xFC00})));
}

// Every midpoint between neighbouring finite halves goes to the even one, and a hair beside it does
// not.
TEST(F16Test, RoundsToNearestEven) {
  for (std::uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = to_f32(F16{bits});
    const float high = to_f32(F16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(to_f16(middle).bits, bits + (bits & 1U)) << bits;
    EXPECT_EQ(to_f16(std::nextafter(middle, low)).bits, bits) << bits;
    EXPECT_EQ(to_f16(std::nextafter(middle, high)).bits, bits + 1U) << bits;
  }
  EXPECT_TRUE(std::isinf(to_f32(to_f16(65520.0F))));
  EXPECT_EQ(to_f16(65519.9F).bits, 0x7BFF);
}

TEST(BF16Test, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F + 0x1p-20F).bits, 0x3F81);
  EXPECT_EQ(to_f32(BF16{0xC000}), -2.0F);
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Crc32Test, KnownVectorAndContinuation) {
  EXPECT_EQ(crc32(as_bytes("123456789")), 0xCBF43926U);  // the check value of the ZIP CRC-32
  EXPECT_EQ(crc32({}), 0U);
  const std::string text = "The quick brown fox jumps over the lazy dog";
  for (std::size_t split = 0; split <= text.size(); ++split) {
    const std::uint32_t head = crc32(as_bytes(std::string_view(text).substr(0, split)));
    EXPECT_EQ(crc32(as_bytes(std::string_view(text).substr(split)), head), 0x414FA339U);
  }
}

// From the definition: the remainder of the message, bit by bit.
std::uint32_t crc32_by_bits(ByteSpan bytes, std::uint32_t crc) {
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return crc;
}

// Every method this CPU has, at every length and start near its strides, whatever came before.
TEST(Crc32Test, EveryMethodAgreesWithTheDefinition) {
  Rng rng(5);
  std::vector<std::byte> bytes(5000);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next_u32() & 0xFF);
  int n_methods = 0;
  for (const Crc32Method& method : crc32_methods()) {
    if (!method.is_available()) continue;
    ++n_methods;
    SCOPED_TRACE(method.name);
    for (std::size_t length = 0; length < 400; ++length) {
      const std::size_t start = length % 17;
      const ByteSpan part = ByteSpan(bytes).subspan(start, length);
      const std::uint32_t before = rng.next_u32();
      ASSERT_EQ(method.run(part, before), crc32_by_bits(part, before)) << length;
    }
    for (std::size_t start = 0; start < 70; ++start) {
      const ByteSpan part = ByteSpan(bytes).subspan(start);
      ASSERT_EQ(method.run(part, ~0U), crc32_by_bits(part, ~0U)) << start;
    }
  }
  EXPECT_GE(n_methods, 1);
#if defined(__x86_64__)
  EXPECT_EQ(n_methods, __builtin_cpu_supports("pclmul") != 0 ? 2 : 1);
#elif defined(__aarch64__)
  EXPECT_EQ(n_methods, (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? 2 : 1);
#endif
  for (std::size_t split = 0; split <= 300; ++split) {
    EXPECT_EQ(crc32(ByteSpan(bytes).subspan(split), crc32(ByteSpan(bytes).first(split))),
              ~crc32_by_bits(bytes, ~0U));
  }
}

TEST(RngTest, SameSeedSameNumbersAndTheyVary) {
  Rng a(7);
  Rng b(7);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 10000; ++i) {
    const float value = a.next_normal();
    EXPECT_EQ(value, b.next_normal());
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(sum / 10000, 0, 0.05);
  EXPECT_NEAR(squares / 10000, 1, 0.05);
}

TEST(CosineTest, IsDefinedForZeros) {
  EXPECT_EQ(cosine_of_sums(6.0, 4.0, 9.0), 1.0);
  EXPECT_EQ(cosine_of_sums(-3.0, 4.0, 9.0), -0.5);
  EXPECT_EQ(cosine_of_sums(0.0, 0.0, 9.0), 0.0);
  EXPECT_EQ(cosine_of_sums(0.0, 4.0, 0.0), 0.0);
  EXPECT_EQ(cosine_of_sums(0.0, 0.0, 0.0), 1.0);
}

TEST(RunOnThreadsTest, CallsOnThisThreadAndAsManyMore) {
  for (const std::size_t n : {1U, 2U, 5U}) {
    std::atomic<std::size_t> n_calls{0};
    std::atomic<std::size_t> n_here{0};
    const std::thread::id here = std::this_thread::get_id();
    run_on_threads(n, [&] {
      ++n_calls;
      if (std::this_thread::get_id() == here) ++n_here;
    });
    EXPECT_EQ(n_calls, n);
    EXPECT_EQ(n_here, 1U);
  }
}

TEST(Utf8TextTest, KnowsCharactersFromBytes) {
  EXPECT_EQ(utf8_char_bytes("a"), 1U);
  EXPECT_EQ(utf8_char_bytes("\xC3\xA4x"), 2U);
  EXPECT_EQ(utf8_char_bytes("\xE2\x82\xAC"), 3U);
  EXPECT_EQ(utf8_char_bytes("\xF0\x9F\x98\x80"), 4U);
  for (const char* bad : {"", "\x80", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xFF", "\xE2\x82"}) {
    EXPECT_EQ(utf8_char_bytes(bad), 0U) << bad;
  }
}

TEST(Utf8TextTest, FindsWhatIsNoText) {
  EXPECT_EQ(find_non_text(""), 0U);
  EXPECT_EQ(find_non_text("a\xC3\xA4"), 3U);
  EXPECT_EQ(find_non_text(std::string_view("a\0b", 3)), 1U);
  EXPECT_EQ(find_non_text("ab\xFF"), 2U);
  EXPECT_EQ(find_non_text("ab\xE2\x82"), 2U);
}

TEST(Utf8TextTest, CutsBetweenCharacters) {
  const std::string_view text = "a\xE2\x82\xAC\xC3\xA4";
  const std::size_t expected[] = {0, 1, 1, 1, 4, 4, 6, 6};
  for (std::size_t n = 0; n < 8; ++n) EXPECT_EQ(utf8_fitting_bytes(text, n), expected[n]) << n;
  EXPECT_EQ(utf8_fitting_bytes("\x80\x80\x80\x80\x80\x80", 5), 5U);
}

// The vectors of its authors: the key 00 to 0F, and the bytes 00, 01, 02 ...
TEST(SipHashTest, HasThePublishedValuesInAnyParts) {
  const SipKey key = {0x0706050403020100U, 0x0F0E0D0C0B0A0908U};
  const std::pair<std::size_t, SipHash> expected[] = {
      {0, {0xE6A825BA047F81A3U, 0x930255C71472F66DU}},
      {1, {0x44AF996BD8C187DAU, 0x45FC229B11597634U}},
      {2, {0xC75DA4A48D227781U, 0xE4FF0AF6DE8BA3FCU}},
      {15, {0x11A8B03399E99354U, 0xD9C3CF970FEC087EU}},
      {63, {0x4A83502F77D15051U, 0x7CBD3F979A063E50U}},
      {64, {0x3FCDD4C07D07AF1EU, 0x4BA75836384DAD8CU}}};
  std::vector<std::byte> bytes(64);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  for (const auto& [n, hash] : expected) {
    for (std::size_t split = 0; split <= n; ++split) {
      SipHasher hasher(key);
      hasher.add(ByteSpan(bytes).first(split));
      hasher.add(ByteSpan(bytes).subspan(split, n - split));
      EXPECT_EQ(hasher.finish(), hash) << n << " bytes, cut at " << split;
    }
  }
}

}  // namespace
}  // namespace qsf
