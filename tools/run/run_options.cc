// SPDX-License-Identifier: MIT
//
// The command line of qsf-run.
//
// Options whose work is not built yet are known, so that they can say so instead of being ignored.

#include "tools/run/run_options.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "tools/common/attention_option.h"
#include "tools/common/command_line.h"
#include "tools/common/i2s_layout_option.h"
#include "tools/common/kv_policy_option.h"
#include "tools/common/kv_type_option.h"
#include "tools/common/read_path_option.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxThreads = 1024;

// Values as they were typed, before they mean anything.
struct Unfinished {
  std::vector<std::string> logit_bias;
  double quality = 1.0;
  std::string read_path = "auto";
  std::string chat_template;
  std::string system_file;
  bool bench = false;
};

constexpr std::size_t kMaxChatFileBytes = 16'000'000;

constexpr const char* kDescription =
    "Completes a prompt with a model, or chats with it, streaming the text to standard output.\n"
    "Without a model it runs the bundled one; that one tells a story when there is no prompt.\n"
    "The output is the text alone and ends with a newline, which is added when the text has none.\n"
    "Statistics and warnings go to standard error. Ctrl-C ends the text and prints them.";

std::string template_names() {
  std::string names;
  for (int i = 0; const char* name = qsf_chat_template_name(i); ++i) {
    names += (i == 0 ? "" : ", ") + std::string(name);
  }
  return names;
}

bool is_template_name(const std::string& text) {
  for (int i = 0; const char* name = qsf_chat_template_name(i); ++i) {
    if (text == name) return true;
  }
  return false;
}

void add_text_options(CLI::App& app, RunOptions& options) {
  app.add_option("MODEL", options.model,
                 "Model file (.qsf), or a GGUF file (.gguf), which is converted once into "
                 "~/.cache/qsf/converted (or $XDG_CACHE_HOME) and run from there")
      ->type_name("");
  add_i2s_layout_option(app, options.i2s_layout);
  app.add_option("--prompt", options.prompt, "Text to complete")->type_name("TEXT");
  app.add_option("--prompt-file", options.prompt_file,
                 "Read the prompt from a file, byte for byte; - for standard input")
      ->type_name("FILE");
  app.add_option("--max-tokens", options.max_tokens,
                 "Tokens to generate at most; 0: none. By default 256; for an answer of a chat "
                 "until the model ends it or the context is full")
      ->type_name("N")
      ->check(integer_in(0, kMaxInt));
  app.add_option("--stop", options.stop, "End before this text; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--no-echo", options.no_echo, "Leave the prompt out of the output");
}

CLI::Validator file_name() {
  return CLI::Validator(
      [](const std::string& path) {
        return std::string(path.empty() ? "expected the name of a file" : "");
      },
      "");
}

void add_session_options(CLI::App& app, RunOptions& options) {
  app.add_option("--session-save", options.session_save,
                 "Write the session to FILE at the end: its tokens, or the chat, with keys and "
                 "values, so that nothing of it has to be computed again")
      ->type_name("FILE")
      ->check(file_name());
  app.add_option("--session-load", options.session_load,
                 "Go on with a saved session: a prompt comes after its text, and without one the "
                 "text goes on; with --interactive the chat does. Needs the same model, types and "
                 "policy of keys and values, and attention")
      ->type_name("FILE")
      ->check(file_name());
}

void add_chat_options(CLI::App& app, RunOptions& options, Unfinished& unfinished) {
  app.add_flag(
      "--interactive", options.interactive,
      "Chat: a line is a message, /help lists the commands; Ctrl-C stops an answer, Ctrl-D "
      "leaves. Where standard input is no terminal its lines are the messages");
  app.add_option("--system", options.system, "System prompt of the chat")->type_name("TEXT");
  app.add_option("--system-file", unfinished.system_file, "Read the system prompt from a file")
      ->type_name("FILE");
  app.add_option("--chat-template", unfinished.chat_template,
                 "How to write the chat, instead of the model's own way: " + template_names() +
                     ", or a file with a Jinja template")
      ->type_name("NAME|FILE");
  app.add_flag("--no-history", options.no_history,
               "Do not keep typed lines in ~/.local/state/qsf/chat_history (or $XDG_STATE_HOME)");
}

