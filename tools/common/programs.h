// SPDX-License-Identifier: MIT
//
// The programs in the binary `qsf`: each command's entry function, called by tools/qsf_main.cc.
//
// Requires: program_name() is set, the standard streams are open, and argv[0] stands before the
//   first argument of the command.
// Guarantees: returns the exit code of the process: 0 for success, 1 for a failure, 2 for a wrong
//   command line; parity has more, see its --help.

#ifndef QSF_TOOLS_COMMON_PROGRAMS_H_
#define QSF_TOOLS_COMMON_PROGRAMS_H_

namespace qsf_tools {

int run_main(int argc, char** argv);
int serve_main(int argc, char** argv);
int chat_main(int argc, char** argv);
int convert_main(int argc, char** argv);
int inspect_main(int argc, char** argv);
int perplexity_main(int argc, char** argv);
int bench_main(int argc, char** argv);
int parity_main(int argc, char** argv);
int cache_main(int argc, char** argv);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_PROGRAMS_H_
