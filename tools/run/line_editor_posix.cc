// SPDX-License-Identifier: MIT
//
// libedit at work; see line_editor.h.
//
// Characters are read and decoded here and not by libedit: so that Ctrl-C gives the line up without
// ending anything, and text is UTF-8 whatever the locale. libedit draws through the locale; where
// that is not UTF-8, C.UTF-8 takes its place.

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/run/line_editor.h"

namespace qsf_tools {

namespace {

constexpr int kHistoryLines = 1000;
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// What people expect beside libedit's own keys.
struct Binding {
  const wchar_t* keys;
  const wchar_t* command;
};
constexpr Binding kBindings[] = {
    {L"\\033[200~", L"qsf-paste"},    {L"^R", L"em-inc-search-prev"},
    {L"^W", L"ed-delete-prev-word"},  {L"\\033[3~", L"ed-delete-next-char"},
    {L"\\033[H", L"ed-move-to-beg"},  {L"\\033[F", L"ed-move-to-end"},
    {L"\\033[1~", L"ed-move-to-beg"}, {L"\\033[4~", L"ed-move-to-end"},
    {L"\\033[1;5D", L"ed-prev-word"}, {L"\\033[1;5C", L"em-next-word"},
};

void append_utf8(std::string& text, wchar_t wide) {
  const auto c = static_cast<unsigned>(wide);
  const auto more = [&](unsigned shift) {
    text += static_cast<char>(0x80U | ((c >> shift) & 0x3FU));
  };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0U | (c >> 6U));
    more(0);
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0U | (c >> 12U));
    more(6);
    more(0);
  } else {
    text += static_cast<char>(0xF0U | (c >> 18U));
    more(12);
    more(6);
    more(0);
  }
}

// The bytes that follow a lead byte; 0 also for what cannot be one.
int n_continuation(unsigned char lead) {
  return lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC2 ? 1 : 0;
}

// The terminal as it was found, which a signal that ends the program gives back: not every shell
// looks after it.
constexpr int kEndings[] = {SIGHUP, SIGQUIT, SIGTERM};
constexpr std::string_view kPastesAsTyped = "\033[?2004l";
termios g_found;
int g_marking_fd = -1;  // the terminal that marks what is pasted, -1 for none

void give_terminal_back(int number) {
  // In the background it is another program's.
  if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &g_found);
    static_cast<void>(!::write(g_marking_fd, kPastesAsTyped.data(), kPastesAsTyped.size()));
  }
  std::raise(number);  // comes when this handler returns, and ends the program
}

void keep_terminal(int marking_fd) {
  if (::tcgetattr(STDIN_FILENO, &g_found) != 0) return;
  g_marking_fd = marking_fd;
  struct sigaction action = {};
  action.sa_handler = give_terminal_back;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : kEndings) {
    struct sigaction before = {};
    const bool known = sigaction(number, nullptr, &before) == 0;
    if (known && before.sa_handler == SIG_DFL) sigaction(number, &action, nullptr);
  }
}

class LineEditor final : public LineSource {
 public:
  LineEditor(ChatInterrupt& interrupt, const std::string& history)
      : interrupt_(interrupt), history_path_(history) {
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    // Drawn where the answers do not go when these go into a file.
    out_ = ::isatty(STDOUT_FILENO) == 1 ? stdout : stderr;
    const char* terminal = std::getenv("TERM");
    brackets_pastes_ = terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
    keep_terminal(brackets_pastes_ ? ::fileno(out_) : -1);
    editor_ = ::el_init("qsf-run", stdin, out_, stderr);
    history_ = ::history_winit();
    if (ready()) set_up();
  }
  ~LineEditor() override {
    if (history_ != nullptr) ::history_wend(history_);
    if (editor_ != nullptr) ::el_end(editor_);
  }
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool ready() const { return editor_ != nullptr && history_ != nullptr; }