void add_sampling_options(CLI::App& app, RunOptions& options, Unfinished& unfinished) {
  app.add_option("--temperature", options.temperature,
                 "Randomness; 0 always takes the likeliest token")
      ->type_name("F")
      ->check(number_in(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--top-k", options.top_k, "Draw from the K likeliest tokens; 0: all")
      ->type_name("N")
      ->check(integer_in(0, kMaxInt))
      ->capture_default_str();
  app.add_option("--top-p", options.top_p,
                 "Draw from the likeliest tokens that hold this probability")
      ->type_name("F")
      ->check(number_above(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--min-p", options.min_p,
                 "Drop tokens below this share of the likeliest one's probability")
      ->type_name("F")
      ->check(number_in(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--repeat-penalty", options.repeat_penalty,
                 "Make the newest 64 tokens less likely; 1: off")
      ->type_name("F")
      ->check(number_above(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--logit-bias", unfinished.logit_bias,
                 "Add F to the logit of token ID, -inf bans it; may be given several times")
      ->type_name("ID=F")
      ->allow_extra_args(false);
  app.add_option("--seed", options.seed,
                 "The same seed gives the same text; without one each run differs")
      ->type_name("N")
      ->check(unsigned_integer());
}

void add_engine_options(CLI::App& app, RunOptions& options, Unfinished& unfinished) {
  app.add_option("--threads", options.threads, "Threads; by default one for each physical core")
      ->type_name("N")
      ->check(integer_in(1, kMaxThreads));
  app.add_option(
         "--max-seq-len", options.max_seq_len,
         "Context in tokens; by default the model's, with --kv-policy full at most 4096, with "
         "--rope-reindex at least 65536, and down to 1024 when memory is short")
      ->type_name("N")
      ->check(integer_in(1, kMaxInt));
  add_kv_type_options(app, options.kv_types);
  add_kv_policy_options(app, options.kv_policy);
  add_attention_options(app, options.attention);
  app.add_option(
         "--kv-spill", options.kv_spill,
         "Keep keys and values in FILE, which must not exist and is gone afterwards; memory "
         "holds two layers of them")
      ->type_name("FILE")
      ->check(file_name());
  app.add_flag("--exact", options.exact,
               "Multiply weights by 32-bit floats: slower, without the rounding to 8 bits");
  app.add_flag("--pin", options.pin, "Bind each thread to a physical core of its own");
  app.add_option("--ram-budget", options.ram_budget,
                 "Bound of all memory in MB (10^6 bytes); what does not fit is read from the disk "
                 "in every pass. By default what the machine has to spare")
      ->type_name("N")
      ->check(integer_in(1, kMaxInt));
  add_read_path_option(app, unfinished.read_path);
  app.add_option("--rows-per-pass", options.rows_per_pass,
                 "Tokens of a prompt that one pass carries, at most; by default up to 512, and "
                 "fewer when memory is short")
      ->type_name("N")
      ->check(integer_in(1, kMaxInt));
  app.add_option("--quality", unfinished.quality,
                 "Trade of quality for speed, 0 to 1 (only 1 is built yet)")
      ->type_name("F")
      ->check(number_in(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--bench", unfinished.bench, "Run a benchmark and exit (not built yet)");
  app.add_flag("--verbose", options.verbose, "Print memory plan, kernels and where the time went");
  app.add_flag("--quiet", options.quiet, "Print no statistics");
}

// Returns what is asked for but not built, as an error message; empty when there is nothing.
std::string not_built(const Unfinished& unfinished) {
  if (unfinished.bench) return "--bench: benchmarks are not built yet";
  if (unfinished.quality != 1.0) {
    return "--quality: trading quality for speed is not built yet; the only value is 1";
  }
  return {};
}

// Returns what is wrong with a combination of options, empty for nothing.
std::string check_combination(const RunOptions& options, const Unfinished& unfinished) {
  const bool has_prompt = options.prompt || !options.prompt_file.empty();
  const bool of_chat = !options.system.empty() || !unfinished.system_file.empty() ||
                       !unfinished.chat_template.empty() || options.no_history;
  if (options.prompt && !options.prompt_file.empty()) {
    return "--prompt and --prompt-file exclude each other";
  }
  if (options.quiet && options.verbose) return "--quiet and --verbose exclude each other";
  if (!options.system.empty() && !unfinished.system_file.empty()) {
    return "--system and --system-file exclude each other";
  }
  if (options.interactive && has_prompt) {
    return "--interactive and a prompt exclude each other: say it in the chat";
  }
  if (options.interactive && options.max_tokens == 0) {
    return "--max-tokens: 0, expected at least 1 with --interactive";
  }
  if (of_chat && !options.interactive) {
    return "--system, --system-file, --chat-template and --no-history need --interactive";
  }
  if (options.model && !has_prompt && !options.interactive && options.session_load.empty()) {
    return "no prompt: give one with --prompt TEXT or --prompt-file FILE, chat with --interactive, "
           "or go on with --session-load";
  }
  return {};
}

// Reads what the options of a chat name. Returns what is wrong, empty for nothing.
std::string read_chat_files(const Unfinished& unfinished, RunOptions& options) {
  std::string error;
  if (!unfinished.system_file.empty()) {
    const auto text = read_text(unfinished.system_file, kMaxChatFileBytes, error);
    if (!text) return "--system-file: " + error;
    options.system = text->substr(0, text->find_last_not_of('\n') + 1);
  }
  const std::string& choice = unfinished.chat_template;
  if (choice.empty() || is_template_name(choice)) {
    options.chat_template = choice;
    return {};
  }
  const auto source = read_text(choice, kMaxChatFileBytes, error);
  if (!source) return "--chat-template: none of " + template_names() + ", and " + error;
  if (source->find('{') == std::string::npos) {
    return "--chat-template: " + choice + ": no Jinja template: it writes no message";
  }
  options.chat_template = *source;
  return {};
}

std::optional<qsf_logit_bias> parse_logit_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return std::nullopt;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  qsf_logit_bias entry = {};
  const auto id = std::from_chars(begin, begin + equals, entry.token);
  const char* number = begin + equals + 1;
  if (number != end && *number == '+') ++number;
  const auto bias = std::from_chars(number, end, entry.bias);
  const bool parsed =
      id.ec == std::errc() && id.ptr == begin + equals && bias.ec == std::errc() && bias.ptr == end;
  const bool in_range = entry.token >= 0 && !std::isnan(entry.bias) &&
                        entry.bias < std::numeric_limits<float>::infinity();
  if (!parsed || !in_range) return std::nullopt;
  return entry;
}

}  // namespace

std::optional<int> parse_run_options(int argc, const char* const* argv, RunOptions& options) {
  Unfinished unfinished;
  CLI::App app(kDescription, kRunTool);
  app.set_version_flag("--version", std::string(kRunTool) + " " + qsf_version());
  add_text_options(app, options);
  add_chat_options(app, options, unfinished);
  add_session_options(app, options);
  add_sampling_options(app, options, unfinished);
  add_engine_options(app, options, unfinished);
  if (const std::optional<int> exit_code = parse_command_line(app, argc, argv)) return exit_code;

  const auto refuse = [](const std::string& message) {
    print_error(kRunTool, message);
    return kUsage;
  };
  if (const std::string message = not_built(unfinished); !message.empty()) return refuse(message);
  for (const std::string& text : unfinished.logit_bias) {
    const std::optional<qsf_logit_bias> entry = parse_logit_bias(text);
    if (!entry) {
      return refuse("--logit-bias: '" + text + "', expected ID=F: a token id, a number or -inf");
    }
    options.logit_bias.push_back(*entry);
  }
  for (const std::string& text : options.stop) {
    if (text.empty()) return refuse("--stop: empty, expected a text to stop at");
  }
  if (const std::string message = check_combination(options, unfinished); !message.empty()) {
    return refuse(message);
  }
  if (const std::string message = check_kv_policy(options.kv_policy); !message.empty()) {
    return refuse(message);
  }
  if (const std::string message = check_attention(options.attention); !message.empty()) {
    return refuse(message);
  }
  options.read_path = read_path_of(unfinished.read_path);
  if (const std::string message = read_chat_files(unfinished, options); !message.empty()) {
    print_error(kRunTool, message);
    return kFailure;
  }
  return std::nullopt;
}

}  // namespace qsf_tools
