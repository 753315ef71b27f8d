// SPDX-License-Identifier: MIT
//
// The options of how the attention of a prompt is computed.

#ifndef QSF_TOOLS_ATTENTION_OPTION_H_
#define QSF_TOOLS_ATTENTION_OPTION_H_

#include <CLI/CLI.hpp>
#include <limits>
#include <optional>
#include <string>

#include "command_line.h"
#include "qsf/qsf.h"

namespace qsf_tools {

struct AttentionChoice {
  std::string attention = "full";
  std::optional<int> local;  // none: the default of qsf_h2o_options, and so below
  std::optional<int> heavy;
  std::optional<int> chunk;
  std::optional<int> sinks;
  std::string score;  // empty: mean

  bool is_h2o() const { return attention == "h2o"; }
  qsf_h2o_options h2o() const {
    return {sizeof(qsf_h2o_options), local.value_or(256),
            heavy.value_or(256),     chunk.value_or(1024),
            sinks.value_or(4),       score == "sum" ? QSF_H2O_SUM : QSF_H2O_MEAN};
  }
};

// `note` stands before each description.
inline void add_attention_options(CLI::App& app, AttentionChoice& choice,
                                  const std::string& note = "") {
  const auto add = [&](const char* name, std::optional<int>& value, int least, const char* what) {
    app.add_option(name, value, note + what)
        ->type_name("N")
        ->check(integer_in(least, std::numeric_limits<int>::max()));
  };
  app.add_option("--attention", choice.attention,
                 note +
                     "How prompts attend: full, to every position before; h2o, to those of their "
                     "chunk and a memory set, which takes less time for long prompts")
      ->type_name("NAME")
      ->check(CLI::IsMember({"full", "h2o"}))
      ->capture_default_str();
  add("--h2o-local", choice.local, 0, "Last positions before a chunk in its memory set; 256");
  add("--h2o-heavy", choice.heavy, 0,
      "Sinks and heaviest positions before those in the memory set; 256");
  add("--h2o-chunk", choice.chunk, 1, "Positions of a chunk; 1024");
  add("--h2o-sinks", choice.sinks, 0, "First positions that every memory set has; 4");
  app.add_option("--h2o-score", choice.score,
                 note +
                     "What heavy positions are ranked by: mean, attention by position that could "
                     "have paid it, the default; or sum")
      ->type_name("RANKING")
      ->check(CLI::IsMember({"mean", "sum"}));
}

// Returns what is wrong with the choice as a whole; empty: nothing.
inline std::string check_attention(const AttentionChoice& choice) {
  const bool given =
      choice.local || choice.heavy || choice.chunk || choice.sinks || !choice.score.empty();
  if (!choice.is_h2o()) {
    return given ? "--h2o-...: needs --attention h2o; the attention is " + choice.attention : "";
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

#endif  // QSF_TOOLS_ATTENTION_OPTION_H_
