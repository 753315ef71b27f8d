// SPDX-License-Identifier: MIT

#include "tools/run/run_options.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "tools/common/console.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr std::size_t kMaxChatFileBytes = 16'000'000;
constexpr std::size_t kMaxGrammarFileBytes = 256 << 10;  // as the library takes them
constexpr const char* kSamplingGroup = "Sampling";

// Values as they were typed.
struct Typed {
  std::optional<std::string> model_option;
  std::optional<std::string> prompt_argument;
  std::vector<std::string> logit_bias;
  std::string chat_template;
  std::string system_file;
  std::string grammar_file;
  std::string schema_file;
};

constexpr const char* kRunDescription =
    "Completes a prompt with a model, or chats with it, and streams the text to standard output.\n"
    "Without MODEL it runs the bundled model, which tells a story where there is no prompt.\n"
    "On a terminal, MODEL without a prompt opens a chat if the model has a chat template.\n"
    "Statistics and warnings go to standard error. Ctrl-C ends the text.";

constexpr const char* kChatDescription =
    "Chats with a model: a line is a message, and /help lists the commands.\n"
    "Ctrl-C stops an answer and Ctrl-D leaves. Without MODEL it runs the bundled model.\n"
    "Where standard input is no terminal, its lines are the messages.";

constexpr const char* kModelHelp =
    "Model file (.qsf), GGUF file (.gguf) or Hugging Face folder; the last two are converted once "
    "into a cache, see qsf cache --help";

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

std::string check_file_name(const std::string& path) {
  return path.empty() ? "expected the name of a file" : "";
}

void add_prompt_options(OptionParser& parser, RunOptions& options, Typed& typed) {
  constexpr const char* kGroup = "Prompt";
  parser.value("PROMPT", typed.prompt_argument, "Text to complete, as with --prompt").type_name("");
  parser.value("-p,--prompt", options.prompt, "Text to complete").group(kGroup);
  parser
      .value("--prompt-file", options.prompt_file,
             "Read the prompt from a file, byte for byte; - for standard input")
      .type_name("FILE")
      .group(kGroup);
  parser.flag("--no-echo", options.no_echo, "Leave the prompt out of the output").group(kGroup);
}

void add_model_options(OptionParser& parser, RunOptions& options, Typed& typed) {
  parser
      .value("-m,--model", typed.model_option, "Model (.qsf file, .gguf file or folder), as MODEL")
      .type_name("MODEL");
  add_i2s_layout_option(parser, options.i2s_layout);
  add_cache_options(parser, options.cache);
}

void add_text_options(OptionParser& parser, RunOptions& options) {
  parser
      .value("-n,--max-tokens", options.max_tokens,
             "Tokens to generate, at most; 0 for none; default: 256, in a chat the rest of the "
             "context")
      .integer_in(0, kMaxInt);
  parser.value("--stop", options.stop, "End before this text; may be given several times");
  parser
      .value("--session-save", options.session_save,
             "Write the session to FILE at the end: tokens or chat, and the KV cache")
      .type_name("FILE")
      .check(check_file_name);
  parser
      .value("--session-load", options.session_load,
             "Continue a saved session; needs the same model, KV types, KV policy and attention")
      .type_name("FILE")
      .check(check_file_name);
}

void add_log_prob_options(OptionParser& parser, RunOptions& options) {
  parser
      .value("--logprobs", options.log_probs,
             "Write each generated token to FILE: its id, its log probability before sampling, and "
             "the same of the alternatives, separated by tabs")
      .type_name("FILE")
      .check(check_file_name);
  parser
      .value("--top-logprobs", options.n_top_log_probs,
             "Alternatives in the file of --logprobs: the N likeliest tokens")
      .integer_in(0, 100)
      .show_default();
}

