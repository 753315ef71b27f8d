// SPDX-License-Identifier: MIT
//
// A chat's messages as JSON in a file.

#ifndef QSF_TOOLS_RUN_CHAT_SAVE_H_
#define QSF_TOOLS_RUN_CHAT_SAVE_H_

#include <string>
#include <vector>

#include "qsf/qsf.h"

namespace qsf_tools {

struct ChatEntry {
  std::string role;
  std::string content;
};

// Returns the messages of a chat, the system message first.
std::vector<ChatEntry> messages_of(const QSFChat* chat);

// Writes {"messages": [{"role": ..., "content": ...}, ...]} under a temporary name that becomes
// `path` when it is complete. Returns false with the reason in `error`, also when the file exists
// and `overwrite` is not set.
bool save_messages(const std::string& path, const std::vector<ChatEntry>& messages, bool overwrite,
                   std::string& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_CHAT_SAVE_H_
