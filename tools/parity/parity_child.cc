// SPDX-License-Identifier: MIT

#include "tools/parity/parity_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/clock.h"
#include "tools/common/posix_calls.h"
#include "tools/common/tool_support.h"
#include "tools/parity/parity_json.h"

extern char** environ;

namespace qsf_tools {
namespace {

constexpr std::size_t kErrorBytes = 600;  // of standard error that a message quotes
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  int take(int end) {
    const int handle = ends[end];
    ends[end] = -1;
    return handle;
  }
};

void close_handle(int& handle) {
  if (handle >= 0) ::close(handle);
  handle = -1;
}

}  // namespace

ChildProcess::ChildProcess(std::string name, pid_t pid, int in, int out, int err) noexcept
    : name_(std::move(name)), pid_(pid), in_(in), out_(out), err_(err) {
  for (const int handle : {in_, out_, err_}) ::fcntl(handle, F_SETFL, O_NONBLOCK);
}

qsf::Result<std::unique_ptr<ChildProcess>> ChildProcess::start(
    const std::vector<std::string>& arguments) {
  Pipe to_child;
  Pipe from_child;
  Pipe errors;
  for (Pipe* pipe : {&to_child, &from_child, &errors}) {
    if (!open_pipe(pipe->ends)) return qsf::io_error("pipe: %s", std::strerror(errno));
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child.ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // SIGPIPE is ignored here, and a child would inherit that.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int failure = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    return qsf::io_error("%s: cannot be run: %s", argv[0], std::strerror(failure));
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(arguments[0], pid, to_child.take(1), from_child.take(0), errors.take(0)));
}

ChildProcess::~ChildProcess() {
  close_handle(in_);
  close_handle(out_);
  if (!reap(qsf::monotonic_ns() + kNsPerSecond)) {
    ::kill(-pid_, SIGKILL);
    reap(UINT64_MAX);
  }
  close_handle(err_);
}

bool ChildProcess::reap(std::uint64_t deadline_ns) {
  while (!reaped_) {
    const pid_t ended = ::waitpid(pid_, &exit_status_, deadline_ns == UINT64_MAX ? 0 : WNOHANG);
    reaped_ = ended == pid_ || (ended < 0 && errno != EINTR);
    if (reaped_ || qsf::monotonic_ns() >= deadline_ns) break;
    ::poll(nullptr, 0, 5);
  }
  return reaped_;
}

void ChildProcess::drain_errors() {
  char part[4096];
  for (;;) {
    const ssize_t n = err_ < 0 ? 0 : ::read(err_, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) close_handle(err_);
    if (n <= 0) return;
    errors_.append(part, static_cast<std::size_t>(n));
    if (errors_.size() > 16 * kErrorBytes) errors_.erase(0, errors_.size() - kErrorBytes);
  }
}

