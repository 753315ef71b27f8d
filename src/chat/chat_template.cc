// SPDX-License-Identifier: MIT

#include "chat/chat_template.h"

#include <utility>

#include "chat/jinja_interpreter.h"
#include "chat/jinja_parser.h"

namespace qsf {

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  auto program = jinja::parse_program(source);
  if (!program) return std::move(program).error().with_context("chat template");
  return ChatTemplate(std::make_unique<const jinja::Program>(std::move(*program)));
}

Result<std::vector<ChatPiece>> ChatTemplate::render(const ChatTemplateInput& input) const {
  auto text = jinja::run_program(*program_, input, jinja::RunLimits());
  if (!text) return std::move(text).error().with_context("chat template");
  std::vector<ChatPiece> pieces;
  std::size_t begin = 0;
  for (const jinja::TrustRun& run : text->runs()) {
    pieces.push_back({text->bytes().substr(begin, run.end - begin), run.trusted});
    begin = run.end;
  }
  return pieces;
}

}  // namespace qsf
