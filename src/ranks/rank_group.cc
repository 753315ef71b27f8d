// SPDX-License-Identifier: MIT

#include "ranks/rank_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/engine_plan.h"
#include "format/qsf_reader.h"
#include "ranks/frame.h"
#include "ranks/opening.h"

#ifndef QSF_VERSION
#define QSF_VERSION "unknown"
#endif

namespace qsf {
namespace {

constexpr std::chrono::milliseconds kReplyWait(50);
constexpr std::uint64_t kLinkBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kPeerBytes = std::uint64_t{1} << 20;
// Of a streamed model a window is worth a turn of the ring of tiles.
constexpr std::uint64_t kLeastWindowBytes = std::uint64_t{16} << 20;

CallerMemory memory_of_link(unsigned n_ranks) {
  return {.name = "ranks",
          .reason =
              "MPI, and what it keeps for each of " + std::to_string(n_ranks - 1) + " other ranks",
          .bytes = kLinkBytes + (n_ranks - 1) * kPeerBytes};
}

void count_layer(const LayerView& /*view*/, void* user) {
  static_cast<Link*>(user)->count_progress();
}

std::string rank_name(const Link& link, unsigned rank) {
  return "rank " + std::to_string(rank) + " on " + link.host_of(rank);
}

Status check_shared(const EngineOptions& options) {
  const auto refused = [](const char* what) {
    return unsupported("%s: not with several ranks; use one process", what);
  };
  if (options.layer_hook.see != nullptr) return refused("layer hook");
  if (options.h2o_ranker.rank != nullptr) return refused("h2o ranker");
  if (!options.kv_spill_path.empty()) return refused("kv_spill");
  if (options.expert_preference != 0.0F) return refused("expert preference");
  return ok_status();
}

EngineOptions options_of_rank(const Opening& opening, const LayerCut& cut, Link& link) {
  EngineOptions options = opening.options;
  options.cut = &cut;
  options.layer_hook = {.see = count_layer, .user = &link};
  options.caller_memory.push_back(memory_of_link(link.n_ranks()));
  return options;
}

// Layers of a window: as few as keep the disks busy, so that all of them read all the time; where
// the parts stay in memory as many as there are, so that rows travel least.
Result<std::uint32_t> choose_window(const std::string& path, const EngineOptions& options,
                                    Link& link) {
  QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
  const std::uint32_t n_layers = reader.n_layers();
  const std::uint32_t share = (n_layers + link.n_ranks() - 1) / link.n_ranks();
  Ring ring(link, interleave(n_layers, link.n_ranks(), share));
  Opening opening;
  opening.options = options;
  QSF_ASSIGN_OR_RETURN(const EnginePlan plan,
                       Engine::plan_file(path, options_of_rank(opening, ring.cut(), link),
                                         /*with_memory_rate=*/false));
  if (plan.residency.everything_resident) return share;
  std::uint64_t layer_bytes = 0;
  for (const TileInfo& tile : reader.layer(0).tiles) layer_bytes += tile.stored_bytes;
  const std::uint64_t window =
      (kLeastWindowBytes + layer_bytes - 1) / std::max<std::uint64_t>(1, layer_bytes);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(window, 1, share));
}

// Whether this rank runs the same program on the same file as rank 0.
Status check_same(const Opening& opening) {
  if (opening.version != QSF_VERSION) {
    return unsupported("QSF " QSF_VERSION ", but rank 0 runs QSF %s", opening.version.c_str());
  }
  Opening own;
  QSF_RETURN_IF_ERROR(identify_file(opening.path, own));
  if (own.file_bytes == opening.file_bytes && own.file_crc == opening.file_crc) return ok_status();
  return invalid_argument(
      "%s: another file than on rank 0: %llu bytes and checksum %08x, expected "
      "%llu and %08x",
      opening.path.c_str(), static_cast<unsigned long long>(own.file_bytes), own.file_crc,
      static_cast<unsigned long long>(opening.file_bytes), opening.file_crc);
}

// What a rank reads of its next window while the others compute theirs.
std::uint64_t ring_bytes_of(const QsfReader& reader, const RingPlan& plan, unsigned n_ranks) {
  std::uint64_t largest = 0;
  for (const RingWindow& window : plan) {
    std::uint64_t bytes = 0;
    for (std::uint32_t layer = window.first; layer < window.last; ++layer) {
      for (const TileInfo& tile : reader.layer(layer).tiles) bytes += tile.stored_bytes;
    }
    largest = std::max(largest, bytes);
  }
  return largest / n_ranks * (n_ranks - 1);
}

}  // namespace

