// SPDX-License-Identifier: MIT
//
// The program `qsf`: chooses a command by its first argument, or by the name that the program was
// started as, since qsf-run, qsf-convert ... are links to it.

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "qsf/qsf.h"
#include "tools/common/console.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

struct Command {
  const char* name;
  int (*main)(int argc, char** argv);
  bool runs_models_only;  // needs no code that converts or serves
  bool takes_ranks;       // runs a model over the processes that mpirun starts
  const char* summary;
};

constexpr Command kCommands[] = {
    {"run", run_main, true, true, "Complete a prompt with a model; on a terminal, chat"},
    {"chat", chat_main, true, true, "Chat with a model"},
    {"serve", serve_main, false, true, "Serve models over HTTP, with a web page"},
    {"convert", convert_main, false, false, "Convert a model folder or a GGUF file to a .qsf file"},
    {"inspect", inspect_main, true, false, "Print a model file's metadata, check it, plan a run"},
    {"perplexity", perplexity_main, true, true, "Measure how well a model predicts a text"},
    {"bench", bench_main, false, false, "Measure the speed of prompts and of generation"},
    {"parity", parity_main, false, false, "Compare a model's logits with another engine's"},
    {"cache", cache_main, true, false, "List or remove the models that run has converted"},
};

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

// scripts/package/cli_help.py reads this text too.
void print_help(std::FILE* stream) {
  std::fputs(
      "Runs a language model in the memory you give it.\n"
      "qsf help COMMAND prints the options of a command.\n"
      "Example: qsf run MODEL.gguf \"Once upon a time\" --ram-budget 500\n"
      "\n"
      "Usage: qsf COMMAND [ARGUMENTS]\n"
      "\n"
      "Commands:\n",
      stream);
  for (const Command& command : kCommands) {
    std::fprintf(stream, "  %-24s%s\n", command.name, command.summary);
  }
  std::fputs(
      "\n"
      "Options:\n"
      "  -h,--help               Print this help\n"
      "  --version               Print the version\n",
      stream);
}

// Of several processes that mpirun starts, rank 0 runs the command, and the others serve it.
int run_command(const Command& command, std::string name, int argc, char** argv) {
  set_program_name(std::move(name));
  if (command.runs_models_only) set_conversion_code_aside();
  int rank = 0;
  int n_ranks = 1;
  qsf_error error = {};
  if (qsf_ranks_join(&rank, &n_ranks, &error) != QSF_OK) {
    print_error("qsf", error.message);
    return kFailure;
  }
  if (rank != 0) return kSuccess;
  int result = kUsage;
  if (n_ranks == 1 || command.takes_ranks) {
    result = command.main(argc, argv);
  } else {
    print_error(
        "qsf " + std::string(command.name),
        "runs in one process, not in " + std::to_string(n_ranks) + "; start it without mpirun");
  }
  qsf_ranks_leave();
  return result;
}

int usage(const std::string& problem) {
  print_error("qsf", problem + "; see qsf --help");
  return kUsage;
}

int no_such_command(const std::string& name) {
  std::string names;
  for (const Command& command : kCommands) {
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  }
  return usage("'" + name + "': no such command, expected one of " + names);
}

int help(int argc, char** argv) {
  if (argc < 3) {
    print_help(stdout);
    return std::fflush(stdout) == 0 ? kSuccess : kFailure;
  }
  const Command* const command = find_command(argv[2]);
  if (command == nullptr) return no_such_command(argv[2]);
  std::string option = "--help";
  char* arguments[] = {argv[2], option.data(), nullptr};
  return run_command(*command, "qsf " + std::string(command->name), 2, arguments);
}

int dispatch(int argc, char** argv) {
  constexpr std::string_view kLinkPrefix = "qsf-";
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view started_as = path.substr(path.rfind('/') + 1);
  if (started_as.starts_with(kLinkPrefix)) {
    const Command* const command = find_command(started_as.substr(kLinkPrefix.size()));
    if (command != nullptr) return run_command(*command, std::string(started_as), argc, argv);
  }
  if (argc < 2) {
    print_help(stderr);
    return kUsage;
  }
  const std::string first = argv[1];
  if (const Command* const command = find_command(first)) {
    return run_command(*command, "qsf " + first, argc - 1, argv + 1);
  }
  if (first == "help" || first == "--help" || first == "-h") return help(argc, argv);
  if (first == "--version") {
    std::printf("qsf " QSF_VERSION "\n");
    return std::fflush(stdout) == 0 ? kSuccess : kFailure;
  }
  return no_such_command(first);
}

}  // namespace
}  // namespace qsf_tools

int main(int argc, char** argv) {
  qsf_tools::open_standard_streams();
  return qsf_tools::dispatch(argc, argv);
}
