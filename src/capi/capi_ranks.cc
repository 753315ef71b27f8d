// SPDX-License-Identifier: MIT
//
// The group of processes that this one belongs to.

#include <memory>

#include "capi/capi_handles.h"
#include "ranks/mpi_link.h"
#include "ranks/rank_group.h"

namespace qsf::capi {
namespace {

// Of the process, as MPI is.
struct JoinedRanks {
  std::unique_ptr<Link> link;
  std::unique_ptr<RankGroup> group;
};
JoinedRanks joined;

Status join(int* rank, int* n_ranks) {
  if (rank == nullptr) return null_argument("rank");
  if (n_ranks == nullptr) return null_argument("n_ranks");
  if (joined.link != nullptr) return invalid_argument("this process has joined before");
  *rank = 0;
  *n_ranks = 1;
  QSF_ASSIGN_OR_RETURN(joined.link, join_ranks());
  if (joined.link == nullptr) return ok_status();
  *rank = static_cast<int>(joined.link->rank());
  *n_ranks = static_cast<int>(joined.link->n_ranks());
  joined.group = std::make_unique<RankGroup>(*joined.link);
  if (*rank == 0) return ok_status();
  Status status = joined.group->serve();
  if (!status.ok()) joined.link->abandon(status.message());
  leave_ranks();
  return status;
}

}  // namespace

void leave_ranks() noexcept {
  if (joined.link == nullptr) return;
  if (joined.link->rank() == 0) static_cast<void>(joined.group->end());
  joined.link->leave();
  joined.group.reset();
  joined.link.reset();
}

Result<RankedEngine> open_on_ranks(const std::string& path, const EngineOptions& options,
                                   const QSFConfig& config) {
  if (joined.group == nullptr) {
    QSF_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::open(path, options));
    return RankedEngine{.ring = nullptr, .engine = std::move(engine)};
  }
  if (config.rank_window < 0) {
    return invalid_argument("window of a rank: %d layers, expected at least 0", config.rank_window);
  }
  return joined.group->open(
      path, options,
      {.window = static_cast<std::uint32_t>(config.rank_window), .force = config.force_ranks});
}

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: as in capi.cc

qsf_code qsf_ranks_join(int* rank, int* n_ranks, qsf_error* error) {
  return guarded(error, [&] { return join(rank, n_ranks); });
}
void qsf_ranks_leave(void) {
  leave_ranks();
}
void qsf_config_set_ranks(QSFConfig* config, int window, int force) {
  if (config == nullptr) return;
  config->rank_window = window;
  config->force_ranks = force != 0;
}