void add_chat_options(OptionParser& parser, RunCommand command, RunOptions& options, Typed& typed) {
  constexpr const char* kGroup = "Chat";
  auto interactive = parser.flag(
      "--interactive", options.interactive,
      "Chat: a line is a message, /help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves");
  if (command == RunCommand::kChat) {
    interactive.hidden();
  } else {
    interactive.group(kGroup);
  }
  parser.value("--system", options.system, "System prompt of the chat").group(kGroup);
  parser.value("--system-file", typed.system_file, "Read the system prompt from a file")
      .type_name("FILE")
      .group(kGroup);
  parser
      .value("--chat-template", typed.chat_template,
             "Chat template to use instead of the model's own: " + template_names() +
                 ", or a file with a Jinja template")
      .type_name("NAME|FILE")
      .group(kGroup);
  parser
      .flag("--no-history", options.no_history,
            "Do not save typed lines in ~/.local/state/qsf/chat_history (or $XDG_STATE_HOME)")
      .group(kGroup);
}

void add_penalty_options(OptionParser& parser, RunOptions& options) {
  qsf_sampling& sampling = options.sampling;
  parser
      .value("--repeat-penalty", sampling.repeat_penalty,
             "Penalty on the last 64 tokens; 1 for none")
      .number_above(0.0, 1e6)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--frequency-penalty", sampling.frequency_penalty,
             "Off the logit for each time that a token occurs in the last 64")
      .number_in(-1e6, 1e6)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--presence-penalty", sampling.presence_penalty,
             "Off the logit of each token that occurs in the last 64")
      .number_in(-1e6, 1e6)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--dry-multiplier", sampling.dry_multiplier,
             "DRY: off the logit of a token that continues a repetition, times the base to the "
             "power of its length; 0 for none")
      .number_in(0.0, 1e6)
      .show_default()
      .group(kSamplingGroup);
  parser.value("--dry-base", sampling.dry_base, "Base of DRY")
      .number_in(1.0, 1e6)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--dry-allowed-length", sampling.dry_allowed_length,
             "Length from which on DRY counts a repetition, in tokens")
      .integer_in(1, 1024)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--dry-window", sampling.dry_window,
             "Newest tokens in which DRY looks for repetitions; -1 for all")
      .integer_in(-1, kMaxInt)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--dry-breaker", options.dry_breakers,
             "Text that ends a repetition; may be given several times; default: newline, colon, "
             "quotation mark, asterisk")
      .group(kSamplingGroup);
}

void add_sampling_options(OptionParser& parser, RunOptions& options, Typed& typed) {
  qsf_sampling& sampling = options.sampling;
  parser
      .value("--temperature", sampling.temperature,
             "Divisor of the logits; 0 always takes the most likely token")
      .number_in(0.0, 1e6)
      .show_default()
      .group(kSamplingGroup);
  parser.value("--top-k", sampling.top_k, "Sample from the K most likely tokens; 0 for all")
      .integer_in(0, kMaxInt)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--top-p", sampling.top_p,
             "Nucleus sampling: sample from the smallest set of tokens with this cumulative "
             "probability")
      .number_above(0.0, 1.0)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--min-p", sampling.min_p,
             "Drop tokens whose probability is below this share of the most likely token's")
      .number_in(0.0, 1.0)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value(
          "--typical-p", sampling.typical_p,
          "Locally typical sampling: sample from the tokens nearest to the expected surprise, up "
          "to this probability; 1 for all")
      .number_above(0.0, 1.0)
      .show_default()
      .group(kSamplingGroup);
  add_penalty_options(parser, options);
  parser
      .value("--xtc-probability", sampling.xtc_probability,
             "XTC: how often a draw drops all likely tokens but the least likely of them; 0 for "
             "never")
      .number_in(0.0, 1.0)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--xtc-threshold", sampling.xtc_threshold,
             "Probability from which on XTC takes a token for likely")
      .number_in(0.0, 1.0)
      .show_default()
      .group(kSamplingGroup);
  parser
      .value("--logit-bias", typed.logit_bias,
             "Add F to the logit of token ID; -inf bans the token; may be given several times")
      .type_name("ID=F")
      .group(kSamplingGroup);
  parser
      .value("--grammar", typed.grammar_file,
             "Write only texts of the GBNF grammar in FILE; a complete text ends")
      .type_name("FILE")
      .check(check_file_name)
      .group(kSamplingGroup);
  parser
      .value("--json-schema", typed.schema_file,
             "Write only JSON values of the JSON Schema in FILE")
      .type_name("FILE")
      .check(check_file_name)
      .group(kSamplingGroup);
  parser
      .value("-s,--seed", options.seed,
             "Seed of the sampler: the same seed gives the same text; default: a random one")
      .group(kSamplingGroup);
}

