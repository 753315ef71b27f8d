// SPDX-License-Identifier: MIT
//
// What the C API's ways of generating have in common: settings read from C, and text handed back.

#ifndef QSF_CAPI_CAPI_OPTIONS_H_
#define QSF_CAPI_CAPI_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "qsf/qsf.h"

namespace qsf::capi {

// Hands progress and each piece of text to the caller, text with the NUL that C wants. The buffer
// is kept, so that a token costs an allocation only when its text is the longest so far.
class TokenForwarder {
 public:
  // Both callbacks may be null.
  TokenForwarder(QSFTokenCallback on_token, QSFProgressCallback on_prompt, void* user_data);

  // Makes `options` report here. Requires  the forwarder stays where it is as long as they are used
  void attach(GenerateOptions& options);

 private:
  static void forward(TokenId token, std::string_view text, void* user);
  static void report(std::uint64_t done, std::uint64_t total, void* user);

  QSFTokenCallback on_token_;
  QSFProgressCallback on_prompt_;
  void* user_data_;
  std::string piece_;
};

// Fails  kInvalidArgument for a negative value
Status read_count(const char* name, int value, std::uint32_t& out);

// Reads settings of C; NULL leaves the defaults.
// Fails  kInvalidArgument or kUnsupported, naming the field; ranges that depend on the model are
//        checked by validate()
Status read_sampling(const qsf_sampling* from, SamplingOptions& out);
Status read_stops(const char* const* stop, std::size_t n_stop, std::vector<std::string>& out);

}  // namespace qsf::capi

#endif  // QSF_CAPI_CAPI_OPTIONS_H_