Result<std::vector<RankGroup::Reply>> RankGroup::collect_replies() {
  std::vector<Reply> replies(link_.n_ranks());
  for (unsigned n = 1; n < link_.n_ranks();) {
    QSF_ASSIGN_OR_RETURN(const std::optional<LinkMessage> message, link_.receive(kReplyWait));
    if (!message.has_value()) continue;
    QSF_ASSIGN_OR_RETURN(const Frame frame, decode_frame(message->bytes));
    if (frame.header.kind != FrameKind::kOpened) continue;  // of a pass of a model before
    ++n;
    Reply& reply = replies[message->from];
    const auto code = static_cast<StatusCode>(frame.header.window);
    std::string text(as_text(frame.payload));
    if (code != StatusCode::kOk) {
      reply.status = Status(code, std::move(text)).with_context(rank_name(link_, message->from));
      continue;
    }
    reply.rows_per_pass = frame.header.n_rows;
    reply.context = frame.header.n_cols;
    reply.tier = std::move(text);
  }
  return replies;
}

// Plans or opens on all ranks at once, here too. Returns what all of them can have.
Result<RankGroup::Reply> RankGroup::agree(const Opening& opening, const EngineOptions& own,
                                          std::unique_ptr<Engine>* engine) {
  const std::vector<std::byte> request = encode_opening(opening);
  for (unsigned rank = 1; rank < link_.n_ranks(); ++rank) {
    QSF_RETURN_IF_ERROR(link_.send(rank, encode_frame({.kind = FrameKind::kOpen}, request)));
  }
  Reply agreed = reply_to(opening, own, engine);
  QSF_ASSIGN_OR_RETURN(std::vector<Reply> replies, collect_replies());
  QSF_RETURN_IF_ERROR(std::move(agreed.status));
  for (unsigned rank = 1; rank < link_.n_ranks(); ++rank) {
    Reply& reply = replies[rank];
    QSF_RETURN_IF_ERROR(std::move(reply.status));
    agreed.rows_per_pass = std::min(agreed.rows_per_pass, reply.rows_per_pass);
    agreed.context = std::min(agreed.context, reply.context);
    if (reply.tier == agreed.tier) continue;
    return unsupported(
        "%s computes with %s, rank 0 with %s, which gives other bits; set QSF_ISA to a tier that "
        "both have",
        rank_name(link_, rank).c_str(), reply.tier.c_str(), agreed.tier.c_str());
  }
  return agreed;
}

// Plans, or opens an engine.
RankGroup::Reply RankGroup::reply_to(const Opening& opening, const EngineOptions& options,
                                     std::unique_ptr<Engine>* engine) {
  Reply reply;
  if (opening.plans_only) {
    Result<EnginePlan> plan = Engine::plan_file(opening.path, options, /*with_memory_rate=*/false);
    if (!plan.has_value()) {
      reply.status = std::move(plan).error();
      return reply;
    }
    reply.rows_per_pass = plan->rows_per_pass;
    reply.context = plan->max_context;
    return reply;
  }
  Result<std::unique_ptr<Engine>> opened = Engine::open(opening.path, options);
  if (!opened.has_value()) {
    reply.status = std::move(opened).error();
    return reply;
  }
  *engine = std::move(*opened);
  reply.rows_per_pass = (*engine)->plan().rows_per_pass;
  reply.context = (*engine)->plan().max_context;
  reply.tier = (*engine)->instruction_set();
  return reply;
}