void add_report_options(OptionParser& parser, RunOptions& options) {
  parser.flag("--verbose", options.verbose,
              "Print the memory plan, the kernels and the time of each step");
  parser.flag("--quiet", options.quiet, "Print no statistics");
  parser.flag("--bench", options.bench,
              "Measure the speed of this model with these options, in place of a text: 512 tokens "
              "of a prompt and 32 generated ones, three times; qsf bench measures more");
}

// MODEL and PROMPT are the first and the second argument; with -m the only one is PROMPT. Returns
// what is wrong, empty for nothing.
std::string assign_arguments(Typed& typed, RunOptions& options) {
  if (typed.model_option) {
    if (options.model && typed.prompt_argument) return "MODEL and --model exclude each other";
    if (options.model) typed.prompt_argument = std::move(options.model);
    options.model = std::move(typed.model_option);
  }
  if (!typed.prompt_argument) return {};
  if (options.prompt) return "PROMPT and --prompt exclude each other";
  options.prompt = std::move(typed.prompt_argument);
  return {};
}

// Returns what is wrong with a combination of options, empty for nothing.
std::string check_combination(const RunOptions& options, const Typed& typed) {
  const bool has_prompt = options.prompt || !options.prompt_file.empty();
  const bool of_chat = !options.system.empty() || !typed.system_file.empty() ||
                       !typed.chat_template.empty() || options.no_history;
  if (options.prompt && !options.prompt_file.empty()) {
    return "--prompt and --prompt-file exclude each other";
  }
  if (options.n_top_log_probs != 0 && options.log_probs.empty()) {
    return "--top-logprobs needs --logprobs";
  }
  if (!typed.grammar_file.empty() && !typed.schema_file.empty()) {
    return "--grammar and --json-schema exclude each other";
  }
  if (options.quiet && options.verbose) return "--quiet and --verbose exclude each other";
  if (!options.system.empty() && !typed.system_file.empty()) {
    return "--system and --system-file exclude each other";
  }
  if (options.interactive && has_prompt) {
    return "--interactive and a prompt exclude each other: type the prompt in the chat";
  }
  if (options.interactive && options.max_tokens == 0) {
    return "--max-tokens: 0, expected at least 1 in a chat";
  }
  if (!options.log_probs.empty() && options.interactive) {
    return "--logprobs writes the tokens of one text, not of a chat";
  }
  if (of_chat && !options.interactive) {
    return "--system, --system-file, --chat-template and --no-history need --interactive";
  }
  if (options.bench) {
    if (!options.engine.draft.empty()) return "--bench excludes --draft: it generates no text";
    const bool has_session = !options.session_load.empty() || !options.session_save.empty();
    if (!has_prompt && !options.interactive && !has_session) return {};
    return "--bench excludes prompts, chats and sessions";
  }
  if (options.model && !has_prompt && !options.interactive && options.session_load.empty()) {
    return "no prompt: give one with --prompt TEXT or --prompt-file FILE, chat with --interactive, "
           "or continue a session with --session-load";
  }
  return {};
}

