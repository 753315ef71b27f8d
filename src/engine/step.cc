// SPDX-License-Identifier: MIT
//
// A step of the engine: one pass for many generations.
//
//   admit    new members are checked; a refused one ends with its error
//   plan     rows in a fixed order: prompt rows of the members in their order in the call, then one
//            row of each generating member in that order
//   run      one pass. Its error is every member's: all have their lengths from before it
//   commit   logits -> sampler -> stop strings -> text, member after member in the order of the
//   plan retire   cancelled members end
//
// The rows of a pass are limited. Those of generating members are counted first, so that a prompt
// of any length delays them by one pass at most. Prompts take what is left, at least one row, the
// first in the call before the others. Where the rows are too few for all generating members, they
// take turns.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/generation.h"

namespace qsf {

namespace {

Status check_members(std::span<Generation* const> members, const Engine::Impl& engine) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == nullptr) return invalid_argument("step: member %zu is null", i);
    if (!members[i]->is_of(engine)) {
      return invalid_argument("step: member %zu belongs to another engine", i);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (members[j] == members[i] || &members[j]->session() == &members[i]->session()) {
        return invalid_argument("step: members %zu and %zu are of one session", j, i);
      }
    }
  }
  return ok_status();
}

}  // namespace

// Plans at most `n_rows` rows of one role, and returns their number.
std::size_t Engine::Impl::plan_rows(std::span<Generation* const> members, RowRole role,
                                    std::size_t n_rows) {
  const bool prompts = role == RowRole::kPrompt;
  const std::size_t first = prompts ? 0 : next_to_generate % members.size();
  std::size_t n_planned = 0;
  for (std::size_t i = 0; i < members.size() && n_planned < n_rows; ++i) {
    const std::size_t index = (first + i) % members.size();
    Generation& member = *members[index];
    if (member.finished()) continue;
    const NextRows next = member.next_rows();
    if (next.role != role) continue;
    const std::size_t n = std::min(n_rows - n_planned, next.tokens.size());
    const bool wants_output = next.wants_output && n == next.tokens.size();
    parts.push_back({.sequence = member.sequence(),
                     .tokens = next.tokens.first(n),
                     .role = role,
                     .first_output = n - 1,
                     .sink = wants_output ? member.sink() : nullptr,
                     .progress = prompts ? member.progress() : nullptr});
    planned.push_back({&member, {next.tokens.first(n), role, wants_output}});
    member.in_step = true;
    n_planned += n;
    if (!prompts) next_to_generate = index + 1;
  }
  return n_planned;
}

Result<StepCounts> Engine::Impl::step(std::span<Generation* const> members) {
  if (in_step) {
    return invalid_argument("step: a callback of a step cannot start another; return first");
  }
  QSF_RETURN_IF_ERROR(check_members(members, *this));
  in_step = true;
  Result<StepCounts> counts = step_members(members);
  in_step = false;
  return counts;
}

Result<StepCounts> Engine::Impl::step_members(std::span<Generation* const> members) {
  StepCounts counts;
  parts.clear();
  planned.clear();
  std::size_t n_generating = 0;
  bool has_prompt = false;
  for (Generation* const member : members) {
    member->admit();
    member->take_cancel();
    if (member->finished()) continue;
    if (member->next_rows().role == RowRole::kPrompt) {
      has_prompt = true;
    } else {
      ++n_generating;
    }
  }

  std::size_t n_decode = std::min<std::size_t>(n_generating, rows_per_pass);
  if (has_prompt && n_decode == rows_per_pass) {
    // Passes of one row are a prompt's and a generating member's in turn.
    if (rows_per_pass > 1 || prompt_has_turn) --n_decode;
    prompt_has_turn = !prompt_has_turn;
  }
  if (has_prompt && n_decode < rows_per_pass) {
    counts.prompt_rows = plan_rows(members, RowRole::kPrompt, rows_per_pass - n_decode);
  }
  if (n_decode > 0) counts.generated_rows = plan_rows(members, RowRole::kGenerated, n_decode);

  Status status = parts.empty() ? ok_status() : run_pass(parts);
  for (const Planned& done : planned) {
    if (status.ok()) done.member->commit(done.rows);
  }
  for (const Planned& done : planned) done.member->in_step = false;
  QSF_RETURN_IF_ERROR(std::move(status));
  for (Generation* const member : members) {
    member->take_cancel();
    counts.n_finished += member->finished() ? 1 : 0;
  }
  return counts;
}

Result<StepCounts> Engine::step(std::span<Generation* const> members) {
  return impl_->step(members);
}

}  // namespace qsf
