// SPDX-License-Identifier: MIT
//
// The execution of passes that another engine planned.

#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/pass_message.h"

namespace qsf {

namespace {

bool same_row(const Row& a, const Row& b) {
  return a.sequence == b.sequence && a.token == b.token && a.position == b.position &&
         a.kv_slot == b.kv_slot && a.role == b.role && a.adapter == b.adapter &&
         a.adapter_scale == b.adapter_scale && a.visible.prefix == b.visible.prefix &&
         a.visible.ancestors == b.visible.ancestors && a.visible.sinks == b.visible.sinks &&
         a.visible.first == b.visible.first;
}

// The rows from `first` on that are of one sequence and one role.
std::size_t end_of_part(std::span<const Row> rows, std::size_t first) {
  std::size_t end = first + 1;
  while (end < rows.size() && rows[end].sequence == rows[first].sequence &&
         rows[end].role == rows[first].role) {
    ++end;
  }
  return end;
}

}  // namespace

Status Engine::Impl::apply(const SequenceChange& change) {
  const auto refused = [&change](const char* expected) {
    return corrupt("change of sequence %u (%u): %s", change.sequence, change.value, expected);
  };
  if (change.kind == SequenceChange::Kind::kCreate) {
    QSF_ASSIGN_OR_RETURN(const SequenceId created, kv->create_sequence());
    if (created == change.sequence) return ok_status();
    kv->free_sequence(created);
    return refused("another sequence would be created; a message is missing");
  }
  if (change.kind == SequenceChange::Kind::kFork) {
    if (!kv->exists(change.value)) return refused("its origin does not exist");
    QSF_ASSIGN_OR_RETURN(const SequenceId created, fork(change.value));
    if (created == change.sequence) return ok_status();
    truncate(created, 0);
    kv->free_sequence(created);
    return refused("another sequence would be created; a message is missing");
  }
  if (!kv->exists(change.sequence)) return refused("it does not exist");
  if (change.kind == SequenceChange::Kind::kFree) {
    truncate(change.sequence, 0);
    kv->free_sequence(change.sequence);
    return ok_status();
  }
  if (change.value > kv->n_slots(change.sequence)) return refused("it is shorter");
  truncate(change.sequence, change.value);
  if (kv->n_slots(change.sequence) == change.value) return ok_status();
  return refused("it does not return to that length here");
}

Status Engine::Impl::execute(const PassMessage& message, LogitsSink* sink) {
  if (message.rows.size() > rows_per_pass) {
    return corrupt("pass %llu: %zu rows, expected at most %u",
                   static_cast<unsigned long long>(message.pass), message.rows.size(),
                   rows_per_pass);
  }
  const std::string where = "pass " + std::to_string(static_cast<unsigned long long>(message.pass));
  QSF_ASSIGN_OR_RETURN(PassInFlight* const pass, take_pass());
  Status status;
  for (const SequenceChange& change : message.changes) {
    if (status.ok()) status = apply(change);
  }
  std::vector<TokenId> tokens;
  tokens.reserve(message.rows.size());
  for (std::size_t first = 0; first < message.rows.size() && status.ok();) {
    const Row& row = message.rows[first];
    const std::size_t end = end_of_part(message.rows, first);
    for (std::size_t i = first; i < end; ++i) tokens.push_back(message.rows[i].token);
    if (!kv->exists(row.sequence)) {
      status = corrupt("row %zu: sequence %u does not exist", first, row.sequence);
    } else if (std::any_of(pass->parts.begin(), pass->parts.end(), [&row](const PassPart& part) {
                 return part.sequence == row.sequence;
               })) {
      status = corrupt("row %zu: sequence %u has rows in two places", first, row.sequence);
    } else if (first > 0 && row.role < message.rows[first - 1].role) {
      status = corrupt("row %zu: a prompt row after another", first);
    } else if (const AdapterUse use = {row.adapter, row.adapter_scale};
               use.number != 0 && !check_adapter(use).ok()) {
      status = check_adapter(use).with_context("row " + std::to_string(first));
    } else {
      sequence_adapters[row.sequence] = use;
      status = add_part(
          *pass,
          {.sequence = row.sequence, .tokens = std::span(tokens).subspan(first), .role = row.role});
    }
    first = end;
  }
  for (std::size_t i = 0; i < pass->rows.size() && status.ok(); ++i) {
    if (message.rows[i].token >= reader->spec().n_vocab ||
        !same_row(message.rows[i], pass->rows[i])) {
      status = corrupt("row %zu: token %u at slot %u does not continue sequence %u", i,
                       message.rows[i].token, message.rows[i].kv_slot, message.rows[i].sequence);
      break;
    }
    pass->rows[i].wants_output = message.rows[i].wants_output;
    if (message.rows[i].wants_output && sink != nullptr) {
      pass->outputs.push_back({sink, static_cast<std::uint32_t>(pass->outputs.size())});
    }
  }
  if (!status.ok()) status = std::move(status).with_context(where);
  return finish_parts(*pass, std::move(status));
}

Status Engine::execute(const PassMessage& message, LogitsSink* sink) {
  return impl_->execute(message, sink);
}

}  // namespace qsf