std::string ChildProcess::last_words() {
  drain_errors();
  std::string text =
      errors_.size() <= kErrorBytes ? errors_ : errors_.substr(errors_.size() - kErrorBytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.empty() ? "" : "; it said: " + text;
}

// Says what became of a child that closed a pipe too early.
qsf::Status ChildProcess::gone() {
  const bool ended = reap(qsf::monotonic_ns() + kNsPerSecond);
  if (ended && WIFSIGNALED(exit_status_)) {
    return qsf::io_error("%s: died of signal %d%s", name_.c_str(), WTERMSIG(exit_status_),
                         last_words().c_str());
  }
  if (ended && WIFEXITED(exit_status_)) {
    return qsf::io_error("%s: ended with exit code %d before it had answered%s", name_.c_str(),
                         WEXITSTATUS(exit_status_), last_words().c_str());
  }
  return qsf::io_error("%s: closed its output before it had answered%s", name_.c_str(),
                       last_words().c_str());
}

qsf::Status ChildProcess::wait_for(int handle, short events, std::uint64_t deadline_ns) {
  for (;;) {
    const std::uint64_t now = qsf::monotonic_ns();
    if (now >= deadline_ns) {
      return qsf::io_error("%s: no answer in time; raise --timeout if it needs longer%s",
                           name_.c_str(), last_words().c_str());
    }
    pollfd waits[2] = {{handle, events, 0}, {err_, POLLIN, 0}};
    const std::uint64_t left_ms = (deadline_ns - now) / 1'000'000 + 1;
    const int n = ::poll(waits, err_ >= 0 ? 2 : 1,
                         static_cast<int>(std::min<std::uint64_t>(left_ms, 1U << 30)));
    if (n < 0 && errno != EINTR) return qsf::io_error("poll: %s", std::strerror(errno));
    if (n <= 0) continue;
    if (err_ >= 0 && waits[1].revents != 0) drain_errors();
    if (waits[0].revents != 0) return qsf::ok_status();
  }
}

qsf::Status ChildProcess::write(std::span<const char> bytes, std::uint64_t deadline_ns) {
  while (!bytes.empty()) {
    QSF_RETURN_IF_ERROR(wait_for(in_, POLLOUT, deadline_ns));
    const ssize_t n = ::write(in_, bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return gone();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return qsf::ok_status();
}

qsf::Status ChildProcess::read(std::span<char> bytes, std::uint64_t deadline_ns) {
  while (!bytes.empty()) {
    QSF_RETURN_IF_ERROR(wait_for(out_, POLLIN, deadline_ns));
    const ssize_t n = ::read(out_, bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return gone();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return qsf::ok_status();
}

namespace {

constexpr std::uint32_t kMagic = 0x50465351;  // "QSFP"
constexpr std::uint32_t kProtocol = 1;
enum Kind : std::uint32_t {
  kHello = 1,
  kTokenize = 2,
  kTokens = 3,
  kEvaluate = 4,
  kLogits = 5,
  kRefusal = 6,
  kPoint = 7
};
constexpr std::uint64_t kMaxTextBytes = 1U << 20;    // of a hello or a refusal
constexpr std::uint64_t kMaxTokensBytes = 1U << 28;  // ids of a text
constexpr std::uint32_t kMaxVocab = 1U << 24;
constexpr std::uint64_t kMaxPointBytes = 1U << 30;
constexpr std::size_t kPointHeadBytes = 16;
constexpr std::size_t kMaxNameBytes = 64;  // of a point
constexpr std::int32_t kMaxLayer = 1 << 16;

struct Header {
  std::uint32_t magic;
  std::uint32_t kind;
  std::uint64_t bytes;
};
static_assert(sizeof(Header) == 16);

void append_u32(std::string& to, std::uint32_t value) {
  char bytes[4];
  std::memcpy(bytes, &value, sizeof bytes);
  to.append(bytes, sizeof bytes);
}

std::uint32_t u32_at(const std::string& from, std::size_t offset) {
  std::uint32_t value = 0;
  std::memcpy(&value, from.data() + offset, sizeof value);
  return value;
}

const char* kind_name(std::uint32_t kind) {
  switch (kind) {
    case kHello: return "hello";
    case kTokens: return "tokens";
    case kLogits: return "logits";
    case kPoint: return "a point";
    default: return "no known message";
  }
}

}  // namespace

ChildSource::ChildSource(ChildOptions options, std::unique_ptr<ChildProcess> process)
    : options_(std::move(options)), process_(std::move(process)) {}

qsf::Result<std::unique_ptr<ChildSource>> ChildSource::start(const ChildOptions& options) {
  std::vector<std::string> command = {options.program, options.model,
                                      "--context",     std::to_string(options.context),
                                      "--threads",     std::to_string(options.n_threads),
                                      "--kv-type",     options.kv_type};
  if (options.trace) command.insert(command.end(), {"--trace", "1"});
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::start(command));
  std::unique_ptr<ChildSource> source(new ChildSource(options, std::move(process)));
  QSF_RETURN_IF_ERROR(source->hear_hello());
  return source;
}

std::uint64_t ChildSource::deadline() const {
  return qsf::monotonic_ns() + static_cast<std::uint64_t>(options_.timeout_seconds * 1e9);
}

qsf::Status ChildSource::send(std::uint32_t kind, const std::string& payload) {
  const Header header = {kMagic, kind, payload.size()};
  const std::uint64_t by = deadline();
  QSF_RETURN_IF_ERROR(process_->write({reinterpret_cast<const char*>(&header), sizeof header}, by));
  return process_->write(payload, by);
}

qsf::Result<ChildSource::Message> ChildSource::receive_any(std::uint32_t kind,
                                                           std::uint64_t max_bytes, bool points) {
  const char* const name = options_.program.c_str();
  const std::uint64_t by = deadline();
  Header header = {};
  QSF_RETURN_IF_ERROR(process_->read({reinterpret_cast<char*>(&header), sizeof header}, by));
  if (header.magic != kMagic) {
    return qsf::corrupt("%s: its answer begins with 0x%08x, expected a message of the protocol",
                        name, header.magic);
  }
  const bool refusal = header.kind == kRefusal;
  const bool point = points && header.kind == kPoint;
  const std::uint64_t most = refusal ? kMaxTextBytes : point ? kMaxPointBytes : max_bytes;
  if (header.bytes > most || (!refusal && !point && header.kind != kind)) {
    return qsf::corrupt("%s: message of kind %u and %llu bytes, expected %s of at most %llu bytes",
                        name, header.kind, static_cast<unsigned long long>(header.bytes),
                        kind_name(kind), static_cast<unsigned long long>(most));
  }
  Message message = {header.kind, std::string(static_cast<std::size_t>(header.bytes), '\0')};
  QSF_RETURN_IF_ERROR(process_->read(message.payload, by));
  if (refusal) {
    return qsf::unsupported("%s: %s%s", name, valid_utf8(message.payload).c_str(),
                            process_->last_words().c_str());
  }
  return message;
}

qsf::Result<std::string> ChildSource::receive(std::uint32_t kind, std::uint64_t max_bytes) {
  QSF_ASSIGN_OR_RETURN(Message message, receive_any(kind, max_bytes, false));
  return std::move(message.payload);
}

qsf::Status ChildSource::hear_hello() {
  QSF_ASSIGN_OR_RETURN(const std::string text, receive(kHello, kMaxTextBytes));
  const std::optional<ChildHello> hello = parse_hello(text);
  const char* const name = options_.program.c_str();
  if (!hello) return qsf::corrupt("%s: its hello is not a JSON object", name);
  if (hello->protocol != kProtocol) {
    return qsf::unsupported("%s: speaks protocol %llu, expected %u; build it again", name,
                            static_cast<unsigned long long>(hello->protocol), kProtocol);
  }
  if (hello->n_vocab == 0 || hello->n_vocab > kMaxVocab) {
    return qsf::corrupt("%s: its hello has no n_vocab from 1 to %u", name, kMaxVocab);
  }
  n_vocab_ = static_cast<std::uint32_t>(hello->n_vocab);
  if (options_.trace && !hello->trace) {
    return qsf::unsupported("%s: cannot trace; build it again with build_parity_shim", name);
  }
  described_.kind = "child";
  described_.name = hello->name;
  described_.n_vocab = n_vocab_;
  described_.kv_type = hello->kv_type;
  described_.program = options_.program;
  described_.commit = hello->commit;
  described_.system = hello->system;
  described_.timeout_seconds = options_.timeout_seconds;
  return qsf::ok_status();
}

qsf::Result<std::vector<std::uint32_t>> ChildSource::tokenize(const std::string& text,
                                                              bool parse_special) {
  std::string payload;
  append_u32(payload, parse_special ? 1 : 0);
  payload += text;
  QSF_RETURN_IF_ERROR(send(kTokenize, payload));
  QSF_ASSIGN_OR_RETURN(const std::string answer, receive(kTokens, kMaxTokensBytes));
  if (answer.size() % 4 != 0) {
    return qsf::corrupt("%s: tokens of %zu bytes, expected a multiple of 4",
                        options_.program.c_str(), answer.size());
  }
  std::vector<std::uint32_t> tokens(answer.size() / 4);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = u32_at(answer, 4 * i);
  return tokens;
}

// A name that a matrix has twice, before and after its bias, is that of the last: it replaces what
// was taken before.
qsf::Status ChildSource::add_point(const std::string& message, std::size_t n_rows) {
  const char* const program = options_.program.c_str();
  const bool has_head = message.size() >= kPointHeadBytes;
  const std::uint32_t n_name_bytes = has_head ? u32_at(message, 12) : 0;
  TracePoint point = {.pass = pass_};
  if (has_head) {
    point.layer = static_cast<std::int32_t>(u32_at(message, 0));
    point.n_rows = u32_at(message, 4);
    point.n_cols = u32_at(message, 8);
  }
  const std::uint64_t n_values = std::uint64_t{point.n_rows} * point.n_cols;
  if (n_name_bytes == 0 || n_name_bytes > kMaxNameBytes || point.layer < -1 ||
      point.layer > kMaxLayer || point.n_rows != n_rows || point.n_cols == 0 ||
      n_values > kMaxPointBytes / sizeof(float) ||
      message.size() != kPointHeadBytes + n_name_bytes + n_values * sizeof(float)) {
    return qsf::corrupt(
        "%s: a point of %zu bytes, layer %d, %u rows of %u and a name of %u bytes; expected %zu "
        "rows",
        program, message.size(), point.layer, point.n_rows, point.n_cols, n_name_bytes, n_rows);
  }
  point.name = valid_utf8(message.substr(kPointHeadBytes, n_name_bytes));
  std::vector<float> row(point.n_cols);
  TracePointSum sum;
  for (std::size_t i = 0; i < n_rows; ++i) {
    const std::size_t row_bytes = row.size() * sizeof(float);
    std::memcpy(row.data(), message.data() + kPointHeadBytes + n_name_bytes + i * row_bytes,
                row_bytes);
    sum.add(row);
  }
  sum.finish(point);
  const auto same = std::find_if(points_.begin(), points_.end(), [&](const TracePoint& other) {
    return other.pass == point.pass && other.layer == point.layer && other.name == point.name;
  });
  if (same != points_.end()) {
    *same = std::move(point);
  } else {
    points_.push_back(std::move(point));
  }
  return qsf::ok_status();
}

qsf::Status ChildSource::evaluate(std::span<const std::uint32_t> tokens, bool,
                                  std::span<float> logits) {
  std::string payload;
  append_u32(payload, n_past_);
  append_u32(payload, static_cast<std::uint32_t>(tokens.size()));
  for (const std::uint32_t token : tokens) append_u32(payload, token);
  QSF_RETURN_IF_ERROR(send(kEvaluate, payload));
  const std::size_t row_bytes = std::size_t{n_vocab_} * sizeof(float);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    QSF_ASSIGN_OR_RETURN(Message message, receive_any(kLogits, 8 + row_bytes, options_.trace));
    while (message.kind == kPoint) {
      QSF_RETURN_IF_ERROR(add_point(message.payload, tokens.size()));
      QSF_ASSIGN_OR_RETURN(message, receive_any(kLogits, 8 + row_bytes, true));
    }
    const std::string& answer = message.payload;
    if (answer.size() != 8 + row_bytes || u32_at(answer, 0) != row ||
        u32_at(answer, 4) != n_vocab_) {
      return qsf::corrupt(
          "%s: logits of %zu bytes, row %u of %u tokens; expected %zu bytes, row %zu of %u tokens",
          options_.program.c_str(), answer.size(), answer.size() >= 8 ? u32_at(answer, 0) : 0,
          answer.size() >= 8 ? u32_at(answer, 4) : 0, 8 + row_bytes, row, n_vocab_);
    }
    std::memcpy(logits.data() + row * n_vocab_, answer.data() + 8, row_bytes);
  }
  n_past_ += static_cast<std::uint32_t>(tokens.size());
  ++pass_;
  return qsf::ok_status();
}

SourceDescription ChildSource::describe() const {
  return described_;
}

}  // namespace qsf_tools