  Outcome read(bool continued, std::string& line) override {
    continued_ = continued;
    stopped_ = Outcome::kLine;
    unread_.reset();
    interrupt_.discard();
    // libedit draws the prompt first and takes the terminal over then: a Ctrl-D in between is lost.
    ::el_wset(editor_, EL_PREP_TERM, 1);
    bracket_pastes(true);
    int n_read = 0;
    const wchar_t* read = ::el_wgets(editor_, &n_read);
    bracket_pastes(false);
    if (read == nullptr || n_read <= 0) {
      if (stopped_ == Outcome::kLine) stopped_ = Outcome::kEnd;  // Ctrl-D on an empty line
      std::fputs(stopped_ == Outcome::kInterrupted ? "^C\n" : "\n", out_);
      std::fflush(out_);
      return stopped_;
    }
    const std::wstring_view wide(read, static_cast<std::size_t>(n_read));
    line.clear();
    for (const wchar_t c : wide.substr(0, wide.find_last_not_of(L"\r\n") + 1)) {
      append_utf8(line, c);
    }
    if (!line.empty()) remember(read);
    return Outcome::kLine;
  }

 private:
  void set_up() {
    HistEventW event;
    ::history_w(history_, &event, H_SETSIZE, kHistoryLines);
    ::history_w(history_, &event, H_SETUNIQUE, 1);
    load_history();
    ::el_wset(editor_, EL_CLIENTDATA, this);
    ::el_wset(editor_, EL_PROMPT, prompt);
    ::el_wset(editor_, EL_EDITOR, L"emacs");
    ::el_wset(editor_, EL_HIST, history_w, history_);
    ::el_wset(editor_, EL_GETCFN, get_character);
    ::el_wset(editor_, EL_ADDFN, L"qsf-paste", L"Insert pasted text", paste);
    for (const Binding& binding : kBindings) {
      ::el_wset(editor_, EL_BIND, binding.keys, binding.command, nullptr);
    }
    ::el_source(editor_, nullptr);  // the user's own ~/.editrc
  }

  static LineEditor& self(EditLine* editor) {
    void* data = nullptr;
    ::el_wget(editor, EL_CLIENTDATA, &data);
    return *static_cast<LineEditor*>(data);
  }

  static wchar_t* prompt(EditLine* editor) {
    static std::array<wchar_t, 8> first = {L"> "};
    static std::array<wchar_t, 8> next = {L"... "};
    return self(editor).continued_ ? next.data() : first.data();
  }

  // Asks the terminal to mark what is pasted, so that its newlines end nothing.
  void bracket_pastes(bool on) {
    if (!brackets_pastes_) return;
    std::fputs(on ? "\033[?2004h" : kPastesAsTyped.data(), out_);
    std::fflush(out_);
  }

  // Waits for a byte. Returns 1, or 0 at the end and -1 when the line is given up.
  int get_byte(unsigned char& byte) {
    if (unread_.has_value()) {
      byte = *std::exchange(unread_, std::nullopt);
      return 1;
    }
    for (;;) {
      switch (interrupt_.wait()) {
        case ChatInterrupt::Wake::kInterrupted:
          stopped_ = Outcome::kInterrupted;
          errno = EINTR;
          return -1;
        case ChatInterrupt::Wake::kRedraw:
          ::el_wset(editor_, EL_PREP_TERM, 1);  // a shell may have reset it in between
          ::el_resize(editor_);
          ::el_wset(editor_, EL_REFRESH);
          continue;
        case ChatInterrupt::Wake::kInput: break;
      }
      const ssize_t n_read = ::read(STDIN_FILENO, &byte, 1);
      if (n_read < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n_read <= 0) stopped_ = Outcome::kEnd;
      return static_cast<int>(n_read);
    }
  }

  static int get_character(EditLine* editor, wchar_t* out) {
    LineEditor& editing = self(editor);
    unsigned char byte = 0;
    if (const int got = editing.get_byte(byte); got != 1) return got;
    const int n_more = n_continuation(byte);
    unsigned c = n_more == 0 ? byte : byte & (0x3FU >> n_more);
    for (int i = 0; i < n_more; ++i) {
      if (const int got = editing.get_byte(byte); got != 1) return got;
      if ((byte & 0xC0U) != 0x80) {  // no UTF-8: what interrupts a character, as Enter, stands
        editing.unread_ = byte;
        *out = 0xFFFD;
        return 1;
      }
      c = c << 6U | (byte & 0x3FU);
    }
    *out = static_cast<wchar_t>(n_more == 0 && byte >= 0x80 ? 0xFFFD : c);
    return 1;
  }

