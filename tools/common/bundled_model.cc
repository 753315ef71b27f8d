// SPDX-License-Identifier: MIT

#include "tools/common/bundled_model.h"

#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

constexpr const char* kBundledModel = "tales-5M-4bit.qsf";

}  // namespace

std::optional<std::string> find_bundled_model(std::string& error) {
  const std::string program = program_path();
  const std::string folder = program.substr(0, program.rfind('/') + 1);
  if (folder.empty()) {
    error = "no bundled model: the path of this program is not known; name a model file instead";
    return std::nullopt;
  }
  // An installation first: three folders above an installed program are files of others.
  const std::string places[] = {folder + QSF_MODELS_FROM_BIN "/" + kBundledModel,
                                folder + "../../../models/" + kBundledModel};
  for (const std::string& place : places) {
    if (is_regular_file(place)) return place;
  }
  error = "no bundled model: searched " + places[0] + " and " + places[1] +
          "; name a model file instead";
  return std::nullopt;
}

}  // namespace qsf_tools
