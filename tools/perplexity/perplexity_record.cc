// SPDX-License-Identifier: MIT

#include "tools/perplexity/perplexity_record.h"

#include <cerrno>
#include <cstring>

namespace qsf_tools {
namespace {

std::string head_of(std::size_t window, std::size_t n_tokens) {
  return "{\"window\": " + std::to_string(window) + ", \"tokens\": " + std::to_string(n_tokens);
}

template <typename T, typename Write>
std::string list_of(const T& values, Write write) {
  std::string text = "[";
  for (const auto& value : values) {
    if (text.size() > 1) text += ", ";
    text += write(value);
  }
  return text + "]";
}

std::string number(int value) {
  return std::to_string(value);
}

// JSON has no infinity and no NaN.
std::string loss_or_null(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6f", value);
  return value - value == 0.0 ? text : "null";
}

}  // namespace

std::string losses_line(std::size_t window, std::span<const int> tokens, std::size_t first,
                        const TokenScores& scores) {
  std::string line = head_of(window, tokens.size()) + ", \"first\": " + std::to_string(first) +
                     ", \"ids\": " + list_of(tokens, number) +
                     ", \"losses\": " + list_of(scores.losses, loss_or_null);
  if (!scores.divergences.empty()) {
    line += ", \"divergences\": " + list_of(scores.divergences, loss_or_null);
  }
  return line + "}";
}

std::string visible_line(std::size_t window, std::size_t n_tokens,
                         const VisiblePositions& visible) {
  const auto head = [](const std::vector<int>& positions) { return list_of(positions, number); };
  const auto layer = [&](const std::vector<std::vector<int>>& heads) {
    return list_of(heads, head);
  };
  return head_of(window, n_tokens) + ", \"visible\": " + list_of(visible, layer) + "}";
}

std::string LineFile::open(const std::string& path) {
  path_ = path;
  file_.reset(std::fopen(path.c_str(), "w"));
  return is_open() ? "" : path + ": " + std::strerror(errno);
}

std::string LineFile::write(const std::string& line) {
  const bool written = std::fputs((line + "\n").c_str(), file_.get()) >= 0;
  return written ? "" : path_ + ": " + std::strerror(errno);
}

std::string LineFile::close() {
  if (!is_open()) return "";
  return std::fclose(file_.release()) == 0 ? "" : path_ + ": " + std::strerror(errno);
}

qsf_code read_visible(QSFSession* session, const qsf_model_info& info, VisiblePositions& visible,
                      qsf_error& error) {
  visible.assign(static_cast<std::size_t>(info.n_layers),
                 std::vector<std::vector<int>>(static_cast<std::size_t>(info.n_kv_heads)));
  for (int layer = 0; layer < info.n_layers; ++layer) {
    for (int head = 0; head < info.n_kv_heads; ++head) {
      std::vector<int>& positions =
          visible[static_cast<std::size_t>(layer)][static_cast<std::size_t>(head)];
      positions.resize(qsf_session_length(session));
      std::size_t n = 0;
      const qsf_code code = qsf_session_visible_positions(session, layer, head, positions.data(),
                                                          positions.size(), &n, &error);
      if (code != QSF_OK) return code;
      positions.resize(n);
    }
  }
  return QSF_OK;
}

}  // namespace qsf_tools
