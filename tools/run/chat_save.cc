// SPDX-License-Identifier: MIT
//
// Saving a chat; see chat_save.h.

#include "tools/run/chat_save.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "tools/common/file_path.h"
#include "tools/common/system_files.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

// Returns text as a string of JSON.
std::string json_string(std::string_view text) {
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
  std::error_code ignored;
  if (!overwrite &&
      std::filesystem::exists(std::filesystem::symlink_status(file_path(path), ignored))) {
    error = path + ": exists; /save! writes over it";
    return false;
  }
  const std::optional<FileAbout> about = about_file(path);
  if (about && about->kind != FileKind::kRegular) {
    error = path + ": is no regular file, so it is not replaced";
    return false;
  }
  std::string text = "{\n  \"messages\": [";
  for (const ChatEntry& message : messages) {
    text += text.ends_with('[') ? "\n" : ",\n";
    text += "    {\n      \"role\": " + json_string(message.role) +
            ",\n      \"content\": " + json_string(message.content) + "\n    }";
  }
  text += messages.empty() ? "]\n}\n" : "\n  ]\n}\n";

  const std::string temporary = path + ".tmp" + this_process();
  const bool written = write_new_file(temporary, text);
  if (written && replace_file(temporary, path)) return true;
  const int failure = errno;
  error = path + ": " + std::strerror(failure);
  // What is there of that name and was not written here is another's.
  if (written || failure != EEXIST) remove_file(temporary);
  return false;
}

}  // namespace qsf_tools
