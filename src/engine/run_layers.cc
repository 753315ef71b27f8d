// SPDX-License-Identifier: MIT
//
// Some layers of a window, for those who look at what goes into them.

#include <algorithm>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace qsf {

Status Engine::run_layers(std::span<const TokenId> tokens, std::uint32_t first, std::uint32_t last,
                          std::span<float> hidden) {
  const std::size_t n_hidden = spec().hidden;
  QSF_CHECK(first < last && last <= spec().n_layers && hidden.size() == tokens.size() * n_hidden);
  if (tokens.empty()) return invalid_argument("no tokens to run, expected at least one");
  if (tokens.size() > impl_->max_context) {
    return out_of_budget("%zu tokens to run, the context has %u positions", tokens.size(),
                         impl_->max_context);
  }
  for (const TokenId token : tokens) {
    if (token >= spec().n_vocab) {
      return invalid_argument("token %u: the vocabulary ends at %u", token, spec().n_vocab - 1);
    }
  }
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, create_session());
  for (std::size_t row = 0; row < tokens.size();) {
    const std::size_t n = std::min<std::size_t>(impl_->rows_per_pass, tokens.size() - row);
    QSF_RETURN_IF_ERROR(impl_->run_part(session->sequence_, tokens.subspan(row, n), first, last,
                                        hidden.subspan(row * n_hidden, n * n_hidden)));
    row += n;
  }
  impl_->take_cancel();  // asked for after the last pass, as score() has it
  return ok_status();
}

}  // namespace qsf
