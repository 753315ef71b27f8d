// SPDX-License-Identifier: MIT
//
// QSF_ISA caps the tier of the backend that engines use, and QSF_PREFETCH_BYTES has to be a number.

#include "ops/make_backend.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/isa.h"
#include "kernels/kernel_set.h"
#include "platform/cpu.h"
#include "platform/threads.h"

namespace qsf {
namespace {

// Sets QSF_ISA, and gives it back the value that the run was started with.
class MakeBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const value = std::getenv("QSF_ISA");
    if (value != nullptr) before_ = value;
  }

  void TearDown() override {
    if (before_.empty()) {
      unsetenv("QSF_ISA");
    } else {
      setenv("QSF_ISA", before_.c_str(), 1);
    }
  }

  std::string before_;
};

TEST_F(MakeBackendTest, ObeysQsfIsa) {
  const auto pool = ThreadPool::create(1);
  ASSERT_TRUE(pool.has_value());
  for (const kernels::Isa isa : kernels::kAllIsas) {
    if (!kernels::can_run_isa(host_cpu(), isa)) continue;
    const std::string name(kernels::isa_name(isa));
    setenv("QSF_ISA", name.c_str(), 1);
    const auto backend = make_cpu_backend(**pool, false);
    ASSERT_TRUE(backend.has_value()) << backend.error().message();
    const auto& kernel =
        kernels::kernel_set(isa).matmul({QuantType::kQ4, 64}, kernels::ActivationType::kInt8);
    EXPECT_EQ((*backend)->instruction_set(), kernels::isa_name(kernel.isa)) << name;
  }
}

TEST_F(MakeBackendTest, RefusesAnUnknownTier) {
  const auto pool = ThreadPool::create(1);
  ASSERT_TRUE(pool.has_value());
  setenv("QSF_ISA", "no-such-tier", 1);
  const auto backend = make_cpu_backend(**pool, false);
  ASSERT_FALSE(backend.has_value());
  EXPECT_EQ(backend.error().code(), StatusCode::kInvalidArgument);
}

TEST_F(MakeBackendTest, RefusesAPrefetchThatIsNoNumber) {
  const auto pool = ThreadPool::create(1);
  ASSERT_TRUE(pool.has_value());
  const char* const set_before = std::getenv("QSF_PREFETCH_BYTES");
  const std::string before = set_before != nullptr ? set_before : "";
  for (const char* value : {"2K", "-1", "1048577", " 1", "99999999999"}) {
    setenv("QSF_PREFETCH_BYTES", value, 1);
    const auto backend = make_cpu_backend(**pool, false);
    ASSERT_FALSE(backend.has_value()) << value;
    EXPECT_EQ(backend.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(backend.error().message().find("expected a number from 0 to 1048576"),
              std::string::npos);
  }
  for (const char* value : {"", "0", "2048", "1048576"}) {
    setenv("QSF_PREFETCH_BYTES", value, 1);
    EXPECT_TRUE(make_cpu_backend(**pool, false).has_value()) << value;
  }
  if (before.empty()) {
    unsetenv("QSF_PREFETCH_BYTES");
  } else {
    setenv("QSF_PREFETCH_BYTES", before.c_str(), 1);
  }
}

TEST_F(MakeBackendTest, SaysWhetherItIsExact) {
  const auto pool = ThreadPool::create(1);
  ASSERT_TRUE(pool.has_value());
  EXPECT_NE(make_cpu_backend(**pool, true).value()->describe().find("exact"), std::string::npos);
  EXPECT_EQ(make_cpu_backend(**pool, false).value()->describe().find("exact"), std::string::npos);
}

}  // namespace
}  // namespace qsf
