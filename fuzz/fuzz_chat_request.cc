// SPDX-License-Identifier: MIT
//
// Any bytes as the JSON of a request, {"messages": ..., "tools": ..., "variables": ...}, for a
// template of any traits. The first two bytes are the traits. Needs qsf_chat.
//
// What was read is written and read again as the same; no trusted text has a character that no
// template writes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "chat/chat_messages.h"
#include "chat/jinja_interpreter.h"
#include "chat/jinja_json.h"
#include "chat/jinja_parser.h"

namespace {

constexpr std::string_view kTemplate =
    "{{ tools | tojson(indent=2) if tools }}{{ effort }}{{ effort is mapping }}"
    "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m | tojson }}"
    "{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}"
    "{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }}{% endfor %}{% endfor %}"
    "{% endfor %}";

qsf::ChatTemplateTraits read_traits(std::uint8_t low, std::uint8_t high) {
  return {.takes_system = (low & 1) != 0,
          .takes_developer = (low & 2) != 0,
          .takes_text = (low & 4) != 0,
          .takes_parts = (low & 8) != 0,
          .takes_tools = (low & 16) != 0,
          .needs_tool_list = (low & 32) != 0,
          .takes_calls = (low & 64) != 0,
          .calls_without_content = (low & 128) != 0,
          .arguments_as_text = (high & 1) != 0,
          .short_call_ids = (high & 2) != 0,
          .single_calls = (high & 4) != 0};
}

void render(const qsf::AdaptedChat& chat, const qsf::ChatJson* variables) {
  using namespace qsf;
  static const auto program = jinja::parse_program(kTemplate);
  if (!program) std::abort();
  const jinja::RunLimits limits{.steps = 1'000'000,
                                .live_bytes = std::size_t{32} << 20U,
                                .output_bytes = std::size_t{8} << 20U};
  const auto text = jinja::run_program(*program,
                                       {.json_messages = &chat.messages,
                                        .tools = chat.tools ? &*chat.tools : nullptr,
                                        .variables = variables},
                                       limits);
  if (!text) return;
  for (std::size_t at = 0; at < text->size(); ++at) {
    const char c = text->bytes()[at];
    if ((c == '<' || c == '|') && text->trusted_at(at)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  if (size < 2) return 0;
  const auto request =
      parse_chat_json({reinterpret_cast<const char*>(data) + 2, size - 2}, "request");
  if (!request) return 0;
  const auto written = jinja::write_json(*request);
  if (written) {
    const auto again = parse_chat_json(*written, "again");
    if (!again || *jinja::write_json(*again) != *written) std::abort();
  }
  const ChatJson* messages = request->find("messages");
  const ChatJson* tools = request->find("tools");
  if (messages == nullptr) return 0;
  auto chat = adapt_chat(*messages, tools == nullptr ? std::nullopt : std::optional(*tools),
                         read_traits(data[0], data[1]), (data[1] & 8) != 0);
  if (!chat) return 0;
  const ChatJson* variables = request->find("variables");
  render(*chat, variables);
  wrap_odd_arguments(*chat);
  render(*chat, variables);
  return 0;
}
