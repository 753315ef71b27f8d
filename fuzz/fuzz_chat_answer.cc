// SPDX-License-Identifier: MIT
//
// Any bytes as an answer with calls, in every syntax of chats: taken apart to the same parts whole
// and byte by byte, and what calls pass on is JSON. Needs qsf_serve_syntax.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/syntax/chat_syntax_table.h"
#include "tools/serve/syntax/json_text.h"

namespace {

using qsf_tools::AnswerParser;
using qsf_tools::AnswerPart;

// Texts are told apart by their kind alone: how they are divided depends on the cuts.
std::string shown(const std::vector<AnswerPart>& parts) {
  std::string all;
  AnswerPart::Kind last = AnswerPart::Kind::kToolCall;
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kToolCall) {
      QSF_CHECK(qsf_tools::is_json(part.call.arguments));
      all += "\ncall " + part.call.name + part.call.arguments;
    } else if (part.kind != last) {
      all += part.kind == AnswerPart::Kind::kText ? "\ntext " : "\nreasoning ";
    }
    last = part.kind;
    all += part.text;
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  const std::string_view answer(reinterpret_cast<const char*>(data), n_bytes);
  qsf_tools::ToolUse use;
  use.tools.push_back({.name = "f", .parameters = R"({"properties": {"a": {"type": "string"}}})"});
  for (const qsf_tools::ChatSyntax& syntax : qsf_tools::chat_syntaxes()) {
    AnswerParser whole(syntax, use, /*starts_in_reasoning=*/false);
    AnswerParser bytes(syntax, use, /*starts_in_reasoning=*/false);
    std::vector<AnswerPart> parts;
    std::vector<AnswerPart> parts_of_bytes;
    whole.push(answer, parts);
    whole.finish(parts);
    for (std::size_t i = 0; i < answer.size(); ++i) bytes.push(answer.substr(i, 1), parts_of_bytes);
    bytes.finish(parts_of_bytes);
    QSF_CHECK(shown(parts) == shown(parts_of_bytes));
  }
  return 0;
}
