// SPDX-License-Identifier: MIT
//
// The public header from C++, first in the file so that it needs nothing before it, and the
// defaults that its comments promise.

#include "qsf/qsf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "capi/capi_handles.h"

namespace qsf::capi {
namespace {

TEST(CapiHeaderTest, InitFunctionsSetTheDocumentedDefaults) {
  qsf_sampling sampling;
  std::memset(&sampling, 0xAA, sizeof sampling);
  qsf_sampling_init(&sampling);
  EXPECT_EQ(sampling.struct_size, sizeof sampling);
  EXPECT_EQ(sampling.temperature, 0.7F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.min_p, 0.0F);
  EXPECT_EQ(sampling.repeat_penalty, 1.0F);
  EXPECT_EQ(sampling.repeat_window, 64);
  EXPECT_EQ(sampling.seed, 0U);
  EXPECT_EQ(sampling.logit_bias, nullptr);
  EXPECT_EQ(sampling.n_logit_bias, 0U);

  qsf_generate_options options;
  std::memset(&options, 0xAA, sizeof options);
  qsf_generate_options_init(&options);
  EXPECT_EQ(options.struct_size, sizeof options);
  EXPECT_EQ(options.prompt, nullptr);
  EXPECT_EQ(options.prompt_bytes, 0U);
  EXPECT_EQ(options.tokenize_flags, 0U);
  EXPECT_EQ(options.max_tokens, 256);
  EXPECT_EQ(options.sampling, nullptr);
  EXPECT_EQ(options.stop, nullptr);
  EXPECT_EQ(options.n_stop, 0U);
  EXPECT_EQ(options.on_token, nullptr);
}

TEST(CapiHeaderTest, StructsAreThoseOfC) {
  EXPECT_TRUE(std::is_standard_layout_v<qsf_generate_options>);
  EXPECT_TRUE(std::is_trivially_copyable_v<qsf_generate_options>);
  EXPECT_EQ(offsetof(qsf_error, message), 4U);
  EXPECT_EQ(sizeof(qsf_error), 260U);
}

TEST(CapiHeaderTest, TheLibraryIsOfTheHeadersVersion) {
  const std::string version = std::to_string(QSF_VERSION_MAJOR) + "." +
                              std::to_string(QSF_VERSION_MINOR) + "." +
                              std::to_string(QSF_VERSION_PATCH);
  EXPECT_EQ(qsf_version(), version);
  EXPECT_EQ(qsf_abi_version(), QSF_ABI_VERSION);
}

std::string message_of(std::string_view text) {
  qsf_error error;
  fill_error(&error, QSF_IO, text);
  EXPECT_EQ(error.code, QSF_IO);
  return error.message;
}

TEST(CapiErrorTest, MessagesAreOneLineOfValidUtf8CutAtACharacter) {
  EXPECT_EQ(message_of("plain"), "plain");
  EXPECT_EQ(message_of("two\nlines\t"), "two lines ");
  EXPECT_EQ(message_of("bad \xFF\xC3 bytes"), "bad ?? bytes");
  EXPECT_EQ(message_of("\xED\xA0\x80"), "???") << "a surrogate is no character";
  const std::string euro = "\xE2\x82\xAC";
  EXPECT_EQ(message_of(euro), euro);
  EXPECT_EQ(message_of(std::string(255, 'x')).size(), 255U);
  EXPECT_EQ(message_of(std::string(300, 'x')).size(), 255U);
  EXPECT_EQ(message_of(std::string(253, 'x') + euro), std::string(253, 'x'));
  EXPECT_EQ(message_of(std::string(252, 'x') + euro), std::string(252, 'x') + euro);
}

TEST(CapiErrorTest, TheGuardTurnsExceptionsIntoCodes) {
  qsf_error error;
  const auto refuse = []() -> Status { throw std::bad_alloc(); };
  EXPECT_EQ(guarded(&error, refuse), QSF_INTERNAL);
  EXPECT_NE(std::string(error.message).find("memory"), std::string::npos);
  EXPECT_EQ(guarded(nullptr, refuse), QSF_INTERNAL);
  EXPECT_EQ(guarded(&error, []() -> Status { throw 1; }), QSF_INTERNAL);
  EXPECT_EQ(guarded(&error, [] { return corrupt("x"); }), QSF_CORRUPT);
  EXPECT_EQ(guarded(&error, [] { return ok_status(); }), QSF_OK);
  EXPECT_EQ(error.code, QSF_OK);
  EXPECT_STREQ(error.message, "");
}

}  // namespace
}  // namespace qsf::capi