  // Takes everything up to the end of what was pasted into the line, newlines as well.
  static unsigned char paste(EditLine* editor, wint_t) {
    std::wstring text;
    wchar_t c = 0;
    while (!std::wstring_view(text).ends_with(kPasteEnd)) {
      if (::el_wgetc(editor, &c) != 1) return CC_EOF;
      text += c;
    }
    text.resize(text.size() - kPasteEnd.size());
    std::wstring plain;
    for (wchar_t pasted : text) {
      if (pasted == L'\r') pasted = L'\n';
      // No other control character is text; an escape would reach the terminal.
      if (pasted >= L' ' || pasted == L'\n' || pasted == L'\t') plain += pasted;
    }
    while (plain.ends_with(L'\n')) plain.pop_back();
    if (plain.empty()) return CC_REFRESH;
    return ::el_winsertstr(editor, plain.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  void load_history() {
    if (history_path_.empty()) return;
    struct stat about = {};
    if (::stat(history_path_.c_str(), &about) != 0 || about.st_size == 0) return;
    HistEventW event;
    const int n_loaded = ::history_w(history_, &event, H_LOAD, history_path_.c_str());
    if (n_loaded < 0) {
      history_path_.clear();  // not ours to overwrite
    } else if (n_loaded > 2 * kHistoryLines) {
      ::history_w(history_, &event, H_SAVE, history_path_.c_str());
    }
  }

  // Appends to the file at once: a chat that is killed loses nothing, and two at a time mix. Goes
  // through a history of this line alone, since H_NSAVE_FP of libedit 3.1 writes one line too many.
  void remember(const wchar_t* line) {
    HistEventW event;
    ::history_w(history_, &event, H_ENTER, line);
    if (history_path_.empty()) return;
    const int fd = ::open(history_path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    std::FILE* file = ::fdopen(fd, "a");
    HistoryW* alone = ::history_winit();
    if (file != nullptr && alone != nullptr) {
      std::fseek(file, 0, SEEK_END);  // where it is not at 0 there is a head already
      ::history_w(alone, &event, H_SETSIZE, 1);
      ::history_w(alone, &event, H_ENTER, line);
      ::history_w(alone, &event, H_SAVE_FP, file);
    }
    if (alone != nullptr) ::history_wend(alone);
    if (file != nullptr) {
      std::fclose(file);
    } else {
      ::close(fd);
    }
  }

  ChatInterrupt& interrupt_;
  std::string history_path_;
  std::FILE* out_ = nullptr;
  bool brackets_pastes_ = false;
  EditLine* editor_ = nullptr;
  HistoryW* history_ = nullptr;
  std::optional<unsigned char> unread_;  // read, but no part of the character it was read for
  bool continued_ = false;
  Outcome stopped_ = Outcome::kLine;  // why a line ended without one
};

}  // namespace

const char* key_that_leaves() noexcept {
  return "Ctrl-D";
}

std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  struct stat about = {};
  std::string folder;
  if (state != nullptr && state[0] == '/') {
    folder = state;
  } else if (home != nullptr && home[0] == '/' && ::stat(home, &about) == 0) {
    folder = std::string(home) + "/.local/state";  // a home that is missing is not ours to make
  } else {
    return {};
  }
  folder += "/qsf";
  for (std::size_t slash = folder.find('/', 1); slash != std::string::npos;
       slash = folder.find('/', slash + 1)) {
    ::mkdir(folder.substr(0, slash).c_str(), 0700);
  }
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return {};
  return folder + "/chat_history";
}

std::unique_ptr<LineSource> make_line_editor(ChatInterrupt& interrupt, const std::string& history) {
  auto editor = std::make_unique<LineEditor>(interrupt, history);
  if (!editor->ready()) return nullptr;
  return editor;
}

}  // namespace qsf_tools
