// SPDX-License-Identifier: MIT
//
// A step of the engine: one pass for many generations.
//
//   begin_step()
//   admit    new members are checked, and KV pages are reserved for them; a refused one ends with
//            its error
//   read     pages of new prompts come back from the prefix cache's folder, a bounded number;
//   whoever
//            waits for more is left out of the plan
//   plan     rows in a fixed order: prompt rows of the members in their order in the call, then one
//            row of each generating member in that order, with drafted rows behind it where the
//            engine speculates. The rows get their slots in the KV cache
//   end_step()
//   run      one pass. Its error is every member's: all have their lengths from before it
//   commit   logits -> sampler -> stop strings -> text, member after member in the order of the
//            plan
//   retire   members that were cancelled end; reservations of ended members end. Only here pages
//            are given back
//
// The rows of a pass are limited. Those of generating members are counted first, so that a prompt
// of any length delays them by EnginePlan::max_row_delay passes at most. Prompts take what is left,
// at least one row and StepOptions::max_prompt_rows at most, the first in the call before the
// others. Where the rows are too few for all
// generating members, they take turns. A member whose row finds no KV page is left out of the plan
// and waits for pages; a parked one is left out until it is resumed. Under
// AttentionKind::kSymmetric a prompt waits for a pass that holds it all.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/generation.h"
#include "platform/clock.h"

namespace qsf {

namespace {

Status check_members(std::span<Generation* const> members, const Engine::Impl& engine) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == nullptr) return invalid_argument("step: member %zu is null", i);
    if (!members[i]->is_of(engine)) {
      return invalid_argument("step: member %zu belongs to another engine", i);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (members[j] == members[i]) {
        return invalid_argument("step: members %zu and %zu are the same generation", j, i);
      }
    }
  }
  return ok_status();
}

}  // namespace

// Adds the first `n_rows` of a member's next rows. Returns false where no KV page is left for them.
bool Engine::Impl::plan_part(PassInFlight& pass, Generation& member, const NextRows& next,
                             std::size_t n_rows) {
  const bool wants_output = next.wants_output && n_rows == next.tokens.size();
  std::size_t first_output = 0;
  LogitsSink* const sink = member.plan_outputs(next, n_rows, first_output);
  const PassPart part = {.sequence = member.sequence(),
                         .tokens = next.tokens.first(n_rows),
                         .role = next.role,
                         .first_output = first_output,
                         .sink = sink,
                         .progress = next.role == RowRole::kPrompt ? member.progress() : nullptr};
  member.waits_for_pages = !add_part(pass, part).ok();
  if (member.waits_for_pages) return false;
  pass.planned.push_back({&member, {part.tokens, next.role, wants_output}});
  return true;
}

// Plans at most `n_rows` prompt rows, and returns their number.
std::size_t Engine::Impl::plan_prompts(PassInFlight& pass, std::size_t n_rows) {
  std::size_t n_planned = 0;
  for (Generation* const member : pass.members) {
    if (n_planned == n_rows) break;
    if (!member->takes_part()) continue;
    const NextRows next = member->next_rows();
    if (next.role != RowRole::kPrompt) continue;
    const std::size_t n = std::min(n_rows - n_planned, next.tokens.size());
    if (prompts_are_whole() && n < next.tokens.size()) break;
    if (plan_part(pass, *member, next, n)) n_planned += n;
  }
  return n_planned;
}

// Plans rows of at most `n_rows` generating members, and behind them at most `n_drafts` drafted
// ones in all.
void Engine::Impl::plan_generated(PassInFlight& pass, std::size_t n_rows, std::size_t n_drafts) {
  StepCounts& counts = pass.counts;
  const std::span<Generation* const> members = pass.members;
  const std::size_t first = next_to_generate % members.size();
  for (std::size_t i = 0; i < members.size() && counts.generated_rows < n_rows; ++i) {
    const std::size_t index = (first + i) % members.size();
    Generation& member = *members[index];
    if (!member.takes_part()) continue;
    const NextRows next = member.next_rows();
    if (next.role != RowRole::kGenerated) continue;
    std::size_t n_drafted = 0;
    bool planned = false;
    std::size_t most = n_drafts - counts.drafted_rows;
    // A draft takes no page that the row of another member needs.
    if (n_rows > 1 && kv->n_unreserved_pages() < n_rows - counts.generated_rows) {
      const std::uint32_t in_page = kv->n_slots(member.sequence()) % kKvPageSlots;
      most = std::min<std::size_t>(most, kKvPageSlots - 1 - in_page);
    }
    if (most > 0) {
      const NextRows drafted =
          member.draft(next,
                       {.n_beside = static_cast<std::uint32_t>(n_rows - 1 + counts.drafted_rows),
                        .n_tokens = static_cast<std::uint32_t>(n_rows),
                        .most = static_cast<std::uint32_t>(most)},
                       static_cast<std::uint32_t>(counts.drafted_rows));
      n_drafted = drafted.tokens.size() - 1;
      planned = plan_part(pass, member, drafted, drafted.tokens.size());
    }
    if (!planned) n_drafted = 0;
    if (!planned && !plan_part(pass, member, next, 1)) continue;
    counts.drafted_rows += n_drafted;
    ++counts.generated_rows;
    next_to_generate = index + 1;
  }
}

