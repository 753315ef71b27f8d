// SPDX-License-Identifier: MIT
//
// Any bytes as an answer with calls, in every syntax of chats: taken apart to the same parts whole
// and byte by byte, what calls pass on is JSON, and what is no call is text. Bits of the first byte
// say whether the prompt ended inside of reasoning, and that no tool may be called. Needs
// qsf_serve_syntax.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/syntax/chat_syntax_table.h"
#include "tools/serve/syntax/json_text.h"
#include "tools/serve/syntax/testing/kept_text.h"

namespace {

using qsf_tools::AnswerParser;
using qsf_tools::AnswerPart;

constexpr char kOtherTypes[] = R"({"$defs": {"t": {"type": "string"}}, "properties": {
  "a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {"type": "array"},
  "d": {"type": "object"}, "e": {"$ref": "#/$defs/t"}, "f": {"enum": ["x", 1, null]},
  "h": {"type": "boolean"}, "i": {"type": "number"}, "j": {}}})";

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
  if (n_bytes == 0) return 0;
  const bool starts_in_reasoning = (data[0] & 1) != 0;
  const std::string_view answer(reinterpret_cast<const char*>(data) + 1, n_bytes - 1);
  qsf_tools::ToolUse use;
  if ((data[0] & 2) != 0) use.choice = qsf_tools::ToolChoice::kNone;
  use.tools.push_back({.name = "f", .parameters = R"({"properties": {"a": {"type": "string"}}})"});
  use.tools.push_back({.name = "g", .parameters = kOtherTypes});
  for (const qsf_tools::ChatSyntax& syntax : qsf_tools::chat_syntaxes()) {
    AnswerParser whole(syntax, use, starts_in_reasoning);
    AnswerParser bytes(syntax, use, starts_in_reasoning);
    std::vector<AnswerPart> parts;
    std::vector<AnswerPart> parts_of_bytes;
    whole.push(answer, parts);
    whole.finish(parts);
    for (std::size_t i = 0; i < answer.size(); ++i) bytes.push(answer.substr(i, 1), parts_of_bytes);
    bytes.finish(parts_of_bytes);
    QSF_CHECK(shown(parts) == shown(parts_of_bytes));
    if (syntax.form == qsf_tools::CallForm::kChannels) continue;
    QSF_CHECK(qsf_tools::testing_support::keeps_text(syntax, answer, parts));
  }
  return 0;
}
