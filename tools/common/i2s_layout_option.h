// SPDX-License-Identifier: MIT
//
// The option of how a GGUF file that is converted on the way stores tensors of type I2_S.

#ifndef QSF_TOOLS_COMMON_I2S_LAYOUT_OPTION_H_
#define QSF_TOOLS_COMMON_I2S_LAYOUT_OPTION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace qsf_tools {

inline void add_i2s_layout_option(CLI::App& app, std::string& value) {
  app.add_option("--i2s-layout", value,
                 "How a GGUF file stores tensors of type I2_S; see qsf-convert --help")
      ->type_name("NAME")
      ->check(CLI::IsMember(
          {"auto", "ms128", "ms64", "ms4row", "inline32", "split32", "qk256", "seed"}));
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_I2S_LAYOUT_OPTION_H_
