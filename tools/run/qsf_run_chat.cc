// SPDX-License-Identifier: MIT
//
// The loop of a chat; see qsf_run_chat.h.

#include "tools/run/qsf_run_chat.h"

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "tools/common/console.h"
#include "tools/common/tool_support.h"
#include "tools/run/chat_input.h"
#include "tools/run/chat_save.h"
#include "tools/run/line_editor.h"
#include "tools/run/run_engine.h"
#include "tools/run/run_output.h"

namespace qsf_tools {

namespace {

constexpr const char* kHelp =
    "/help          show this\n"
    "/clear         begin a new conversation with the same system prompt\n"
    "/system TEXT   change the system prompt; without TEXT show it\n"
    "/save FILE     write the conversation as JSON; /save! also over an existing file\n"
    "/stats         show the size and speed of this chat\n"
    "/quit          leave\n"
    "//...          a message that begins with /\n"
    "A line that ends in \\ goes on in the next one; a line that begins with three quotes begins "
    "a\n"
    "message of several lines, which ends with three quotes. Pasted lines stay one message.\n"
    "Ctrl-C stops an answer, or gives a line up.\n";

// What an answer's callbacks need.
struct Answer {
  TextOutput* output;
  ProgressLine* progress;
  QSFEngine* engine;
  bool to_terminal;
  bool begun;
};

// Shows an answer without the blanks that many models begin one with.
void show_token(int, const char* token_text, void* user_data) {
  auto& answer = *static_cast<Answer*>(user_data);
  std::string_view text = token_text;
  if (!answer.begun) text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
  if (text.empty()) return;
  answer.begun = true;
  answer.progress->clear();
  const bool written =
      answer.to_terminal ? answer.output->write(for_terminal(text)) : answer.output->write(text);
  if (!written) qsf_engine_cancel(answer.engine);
}

void show_progress(std::uint64_t done, std::uint64_t total, void* user_data) {
  const auto& answer = *static_cast<const Answer*>(user_data);
  if (total == 0 || !answer.progress->due()) return;
  answer.progress->show("computing the prompt: " + std::to_string(done * 100 / total) + " %" +
                        memory_now(answer.engine));
}

// What a chat has done so far.
struct Totals {
  int n_answers = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t reused_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t steps = 0;  // from one token to the next
  std::uint64_t dropped_messages = 0;
  std::uint64_t prompt_ns = 0;
  std::uint64_t generate_ns = 0;
};

class ChatLoop {
 public:
  ChatLoop(const RunOptions& options, QSFEngine* engine, QSFGrammar* grammar)
      : options_(options),
        engine_(engine),
        grammar_(grammar),
        seed_(options.seed.value_or(std::random_device{}())) {}

  qsf_code open(qsf_error& error) {
    qsf_chat_options request;
    qsf_chat_options_init(&request);
    request.system = options_.system.data();
    request.system_bytes = options_.system.size();
    if (!options_.chat_template.empty()) request.chat_template = options_.chat_template.c_str();
    QSFChat* chat = nullptr;
    const qsf_code code = qsf_chat_create(engine_, &request, &chat, &error);
    chat_.reset(chat);
    if (code != QSF_OK || options_.session_load.empty()) return code;
    const qsf_code loaded = qsf_chat_load(chat, options_.session_load.c_str(), &error);
    if (loaded != QSF_OK || options_.system.empty()) return loaded;
    return qsf_chat_set_system(chat, options_.system.data(), options_.system.size(), &error);
  }

  int run(const std::string& model);

  bool has_template() const { return std::string_view(info().template_name) != "plain"; }

 private:
  int read_lines();
  int end();
  void greet(const std::string& model) const;
  bool take_line(const std::string& line);
  bool command(std::string_view line);
  void say(const std::string& text);
  qsf_code send(const std::string& text, qsf_chat_result& result, qsf_error& error);
  void report_turn(const qsf_chat_result& result);
  void change_system(std::string_view text);
  void save(std::string_view path, bool overwrite);
  void show_stats() const;
  qsf_chat_info info() const {
    qsf_chat_info info = {};
    info.struct_size = sizeof info;
    qsf_chat_get_info(chat_.get(), &info, nullptr);
    return info;
  }
  // Tells something about the chat that is no error.
  void notice(const std::string& text) const {
    if (!options_.quiet) print_error(program_name(), text);
  }

