// SPDX-License-Identifier: MIT
//
// The structs of the C interface across releases: what a program compiled with another header
// passes is read, filled or refused as the header says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "capi/struct_sizes.h"
#include "capi/testing/struct_sizes_0_1.h"

namespace qsf::capi {
namespace {

constexpr std::size_t kNewer = 16;  // bytes that a newer header has beyond this one

// A struct of the caller, of any size: a write past it is past the allocation.
template <typename T>
class Caller {
 public:
  explicit Caller(std::size_t size) : bytes_(std::max(size, sizeof(std::size_t)), 0x5A) {
    set_size(size);
  }
  void set_size(std::size_t size) { std::memcpy(bytes_.data(), &size, sizeof size); }
  std::size_t size() const {
    std::size_t size;
    std::memcpy(&size, bytes_.data(), sizeof size);
    return size;
  }
  void clear_from(std::size_t offset) { std::fill(bytes_.begin() + offset, bytes_.end(), 0); }
  T* get() { return reinterpret_cast<T*>(bytes_.data()); }
  std::vector<unsigned char>& bytes() { return bytes_; }

 private:
  std::vector<unsigned char> bytes_;
};

template <typename T>
T filled(unsigned char byte) {
  T value;
  std::memset(&value, byte, sizeof value);
  return value;
}

template <typename T>
bool bytes_are(const T& value, std::size_t from, std::size_t to, unsigned char byte) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  return std::all_of(bytes + from, bytes + to, [byte](unsigned char b) { return b == byte; });
}

template <typename T>
class CapiStructTest : public testing::Test {};
using Structs =
    testing::Types<qsf_h2o_options, qsf_sampling, qsf_generate_options, qsf_chat_options,
                   qsf_chat_send_options, qsf_model_info, qsf_engine_stats, qsf_generate_result,
                   qsf_chat_result, qsf_chat_info, qsf_plan_info, qsf_memory_region,
                   qsf_step_counts, qsf_step_options, qsf_kv_page_counts, qsf_prefix_stats,
                   qsf_chat_prompt_options, qsf_chat_prompt_info, qsf_layer_info, qsf_layer_row>;
TYPED_TEST_SUITE(CapiStructTest, Structs);

TYPED_TEST(CapiStructTest, EverySizeOfAReleaseIsReadOverTheDefaults) {
  for (const std::size_t size : kReleasedSizes<TypeParam>) {
    Caller<TypeParam> caller(size);
    TypeParam to = filled<TypeParam>(0x33);
    ASSERT_TRUE(read_struct(caller.get(), "options", to).ok()) << size;
    EXPECT_EQ(to.struct_size, size);
    EXPECT_TRUE(bytes_are(to, sizeof(std::size_t), size, 0x5A)) << size;
    EXPECT_TRUE(bytes_are(to, size, sizeof to, 0x33)) << "no default is left at " << size;
  }
}

TYPED_TEST(CapiStructTest, EverySizeOfAReleaseIsFilledAndNoByteBeyond) {
  for (const std::size_t size : kReleasedSizes<TypeParam>) {
    Caller<TypeParam> caller(size + 8);
    caller.set_size(size);
    ASSERT_TRUE(write_struct(filled<TypeParam>(0x33), "info", caller.get()).ok()) << size;
    EXPECT_EQ(caller.size(), size);
    EXPECT_EQ(caller.bytes()[size - 1], 0x33);
    EXPECT_EQ(caller.bytes()[size], 0x5A);
  }
}

TYPED_TEST(CapiStructTest, ALargerOneIsReadWhenItsTailIsZero) {
  Caller<TypeParam> caller(sizeof(TypeParam) + kNewer);
  caller.clear_from(sizeof(TypeParam));
  TypeParam to = filled<TypeParam>(0x33);
  ASSERT_TRUE(read_struct(caller.get(), "options", to).ok());
  EXPECT_TRUE(bytes_are(to, sizeof(std::size_t), sizeof to, 0x5A));
  for (const std::size_t at : {sizeof(TypeParam), sizeof(TypeParam) + kNewer - 1}) {
    caller.clear_from(sizeof(TypeParam));
    caller.bytes()[at] = 0x7F;
    const Status status = read_struct(caller.get(), "options", to);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("byte " + std::to_string(at) + " is 0x7f"), std::string::npos)
        << status.message();
  }
}

