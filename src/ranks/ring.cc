// SPDX-License-Identifier: MIT

#include "ranks/ring.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"

namespace qsf {
namespace {

// How long a wait lasts before it looks whether it was cancelled.
constexpr std::chrono::milliseconds kMoment(20);

}  // namespace

Ring::Ring(Link& link, RingPlan plan, std::uint64_t ring_bytes)
    : link_(link), plan_(std::move(plan)), cut_(cut_of(plan_, link.rank())) {
  cut_.relay = this;
  cut_.ring_bytes = ring_bytes;
  for (std::uint32_t i = 0; i < plan_.size(); ++i) {
    if (plan_[i].rank == link_.rank()) numbers_.push_back(i);
  }
}

Ring::~Ring() {
  // Of a link that is down the run ends anyway.
  if (link_.rank() == 0) static_cast<void>(close());
}

std::uint32_t Ring::number_of(std::uint32_t window) const noexcept {
  return window < numbers_.size() ? numbers_[window] : static_cast<std::uint32_t>(plan_.size());
}

std::string Ring::name_of(unsigned rank) const {
  return "rank " + std::to_string(rank) + " on " + link_.host_of(rank);
}

Status Ring::send_to_all(const FrameHeader& header, ByteSpan payload) {
  for (unsigned rank = 0; rank < link_.n_ranks(); ++rank) {
    if (rank == link_.rank()) continue;
    QSF_RETURN_IF_ERROR(link_.send(rank, encode_frame(header, payload)));
  }
  return ok_status();
}

// Rows that came early are taken next.
void Ring::begin_pass(std::uint64_t pass, std::size_t n_rows) {
  pass_ = pass;
  n_rows_ = static_cast<std::uint32_t>(n_rows);
  pending_.insert(pending_.end(), std::make_move_iterator(early_.begin()),
                  std::make_move_iterator(early_.end()));
  early_.clear();
}

Status Ring::announce(const PassMessage& pass) {
  begin_pass(pass.pass, pass.rows.size());
  link_.begin_work();
  std::vector<std::byte> bytes;
  encode(pass, bytes);
  return send_to_all({.kind = FrameKind::kPass, .pass = pass_}, bytes);
}

Status Ring::close() {
  return send_to_all({.kind = FrameKind::kClose}, {});
}

Result<std::optional<LinkMessage>> Ring::next_message() {
  if (pending_.empty()) return link_.receive(kMoment);
  LinkMessage message = std::move(pending_.front());
  pending_.pop_front();
  return std::optional(std::move(message));
}

// An error of a pass: what another rank says about it.
Status Ring::failure(unsigned rank, const Frame& frame) const {
  return Status(static_cast<StatusCode>(frame.header.window), std::string(as_text(frame.payload)))
      .with_context(name_of(rank));
}

Status Ring::receive(std::uint32_t window, std::span<float> rows, const std::atomic<bool>* cancel) {
  const std::uint32_t number = number_of(window);
  while (true) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return cancelled("cancelled while other ranks compute");
    }
    QSF_ASSIGN_OR_RETURN(std::optional<LinkMessage> message, next_message());
    if (!message.has_value()) continue;
    QSF_ASSIGN_OR_RETURN(const Frame frame, decode_frame(message->bytes));
    const FrameHeader& header = frame.header;
    if (header.kind == FrameKind::kPass || header.kind == FrameKind::kClose) {
      pending_.push_back(std::move(*message));
      return cancelled("another pass began");
    }
    if (header.kind == FrameKind::kRows && header.pass > pass_) {
      early_.push_back(std::move(*message));
      continue;
    }
    if (header.pass != pass_) continue;  // of a pass that has ended here
    if (header.kind == FrameKind::kFailed) return failure(message->from, frame);
    const bool expected = header.kind == FrameKind::kRows && header.window == number &&
                          frame.payload.size() == rows.size_bytes() &&
                          std::size_t{header.n_rows} * header.n_cols == rows.size();
    if (!expected) {
      return corrupt(
          "%s: rows for window %u, %u by %u, of pass %llu; expected window %u and %zu "
          "values",
          name_of(message->from).c_str(), header.window, header.n_rows, header.n_cols,
          static_cast<unsigned long long>(header.pass), number, rows.size());
    }
    std::memcpy(rows.data(), frame.payload.data(), rows.size_bytes());
    link_.begin_work();
    return ok_status();
  }
}

Status Ring::send(std::uint32_t window, std::span<const float> rows) {
  link_.end_work();
  const std::uint32_t next = number_of(window) + 1;
  const unsigned to = next < plan_.size() ? plan_[next].rank : 0;
  const FrameHeader header = {.kind = FrameKind::kRows,
                              .pass = pass_,
                              .window = next,
                              .n_rows = n_rows_,
                              .n_cols = static_cast<std::uint32_t>(rows.size() / n_rows_)};
  std::vector<std::byte> bytes = encode_frame(header, std::as_bytes(rows));
  if (to != link_.rank()) return link_.send(to, std::move(bytes));
  pending_.push_back({to, std::move(bytes)});
  return ok_status();
}

Status Ring::report(const Status& status) {
  // A cancelled pass is no news to rank 0, which ended it.
  if (status.ok() || status.code() == StatusCode::kCancelled) return ok_status();
  return link_.send(0, encode_frame({.kind = FrameKind::kFailed,
                                     .pass = pass_,
                                     .window = static_cast<std::uint32_t>(status.code())},
                                    as_bytes(status.message())));
}

Status Ring::serve(Engine& engine) {
  while (true) {
    QSF_ASSIGN_OR_RETURN(std::optional<LinkMessage> message, next_message());
    if (!message.has_value()) continue;
    QSF_ASSIGN_OR_RETURN(const Frame frame, decode_frame(message->bytes));
    if (frame.header.kind == FrameKind::kClose) return ok_status();
    if (frame.header.kind == FrameKind::kRows && frame.header.pass > pass_) {
      early_.push_back(std::move(*message));
      continue;
    }
    if (frame.header.kind != FrameKind::kPass) continue;  // rows of a pass that has ended
    QSF_ASSIGN_OR_RETURN(const ReceivedPass pass, decode_pass(frame.payload));
    begin_pass(pass.pass, pass.rows.size());
    const Status done = engine.execute(pass.message(), nullptr);
    link_.end_work();
    QSF_RETURN_IF_ERROR(report(done));
  }
}

}  // namespace qsf
