// SPDX-License-Identifier: MIT
//
// The command that there is no build for Windows of.

#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

int parity_main(int, char**) {
  print_error(program_name(),
              "is not in the program for Windows; it runs on Linux, also in the Windows Subsystem "
              "for Linux");
  return kFailure;
}

}  // namespace qsf_tools