TYPED_TEST(CapiStructTest, ALargerOneIsFilledAsFarAsItIsKnown) {
  Caller<TypeParam> caller(sizeof(TypeParam) + kNewer);
  ASSERT_TRUE(write_struct(filled<TypeParam>(0x33), "info", caller.get()).ok());
  EXPECT_EQ(caller.size(), sizeof(TypeParam));
  EXPECT_EQ(caller.bytes()[sizeof(TypeParam)], 0x5A);
}

TYPED_TEST(CapiStructTest, OtherSizesAreRefused) {
  const auto& released = kReleasedSizes<TypeParam>;
  std::vector<std::size_t> sizes = {sizeof(TypeParam) + 1, sizeof(TypeParam) + 4, 1U << 20,
                                    static_cast<std::size_t>(-8)};
  for (std::size_t size = 0; size < sizeof(TypeParam); ++size) {
    if (std::find(released.begin(), released.end(), size) == released.end()) sizes.push_back(size);
  }
  Caller<TypeParam> caller(sizeof(TypeParam) + kNewer);
  for (const std::size_t size : sizes) {
    caller.set_size(size);
    TypeParam to = {};
    EXPECT_EQ(read_struct(caller.get(), "options", to).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(write_struct(to, "info", caller.get()).code(), StatusCode::kInvalidArgument) << size;
    EXPECT_EQ(caller.size(), size);
  }
}

TEST(CapiAbiTest, TheFirstSizesAreThoseOf0_1) {
  const StructSizes0_1& sizes = kStructSizes0_1;
  EXPECT_EQ(kReleasedSizes<qsf_h2o_options>.front(), sizes.h2o_options);
  EXPECT_EQ(kReleasedSizes<qsf_sampling>.front(), sizes.sampling);
  EXPECT_EQ(kReleasedSizes<qsf_generate_options>.front(), sizes.generate_options);
  EXPECT_EQ(kReleasedSizes<qsf_chat_options>.front(), sizes.chat_options);
  EXPECT_EQ(kReleasedSizes<qsf_chat_send_options>.front(), sizes.chat_send_options);
  EXPECT_EQ(kReleasedSizes<qsf_model_info>.front(), sizes.model_info);
  EXPECT_EQ(kReleasedSizes<qsf_engine_stats>.front(), sizes.engine_stats);
  EXPECT_EQ(kReleasedSizes<qsf_generate_result>.front(), sizes.generate_result);
  EXPECT_EQ(kReleasedSizes<qsf_chat_result>.front(), sizes.chat_result);
  EXPECT_EQ(kReleasedSizes<qsf_chat_info>.front(), sizes.chat_info);
  EXPECT_EQ(kReleasedSizes<qsf_plan_info>.front(), sizes.plan_info);
  EXPECT_EQ(kReleasedSizes<qsf_memory_region>.front(), sizes.memory_region);
}

// The exported function fills a struct of 0.1; the sized one fills any and clears what it does not
// know.
template <typename T>
void expect_inits(void (*init)(T*), void (*init_sized)(T*, std::size_t)) {
  const std::size_t first = kReleasedSizes<T>.front();
  Caller<T> old(first + 8);
  init(old.get());
  EXPECT_EQ(old.size(), first);
  EXPECT_EQ(old.bytes()[first], 0x5A) << "written past the struct of 0.1";
  for (const std::size_t size : {first, sizeof(T), sizeof(T) + kNewer}) {
    Caller<T> caller(size + 8);
    init_sized(caller.get(), size);
    T to = {};
    EXPECT_TRUE(read_struct(caller.get(), "options", to).ok()) << size;
    EXPECT_EQ(std::memcmp(&caller.bytes()[8], &old.bytes()[8], first - 8), 0);
    EXPECT_EQ(caller.bytes()[size], 0x5A) << "written past " << size;
  }
  init(nullptr);
  init_sized(nullptr, sizeof(T));
}

TEST(CapiAbiTest, InitFunctionsFillTheStructOfTheirCaller) {
  expect_inits(qsf_h2o_options_init, qsf_h2o_options_init_sized);
  expect_inits(qsf_sampling_init, qsf_sampling_init_sized);
  expect_inits(qsf_generate_options_init, qsf_generate_options_init_sized);
  expect_inits(qsf_chat_options_init, qsf_chat_options_init_sized);
  expect_inits(qsf_chat_send_options_init, qsf_chat_send_options_init_sized);
  expect_inits(qsf_step_options_init, qsf_step_options_init_sized);
}

}  // namespace
}  // namespace qsf::capi
