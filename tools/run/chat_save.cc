// SPDX-License-Identifier: MIT
//
// Saving a chat; see chat_save.h.

#include "tools/run/chat_save.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

// Returns text as a string of JSON.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n_written = ::write(fd, text.data(), text.size());
    if (n_written < 0 && errno == EINTR) continue;
    if (n_written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n_written));
  }
  return ::fsync(fd) == 0;
}

}  // namespace

std::vector<ChatEntry> messages_of(const QSFChat* chat) {
  std::vector<ChatEntry> messages;
  qsf_chat_info info = {};
  info.struct_size = sizeof info;
  if (qsf_chat_get_info(chat, &info, nullptr) != QSF_OK) return messages;
  for (int i = 0; i < info.n_messages; ++i) {
    const char* role = nullptr;
    char* content = nullptr;
    if (qsf_chat_get_message(chat, i, &role, &content, nullptr) != QSF_OK) break;
    messages.push_back({.role = role, .content = content});
    qsf_string_free(content);
  }
  return messages;
}

bool save_messages(const std::string& path, const std::vector<ChatEntry>& messages, bool overwrite,
                   std::string& error) {
  struct stat about = {};
  if (!overwrite && ::lstat(path.c_str(), &about) == 0) {
    error = path + ": exists; /save! writes over it";
    return false;
  }
  if (::stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    error = path + ": is no regular file, so it is not replaced";
    return false;
  }
  std::string text = "{\n  \"messages\": [";
  for (const ChatEntry& message : messages) {
    text += text.ends_with('[') ? "\n" : ",\n";
    text += "    {\n      \"role\": " + quoted(message.role) +
            ",\n      \"content\": " + quoted(message.content) + "\n    }";
  }
  text += messages.empty() ? "]\n}\n" : "\n  ]\n}\n";

  const std::string temporary = path + ".tmp" + std::to_string(::getpid());
  const auto fail = [&] {
    error = path + ": " + std::strerror(errno);
    return false;
  };
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return fail();
  const bool written = write_all(fd, text);
  const int write_error = errno;
  ::close(fd);
  errno = write_error;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  fail();
  ::unlink(temporary.c_str());
  return false;
}

}  // namespace qsf_tools
