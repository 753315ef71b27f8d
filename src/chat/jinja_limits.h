// SPDX-License-Identifier: MIT
//
// How far a template may go. A model's file is a stranger's, and its template a program: these
// bounds keep it from hanging or exhausting the process. Real templates stay a hundredfold below
// them.

#ifndef QSF_CHAT_JINJA_LIMITS_H_
#define QSF_CHAT_JINJA_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace qsf::jinja {

// The longest templates of public models have 30 KB.
inline constexpr std::size_t kMaxTemplateBytes = 1U << 20U;

// Nesting of brackets, tags and operators in the source: the parser recurses.
inline constexpr int kMaxParseDepth = 100;

// Height of an expression's tree: `a + b + c ...` grows to the left without recursion in the
// parser.
inline constexpr int kMaxExprHeight = 250;

// Nesting at run time, over expressions, blocks and calls of macros; at below 2 KB of stack each.
inline constexpr int kMaxRunDepth = 500;

// Lists in lists; recursive functions over values rely on it.
inline constexpr int kMaxNesting = 60;

// What Python's sandbox allows range() to give.
inline constexpr std::int64_t kMaxRange = 100000;

// Steps for making what lives to the end of the rendering, so that there is a bound to those.
inline constexpr std::uint64_t kKeptCost = 100;

struct RunLimits {
  // A step is a node evaluated, or 64 bytes of text or 4 items written or searched.
  std::size_t steps = 20'000'000;
  std::size_t live_bytes = std::size_t{256} << 20U;
  std::size_t output_bytes = std::size_t{64} << 20U;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_LIMITS_H_
