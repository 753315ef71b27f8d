// SPDX-License-Identifier: MIT
//
// Any bytes as a chat template, rendered with a conversation of any bytes. The first byte says how
// many bytes at the end are the messages. Needs qsf_chat.
//
// The bounds on steps and memory are lower than the product's, so that an input ends within
// milliseconds; that every input ends is what they are for.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "chat/jinja_interpreter.h"
#include "chat/jinja_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t n_content = data[0] < input.size() ? data[0] : input.size();
  const std::string_view source = input.substr(0, input.size() - n_content);
  const std::string_view content = input.substr(source.size());
  const auto program = jinja::parse_program(source);
  if (!program) return 0;
  const ChatMessage messages[] = {{"system", content.substr(0, n_content / 2)},
                                  {"user", content},
                                  {"assistant", content.substr(n_content / 2)},
                                  {"user", "x"}};
  const jinja::RunLimits limits{
      .steps = 100'000, .live_bytes = std::size_t{8} << 20U, .output_bytes = std::size_t{1} << 20U};
  const auto text =
      jinja::run_program(*program, {.messages = messages, .bos_token = "<s>"}, limits);
  // Runs cover the text, in order, and neighbours differ.
  if (text) {
    std::size_t end = 0;
    bool was_trusted = false;
    for (const jinja::TrustRun& run : text->runs()) {
      if (run.end <= end || (end > 0 && run.trusted == was_trusted)) std::abort();
      end = run.end;
      was_trusted = run.trusted;
    }
    if (end != text->size()) std::abort();
  }
  return 0;
}