  const RunOptions& options_;
  QSFEngine* engine_;
  QSFGrammar* grammar_;  // of every answer, or null
  ChatPtr chat_;
  ChatInterrupt interrupt_;
  TextOutput output_;
  MessageBuilder message_;
  Totals totals_;
  std::uint64_t seed_;
  bool terminal_ = is_terminal(StandardStream::kInput);
  bool failed_ = false;  // some message had no answer
};

int ChatLoop::run(const std::string& model) {
  greet(model);
  const int code = read_lines();
  const int saved = end();
  return code == kSuccess ? saved : code;
}

// Does what --session-save asks for, also when standard input or output failed.
int ChatLoop::end() {
  if (options_.session_save.empty()) return kSuccess;
  const std::vector<ChatEntry> messages = messages_of(chat_.get());
  if (messages.empty() || messages.back().role == "system") {
    notice("nothing was said, so no session is saved");
    return kSuccess;
  }
  qsf_error error = {};
  const Stopwatch saving;
  if (qsf_chat_save(chat_.get(), options_.session_save.c_str(), &error) != QSF_OK) {
    return report(error);
  }
  tell_saved(options_, static_cast<std::size_t>(info().context_tokens), saving.seconds());
  return kSuccess;
}

int ChatLoop::read_lines() {
  std::unique_ptr<LineSource> lines;
  if (terminal_) {
    lines = make_line_editor(interrupt_, options_.no_history ? std::string() : history_path());
  }
  if (lines == nullptr) lines = make_plain_lines(interrupt_);
  std::string line;
  for (bool go_on = true; go_on && !output_.failed();) {
    switch (lines->read(message_.open(), line)) {
      case LineSource::Outcome::kLine: go_on = take_line(line); break;
      case LineSource::Outcome::kInterrupted:
        message_.take();
        if (terminal_) std::fprintf(stderr, "(%s or /quit leaves)\n", key_that_leaves());
        go_on = terminal_;
        break;
      case LineSource::Outcome::kEnd:
        if (message_.open()) say(message_.take());
        go_on = false;
        break;
      case LineSource::Outcome::kFailed:
        print_error(program_name(), "standard input: " + line);
        return kFailure;
    }
  }
  if (output_.failed() && !output_.reader_left()) {
    print_error(program_name(), std::string("standard output: ") + output_.reason());
    return kFailure;
  }
  return failed_ && !terminal_ ? kFailure : kSuccess;
}

void ChatLoop::greet(const std::string& model) const {
  const qsf_chat_info about = info();
  if (terminal_) {
    notice(model.substr(model.rfind('/') + 1) + ", context " + std::to_string(about.context) +
           "; /help for help, " + key_that_leaves() + " leaves");
  }
  if (options_.chat_template.empty() && std::string_view(about.template_name) == "plain") {
    notice("the model has no chat template: the chat is written as plain text");
  }
  if (!options_.session_load.empty()) {
    notice("the chat goes on after " + std::to_string(about.n_messages) + " messages, " +
           std::to_string(about.context_tokens) + " tokens");
  }
  if (about.system_merged != 0 && !options_.system.empty()) {
    notice("the chat template has no system prompt: it stands in front of the first message");
  }
}

// Returns false when the chat is to end.
bool ChatLoop::take_line(const std::string& line) {
  std::string_view text = line;
  if (!message_.open()) {
    if (text.find_first_not_of(" \t") == std::string_view::npos) return true;
    if (text.starts_with('/') && !text.starts_with("//")) return command(text);
    if (text.starts_with("//")) text.remove_prefix(1);
  }
  if (message_.add(text)) say(message_.take());
  return true;
}

bool ChatLoop::command(std::string_view line) {
  const std::size_t space = line.find(' ');
  const std::string_view name = line.substr(0, space);
  std::string_view argument = space == std::string_view::npos ? "" : line.substr(space);
  argument.remove_prefix(std::min(argument.find_first_not_of(' '), argument.size()));
  argument = argument.substr(0, argument.find_last_not_of(' ') + 1);
  if (name == "/help") {
    std::fputs(kHelp, stderr);
  } else if (name == "/clear") {
    qsf_chat_clear(chat_.get());
    notice("a new conversation begins");
  } else if (name == "/system") {
    change_system(argument);
  } else if (name == "/save" || name == "/save!") {
    save(argument, name == "/save!");
  } else if (name == "/stats") {
    show_stats();
  } else if (name == "/quit" || name == "/exit") {
    return false;
  } else {
    print_error(program_name(), std::string(name) +
                                    ": no such command; /help lists them, and // begins "
                                    "a message that begins with /");
  }
  return true;
}

void ChatLoop::change_system(std::string_view text) {
  qsf_error error = {};
  if (!text.empty()) {
    if (qsf_chat_set_system(chat_.get(), text.data(), text.size(), &error) != QSF_OK) {
      print_error(program_name(), error.message);
    }
    return;
  }
  const std::vector<ChatEntry> messages = messages_of(chat_.get());
  const bool has_system = !messages.empty() && messages[0].role == "system";
  const std::string shown = has_system ? messages[0].content : "(no system prompt)";
  std::fprintf(stderr, "%s\n", for_terminal(shown).c_str());
}

void ChatLoop::save(std::string_view path, bool overwrite) {
  if (path.empty()) {
    print_error(program_name(), "/save: name a file");
    return;
  }
  std::string error;
  const std::vector<ChatEntry> messages = messages_of(chat_.get());
  if (save_messages(std::string(path), messages, overwrite, error)) {
    notice("saved " + std::to_string(messages.size()) + " messages in " + std::string(path));
  } else {
    print_error(program_name(), "/save: " + error);
  }
}

qsf_code ChatLoop::send(const std::string& text, qsf_chat_result& result, qsf_error& error) {
  const qsf_sampling sampling = make_sampling(options_, grammar_, seed_);
  std::vector<const char*> stops;
  for (const std::string& stop : options_.stop) stops.push_back(stop.c_str());
  ProgressLine progress(program_name(), !options_.quiet);
  Answer answer{.output = &output_,
                .progress = &progress,
                .engine = engine_,
                .to_terminal = is_terminal(StandardStream::kOutput),
                .begun = false};
  qsf_chat_send_options request;
  qsf_chat_send_options_init(&request);
  request.max_tokens = options_.max_tokens.value_or(request.max_tokens);
  request.sampling = &sampling;
  request.stop = stops.data();
  request.n_stop = stops.size();
  request.on_token = show_token;
  request.on_prompt = show_progress;
  request.user_data = &answer;
  for (;;) {
    interrupt_.begin_answer(engine_);
    const qsf_code code =
        qsf_chat_send(chat_.get(), text.data(), text.size(), &request, &result, &error);
    const bool interrupted = interrupt_.end_answer();
    // A Ctrl-C that came just as the answer before this one ended is not meant for this one.
    const bool stale = code == QSF_OK && result.reason == QSF_STOP_CANCELLED &&
                       result.generated_tokens == 0 && !interrupted && !output_.failed();
    if (!stale) return code;
  }
}

void ChatLoop::say(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return;
  if (totals_.n_answers > 0 && !terminal_) output_.write("\n");
  qsf_error error = {};
  qsf_chat_result result = {};
  result.struct_size = sizeof result;
  const qsf_code code = send(text, result, error);
  output_.end_line();
  if (code != QSF_OK) {
    print_error(program_name(), error.message);
    failed_ = true;
    return;
  }
  if (terminal_) output_.write("\n");
  report_turn(result);
  ++seed_;  // the same message said again may get another answer
}

void ChatLoop::report_turn(const qsf_chat_result& result) {
  ++totals_.n_answers;
  totals_.prompt_tokens += static_cast<std::uint64_t>(result.prompt_tokens);
  totals_.reused_tokens += static_cast<std::uint64_t>(result.reused_tokens);
  totals_.generated_tokens += static_cast<std::uint64_t>(result.generated_tokens);
  if (result.generated_tokens > 0) {
    totals_.steps += static_cast<std::uint64_t>(result.generated_tokens - 1);
  }
  totals_.dropped_messages += static_cast<std::uint64_t>(result.dropped_messages);
  totals_.prompt_ns += result.prompt_ns;
  totals_.generate_ns += result.generate_ns;

  // These change the context of the model, so they are printed with --quiet too.
  if (result.dropped_messages > 0) {
    print_error(program_name(), "the context was full: the oldest " +
                                    std::to_string(result.dropped_messages) +
                                    " messages were dropped before this answer");
  }
  if (result.reason == QSF_STOP_CONTEXT_FULL) {
    print_error(program_name(),
                "the context is full, so the answer ends here; before the next one the "
                "oldest messages are dropped");
  }
  if (result.generated_tokens == 0) {
    notice(result.reason == QSF_STOP_CANCELLED
               ? "stopped before the answer began: the message is taken back"
               : "the model ended its answer at once");
  }
  if (options_.verbose) {
    print_answer(result);
  }
}

void ChatLoop::show_stats() const {
  const qsf_chat_info about = info();
  std::fprintf(stderr,
               "%d messages; context %d of %d tokens; template: %s\n"
               "%d answers of %" PRIu64
               " tokens, %.1f tokens/s\n"
               "prompts: %" PRIu64 " tokens computed, %.1f tokens/s; %" PRIu64
               " kept from turn to turn; %" PRIu64 " messages dropped\n",
               about.n_messages, about.context_tokens, about.context, about.template_name,
               totals_.n_answers, totals_.generated_tokens,
               per_second(totals_.steps, totals_.generate_ns), totals_.prompt_tokens,
               per_second(totals_.prompt_tokens, totals_.prompt_ns), totals_.reused_tokens,
               totals_.dropped_messages);
  print_drafts(engine_);
  print_memory(engine_);
}

}  // namespace

int run_chat(const RunOptions& options, QSFEngine* engine, QSFGrammar* grammar,
             const std::string& model) {
  qsf_error error = {};
  if (check_logit_bias(options, engine, error) != QSF_OK) return report(error);
  ChatLoop loop(options, engine, grammar);
  if (loop.open(error) != QSF_OK) return report(error);
  if (options.needs_template && options.chat_template.empty() && !loop.has_template()) {
    print_error(program_name(), model +
                                    ": has no chat template, expected a prompt; give one with " +
                                    program_name() + " MODEL \"TEXT\", or chat with --interactive");
    return kUsage;
  }
  return loop.run(model);
}

}  // namespace qsf_tools
