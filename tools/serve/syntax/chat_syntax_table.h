// SPDX-License-Identifier: MIT
//
// The table of chat syntaxes: markers as models write them.

#ifndef QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_TABLE_H_
#define QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_TABLE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "tools/serve/syntax/chat_syntax.h"

namespace qsf_tools {

// How one call is written between its first and its last marker.
enum class CallForm : std::uint8_t {
  kJson,        // {"name": NAME, "arguments": {...}}
  kArray,       // a JSON array of such objects
  kNamed,       // NAME separator {...}
  kTagged,      // NAME, then each argument between tags of its own
  kBareJson,    // as kJson, without markers, as the whole answer
  kBareNamed,   // NAME separator {...}, without markers, as the whole answer
  kChannels,    // messages in channels; arguments are the message to a function
  kPython,      // NAME(KEY=VALUE, ...), or a list of these
  kBarePython,  // a list of these, without markers, as the whole answer
  kBraced,      // NAME{KEY:VALUE,...}, texts between markers
};

// What calls without a marker begin with; empty: with a name, or they have one.
constexpr std::string_view bare_begin(CallForm form) noexcept {
  switch (form) {
    case CallForm::kBareJson: return "{";
    case CallForm::kBarePython: return "[";
    default: return {};
  }
}

constexpr bool is_bare(CallForm form) noexcept {
  return form == CallForm::kBareNamed || !bare_begin(form).empty();
}

// A call is begin, body, end. Blanks may stand between these; where a marker of the table has
// blanks around it, they are what the grammar writes.
struct ChatSyntax {
  std::string_view name;
  // Texts that the source of such a template contains, all of them.
  std::array<std::string_view, 2> evidence = {};
  CallForm form = CallForm::kJson;

  std::string_view section_begin = {};  // around all calls; or empty
  std::string_view section_end = {};
  // Around a call. Of forms without markers: around a call, or around text that calls follow.
  std::string_view begin = {};
  std::string_view end = {};  // empty: a call ends with its JSON

  // The first marker is a word that other texts have, too.
  bool begins_with_word = false;

  // kArray: between the first marker and the array; or empty. It may be missing.
  std::string_view before_array = {};

  // Of objects; the id of a call, which precedes its name, is a number in a text.
  std::string_view id_key = {};
  std::string_view name_key = "name";
  std::string_view arguments_key = "arguments";

  // kNamed, kBareNamed, kBraced: what precedes the name and separates it from the arguments, and
  // what follows these.
  std::string_view before_name = {};
  std::string_view separator = {};
  std::string_view after_arguments = {};

  // kTagged. A value ends at value_end where another tag follows it.
  std::string_view name_begin = {};
  std::string_view name_end = {};
  std::string_view key_begin = {};
  std::string_view key_end = {};
  std::string_view value_begin = {};
  std::string_view value_end = {};
  std::string_view body_end = {};
  bool lines = false;  // a value stands on lines of its own, whose breaks are not part of it

  std::string_view quote = {};  // kBraced: around texts

  // Around the answer that is shown; or empty.
  std::string_view text_begin = {};
  std::string_view text_end = {};

  // What the grammar writes around the calls behind one marker, and between calls.
  std::string_view list_begin = {};
  std::string_view list_end = {};
  std::string_view between = {};
};

// A pair of markers around the reasoning that an answer begins with.
struct ReasoningMarkers {
  std::string_view begin;
  std::string_view end;
};

// The first row whose evidence a template contains is its syntax; the last row has none.
std::span<const ChatSyntax> chat_syntaxes() noexcept;
// Markers of all syntaxes but kChannels: models answer in any of them, whatever their template
// says.
std::span<const ReasoningMarkers> reasoning_markers() noexcept;
// Returns the last marker of the pair whose first one ends a prompt, but for blanks; or empty.
std::string_view opened_reasoning_end(std::string_view prompt) noexcept;

// Names of the channels of kChannels.
struct ChannelMarkers {
  static constexpr std::string_view kStart = "<|start|>";
  static constexpr std::string_view kChannel = "<|channel|>";
  static constexpr std::string_view kMessage = "<|message|>";
  static constexpr std::string_view kEnd = "<|end|>";
  static constexpr std::string_view kCall = "<|call|>";
  static constexpr std::string_view kReturn = "<|return|>";
  static constexpr std::string_view kConstrain = "<|constrain|>";
  static constexpr std::string_view kRecipient = " to=functions.";
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_TABLE_H_
