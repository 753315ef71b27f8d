// SPDX-License-Identifier: MIT
//
// How a user wants the attention of a prompt computed.

#ifndef QSF_TOOLS_COMMON_ATTENTION_CHOICE_H_
#define QSF_TOOLS_COMMON_ATTENTION_CHOICE_H_

#include <optional>
#include <string>

#include "qsf/qsf.h"

namespace qsf_tools {

struct AttentionChoice {
  std::string attention = "full";
  std::optional<int> local;  // none: the default of qsf_h2o_options, and so below
  std::optional<int> heavy;
  std::optional<int> chunk;
  std::optional<int> sinks;
  std::string score;  // empty: sum

  bool is_h2o() const { return attention == "h2o"; }
  bool is_default() const { return attention == "full" && !has_sizes(); }
  bool has_sizes() const { return local || heavy || chunk || sinks || !score.empty(); }
  qsf_h2o_options h2o() const {
    return {sizeof(qsf_h2o_options), local.value_or(256),
            heavy.value_or(256),     chunk.value_or(1024),
            sinks.value_or(4),       score == "mean" ? QSF_H2O_MEAN : QSF_H2O_SUM};
  }
};

// Returns what is wrong with the choice as a whole; empty: nothing.
inline std::string check_attention(const AttentionChoice& choice) {
  if (!choice.is_h2o()) {
    return choice.has_sizes()
               ? "--h2o-...: needs --attention h2o; the attention is " + choice.attention
               : "";
  }
  const qsf_h2o_options h2o = choice.h2o();
  const auto number = [](long long value) { return std::to_string(value); };
  if (static_cast<long long>(h2o.local) + h2o.heavy >= h2o.chunk) {
    return "--h2o-local " + number(h2o.local) + " and --h2o-heavy " + number(h2o.heavy) +
           ": expected less together than --h2o-chunk " + number(h2o.chunk);
  }
  const bool on = h2o.local != 0 || h2o.heavy != 0;
  if (on && h2o.heavy < h2o.sinks) {
    return "--h2o-heavy " + number(h2o.heavy) + ": expected at least --h2o-sinks " +
           number(h2o.sinks) + ", which it counts";
  }
  return "";
}

// Requires  a choice that the options and check_attention() accept
inline void set_attention(QSFConfig* config, const AttentionChoice& choice) {
  const qsf_h2o_options h2o = choice.h2o();
  qsf_config_set_attention(config, choice.is_h2o() ? QSF_ATTENTION_H2O : QSF_ATTENTION_FULL, &h2o);
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_ATTENTION_CHOICE_H_
