// SPDX-License-Identifier: MIT
//
// Settings and text between C and the engine; see capi_options.h.

#include "capi/capi_options.h"

#include "capi/capi_handles.h"

namespace qsf::capi {

namespace {

constexpr std::size_t kPieceBytes = 1024;  // longer than the text of any usual token

}  // namespace

TokenForwarder::TokenForwarder(QSFTokenCallback on_token, QSFProgressCallback on_prompt,
                               void* user_data)
    : on_token_(on_token), on_prompt_(on_prompt), user_data_(user_data) {
  piece_.reserve(kPieceBytes);
}

void TokenForwarder::attach(GenerateOptions& options) {
  options.user = this;
  if (on_prompt_ != nullptr) options.on_prompt = report;
  if (on_token_ != nullptr) options.on_token = forward;
}

void TokenForwarder::forward(TokenId token, std::string_view text, void* user) {
  auto& self = *static_cast<TokenForwarder*>(user);
  self.piece_.clear();
  for (const char c : text) {
    if (c != '\0') {
      self.piece_.push_back(c);
    } else {
      self.piece_.append("\xEF\xBF\xBD");
    }
  }
  self.on_token_(static_cast<int>(token), self.piece_.c_str(), self.user_data_);
}

void TokenForwarder::report(std::uint64_t done, std::uint64_t total, void* user) {
  const auto& self = *static_cast<const TokenForwarder*>(user);
  self.on_prompt_(done, total, self.user_data_);
}

Status read_count(const char* name, int value, std::uint32_t& out) {
  if (value < 0) return invalid_argument("%s: %d, expected at least 0", name, value);
  out = static_cast<std::uint32_t>(value);
  return ok_status();
}

Status read_sampling(const qsf_sampling* from, SamplingOptions& out) {
  if (from == nullptr) return ok_status();
  qsf_sampling sampling = {};
  QSF_RETURN_IF_ERROR(read_struct(from, "sampling", sampling));
  out.temperature = sampling.temperature;
  out.top_p = sampling.top_p;
  out.min_p = sampling.min_p;
  out.repeat_penalty = sampling.repeat_penalty;
  out.seed = sampling.seed;
  QSF_RETURN_IF_ERROR(read_count("top_k", sampling.top_k, out.top_k));
  QSF_RETURN_IF_ERROR(read_count("repeat_window", sampling.repeat_window, out.repeat_window));
  if (sampling.logit_bias == nullptr && sampling.n_logit_bias > 0) {
    return null_argument("logit_bias");
  }
  for (std::size_t i = 0; i < sampling.n_logit_bias; ++i) {
    const qsf_logit_bias& entry = sampling.logit_bias[i];
    if (entry.token < 0) {
      return invalid_argument("logit_bias: token %d, expected at least 0", entry.token);
    }
    out.logit_bias.push_back({static_cast<TokenId>(entry.token), entry.bias});
  }
  return ok_status();
}

Status read_stops(const char* const* stop, std::size_t n_stop, std::vector<std::string>& out) {
  if (stop == nullptr && n_stop > 0) return null_argument("stop");
  for (std::size_t i = 0; i < n_stop; ++i) {
    if (stop[i] == nullptr) return null_argument("stop");
    if (stop[i][0] == '\0') {
      return invalid_argument("stop[%zu]: empty, expected a text to stop at", i);
    }
    out.emplace_back(stop[i]);
  }
  return ok_status();
}

}  // namespace qsf::capi