void Engine::Impl::plan_pass(PassInFlight& pass, StepOptions bounds) {
  std::size_t n_generating = 0;
  std::size_t prompt_rows = 0;  // that the first prompt needs at least
  for (Generation* const member : pass.members) {
    if (!member->takes_part()) continue;
    const NextRows next = member->next_rows();
    if (next.role != RowRole::kPrompt) {
      ++n_generating;
    } else if (prompt_rows == 0) {
      prompt_rows = prompts_are_whole() ? next.tokens.size() : 1;
    }
  }
  std::size_t n_decode = std::min<std::size_t>(n_generating, rows_per_pass);
  if (prompt_rows > 0 && n_decode + prompt_rows > rows_per_pass) {
    // Passes of one row, and of a prompt that needs more, are a prompt's and the generating
    // members' in turn.
    const bool has_room = rows_per_pass > 1 && prompt_rows == 1;
    if (has_room || prompt_has_turn) n_decode = rows_per_pass - prompt_rows;
    prompt_has_turn = !prompt_has_turn;
  }
  if (prompt_rows > 0 && n_decode < rows_per_pass) {
    std::size_t most = rows_per_pass - n_decode;
    if (bounds.max_prompt_rows != 0) {
      most = std::min(most, std::max<std::size_t>(bounds.max_prompt_rows, prompt_rows));
    }
    pass.counts.prompt_rows = plan_prompts(pass, most);
  }
  // A pass with a prompt is bound by what it computes: further rows would delay it.
  std::size_t n_drafts = 0;
  if (speculation.has_value() && pass.counts.prompt_rows == 0) {
    n_drafts = std::min<std::size_t>(speculation->max_drafts(), rows_per_pass - n_decode);
  }
  if (n_decode > 0) plan_generated(pass, n_decode, n_drafts);
}

Result<PassId> Engine::Impl::begin_step(std::span<Generation* const> members, StepOptions bounds) {
  QSF_RETURN_IF_ERROR(check_members(members, *this));
  QSF_ASSIGN_OR_RETURN(PassInFlight* const pass, take_pass());
  for (Generation* const member : members) {
    if (member->in_flight()) {
      ++pass->counts.n_in_flight;
      continue;
    }
    pass->members.push_back(member);
    member->set_in_flight(true);
    member->waits_for_pages = false;
    if (!member->is_parked()) {
      Status status = member->admit();
      if (!status.ok() && !member->finished()) member->fail(std::move(status));
    }
    member->take_cancel();
  }
  read_prefixes(*pass);
  pass->changes.swap(changes);
  plan_pass(*pass, bounds);
  return pass->id;
}

// Runs a pass and counts what it cost.
Status Engine::Impl::compute(PassInFlight& pass) {
  const PagerStats before = pager->stats();
  const std::uint64_t start = monotonic_ns();
  Status status = run_pass(pass);
  const PagerStats after = pager->stats();
  pass.counts.pass_ns = monotonic_ns() - start;
  pass.counts.read_wait_ns = after.wait_ns - before.wait_ns;
  pass.counts.weight_bytes_read = after.bytes_read - before.bytes_read;
  if (status.ok() && speculation.has_value() && pass.counts.prompt_rows == 0) {
    speculation->add_time(static_cast<std::uint32_t>(pass.rows.size()), pass.counts.pass_ns,
                          std::min(pass.counts.read_wait_ns, pass.counts.pass_ns));
  }
  return status;
}

Result<StepCounts> Engine::Impl::end_step(PassId id) {
  if (running) return invalid_argument("end_step: called by a callback of a pass; return first");
  PassInFlight* const pass = find_pass(id);
  if (pass == nullptr) {
    return invalid_argument("end_step: pass %llu is not in flight",
                            static_cast<unsigned long long>(id));
  }
  running = true;
  Status status = pass->rows.empty() ? ok_status() : compute(*pass);
  if (status.ok()) {
    for (const Planned& done : pass->planned) {
      pass->counts.accepted_rows += done.member->commit(done.rows);
    }
  } else if (pass->all_cancelled) {
    status = ok_status();
  }
  running = false;
  StepCounts counts = pass->counts;
  for (Generation* const member : pass->members) retire(*member, counts);
  pass->clear();
  QSF_DCHECK(kv->is_consistent());
  QSF_DCHECK(!prefix_tree.has_value() || prefix_tree->is_consistent());
  QSF_RETURN_IF_ERROR(std::move(status));
  return counts;
}

Result<StepCounts> Engine::Impl::step(std::span<Generation* const> members, StepOptions bounds) {
  QSF_ASSIGN_OR_RETURN(const PassId pass, begin_step(members, bounds));
  return end_step(pass);
}

void Engine::Impl::retire(Generation& member, StepCounts& counts) {
  member.set_in_flight(false);
  member.take_cancel();
  member.retire();
  if (member.finished()) ++counts.n_finished;
  if (member.waits_for_pages && !member.finished()) ++counts.n_waiting;
  if (member.is_released()) delete &member;
}

Result<PassId> Engine::begin_step(std::span<Generation* const> members, StepOptions options) {
  return impl_->begin_step(members, options);
}

Result<StepCounts> Engine::end_step(PassId pass) {
  return impl_->end_step(pass);
}

Result<StepCounts> Engine::step(std::span<Generation* const> members, StepOptions options) {
  return impl_->step(members, options);
}

PassMessage Engine::message_of(PassId id) const {
  const PassInFlight* const pass = impl_->find_pass(id);
  QSF_CHECK(pass != nullptr);
  return {pass->id, pass->changes, pass->rows};
}

}  // namespace qsf