Result<RankedEngine> RankGroup::open(const std::string& path, const EngineOptions& options,
                                     const RankOptions& rank_options) {
  if (!open_.expired()) {
    return invalid_argument("%s: ranks run one model at a time; close the other first",
                            path.c_str());
  }
  QSF_RETURN_IF_ERROR(check_shared(options));
  QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
  if (!rank_options.force) {
    const Result<EnginePlan> alone = Engine::plan_file(path, options, /*with_memory_rate=*/false);
    if (alone.has_value() && alone->residency.everything_resident) {
      return unsupported(
          "%s: one process has room for this model, and is faster than %u ranks; use one, or force "
          "them",
          path.c_str(), link_.n_ranks());
    }
  }
  std::uint32_t window = rank_options.window;
  if (window == 0) {
    QSF_ASSIGN_OR_RETURN(window, choose_window(path, options, link_));
  }
  if (window > reader.n_layers()) {
    return invalid_argument("windows of %u layers: the model has %u", window, reader.n_layers());
  }
  Opening opening;
  opening.version = QSF_VERSION;
  opening.path = path;
  opening.options = options;
  opening.plan = interleave(reader.n_layers(), link_.n_ranks(), window);
  if (cut_of(opening.plan, link_.n_ranks() - 1).layers.empty()) {
    return invalid_argument(
        "%u ranks with windows of %u layers: the model has %u layers, so rank %u would have none; "
        "use fewer ranks or smaller windows",
        link_.n_ranks(), window, reader.n_layers(), link_.n_ranks() - 1);
  }
  opening.ring_bytes = ring_bytes_of(reader, opening.plan, link_.n_ranks());
  QSF_RETURN_IF_ERROR(identify_file(path, opening));
  RankedEngine ranked{.ring = std::make_shared<Ring>(link_, opening.plan, opening.ring_bytes),
                      .engine = nullptr};
  EngineOptions own = options_of_rank(opening, ranked.ring->cut(), link_);
  own.pass_hook = {.announce = [](const PassMessage& pass,
                                  void* user) { return static_cast<Ring*>(user)->announce(pass); },
                   .end = [](void* user) { static_cast<Ring*>(user)->end_pass(); },
                   .user = ranked.ring.get()};
  opening.plans_only = true;
  QSF_ASSIGN_OR_RETURN(const Reply shape, agree(opening, own, nullptr));
  opening.plans_only = false;
  for (EngineOptions* const shared : {&own, &opening.options}) {
    shared->rows_per_pass = shape.rows_per_pass;
    shared->max_context = shape.context;
  }
  const Result<Reply> opened = agree(opening, own, &ranked.engine);
  if (!opened.has_value()) {
    ranked.engine.reset();
    return opened.error();
  }
  open_ = ranked.ring;
  return ranked;
}

Status RankGroup::end() {
  for (unsigned rank = 1; rank < link_.n_ranks(); ++rank) {
    QSF_RETURN_IF_ERROR(link_.send(rank, encode_frame({.kind = FrameKind::kEnd}, {})));
  }
  return ok_status();
}

Status RankGroup::serve() {
  while (true) {
    QSF_ASSIGN_OR_RETURN(const std::optional<LinkMessage> message, link_.receive(kReplyWait));
    if (!message.has_value()) continue;
    QSF_ASSIGN_OR_RETURN(const Frame frame, decode_frame(message->bytes));
    if (frame.header.kind == FrameKind::kEnd) return ok_status();
    if (frame.header.kind != FrameKind::kOpen) continue;
    QSF_RETURN_IF_ERROR(serve_opening(frame.payload));
  }
}

Status RankGroup::serve_opening(ByteSpan request) {
  QSF_ASSIGN_OR_RETURN(const Opening opening, decode_opening(request));
  Ring ring(link_, opening.plan, opening.ring_bytes);
  const EngineOptions options = options_of_rank(opening, ring.cut(), link_);
  std::unique_ptr<Engine> engine;
  Status same = check_same(opening);
  Reply reply;
  if (same.ok()) {
    reply = reply_to(opening, options, &engine);
  } else {
    reply.status = std::move(same);
  }
  const FrameHeader header = {.kind = FrameKind::kOpened,
                              .window = static_cast<std::uint32_t>(reply.status.code()),
                              .n_rows = reply.rows_per_pass,
                              .n_cols = reply.context};
  const std::string& text = reply.status.ok() ? reply.tier : reply.status.message();
  QSF_RETURN_IF_ERROR(link_.send(0, encode_frame(header, as_bytes(text))));
  return engine == nullptr ? ok_status() : ring.serve(*engine);
}

}  // namespace qsf
