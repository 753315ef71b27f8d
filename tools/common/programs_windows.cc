// SPDX-License-Identifier: MIT
//
// The commands that there is no build for Windows of yet.

#include <string>

#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

int refuse() {
  print_error(program_name(),
              "is not in the program for Windows yet; it runs on Linux, also in the "
              "Windows Subsystem for Linux");
  return kFailure;
}

}  // namespace

int bench_main(int, char**) {
  return refuse();
}

int parity_main(int, char**) {
  return refuse();
}

}  // namespace qsf_tools