// Where a user at a terminal names a model and nothing else to do, the model is to chat.
void choose_chat(RunOptions& options) {
  const bool has_prompt = options.prompt || !options.prompt_file.empty();
  if (!options.model || has_prompt || options.interactive || options.bench) return;
  if (!options.session_load.empty()) return;
  if (!is_terminal(StandardStream::kInput) || !is_terminal(StandardStream::kOutput)) return;
  options.interactive = true;
  options.needs_template = true;
}

// Returns what is wrong, empty for nothing.
std::string read_grammar(const Typed& typed, RunOptions& options) {
  const bool is_schema = !typed.schema_file.empty();
  const std::string& path = is_schema ? typed.schema_file : typed.grammar_file;
  if (path.empty()) return {};
  std::string error;
  options.grammar = read_text(path, kMaxGrammarFileBytes, error);
  if (is_schema) options.grammar_kind = QSF_GRAMMAR_JSON_SCHEMA;
  if (options.grammar) return {};
  return (is_schema ? "--json-schema: " : "--grammar: ") + error;
}

// Reads the files that options of a chat name. Returns what is wrong, empty for nothing.
std::string read_chat_files(const Typed& typed, RunOptions& options) {
  std::string error;
  if (!typed.system_file.empty()) {
    const auto text = read_text(typed.system_file, kMaxChatFileBytes, error);
    if (!text) return "--system-file: " + error;
    options.system = text->substr(0, text->find_last_not_of('\n') + 1);
  }
  const std::string& choice = typed.chat_template;
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

qsf_sampling default_sampling() {
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  return sampling;
}

std::optional<int> parse_run_options(RunCommand command, int argc, const char* const* argv,
                                     RunOptions& options) {
  Typed typed;
  const bool is_chat = command == RunCommand::kChat;
  OptionParser parser(is_chat ? kChatDescription : kRunDescription);
  parser.value("MODEL", options.model, kModelHelp).type_name("");
  if (!is_chat) add_prompt_options(parser, options, typed);
  add_model_options(parser, options, typed);
  add_text_options(parser, options);
  if (!is_chat) add_log_prob_options(parser, options);
  add_report_options(parser, options);
  add_chat_options(parser, command, options, typed);
  add_sampling_options(parser, options, typed);
  add_engine_options(parser, options.engine, "Engine");
  if (const std::optional<int> exit_code = parser.parse(argc, argv)) return exit_code;
  options.interactive |= is_chat;

  const auto refuse = [](const std::string& message) {
    print_error(program_name(), message);
    return kUsage;
  };
  for (const std::string& text : typed.logit_bias) {
    const std::optional<qsf_logit_bias> entry = parse_logit_bias(text);
    if (!entry) {
      return refuse("--logit-bias: '" + text + "', expected ID=F: a token id, a number or -inf");
    }
    options.logit_bias.push_back(*entry);
  }
  for (const std::string& text : options.stop) {
    if (text.empty()) return refuse("--stop: empty, expected a text to stop at");
  }
  for (const std::string& text : options.dry_breakers) {
    if (text.empty()) return refuse("--dry-breaker: empty, expected a text");
    options.dry_breaker_texts.push_back(text.c_str());
  }
  std::string message = assign_arguments(typed, options);
  if (options.bench) options.engine.speculate = "off";  // a speed of the model, not of a text
  if (message.empty()) {
    choose_chat(options);
    message = check_combination(options, typed);
    // A wrong path is named before a missing prompt.
    const std::string path_problem =
        message.empty() || !options.model ? "" : check_model_path(*options.model);
    if (!path_problem.empty()) {
      print_error(program_name(), path_problem);
      return kFailure;
    }
  }
  if (message.empty()) message = check_engine_options(options.engine);
  if (message.empty()) message = check_only_adapter(options.engine.adapters);
  if (!message.empty()) return refuse(message);
  message = read_grammar(typed, options);
  if (message.empty()) message = read_chat_files(typed, options);
  if (message.empty()) return std::nullopt;
  print_error(program_name(), message);
  return kFailure;
}

}  // namespace qsf_tools
