// SPDX-License-Identifier: MIT
//
// A model that the ranks of a group run together.
//
// Rank 0 opens the model and uses its engine as one of all layers; the others do what it says. All
// must find the same file under the same path, and run the same QSF in the same tier of
// instruction sets. Each plans its part within the memory budget that rank 0 was given.

#ifndef QSF_RANKS_RANK_GROUP_H_
#define QSF_RANKS_RANK_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/engine.h"
#include "ranks/link.h"
#include "ranks/ring.h"

namespace qsf {

struct RankOptions {
  std::uint32_t window = 0;  // layers of a window; 0: chosen
  bool force = false;        // also where one process would be faster
};

// An engine that other ranks run with.
struct RankedEngine {
  std::shared_ptr<Ring> ring;  // outlives the engine; has the other ranks close theirs
  std::unique_ptr<Engine> engine;
};

struct Opening;  // opening.h

// Threads  one at a time
class RankGroup {
 public:
  // Requires  the link outlives the group
  explicit RankGroup(Link& link) : link_(link) {}

  // On rank 0: opens a model on all ranks; one at a time.
  // Fails  as Engine::open(), of any rank, which the message names; kUnsupported: options that
  // ranks
  //        cannot share, or a model that one process runs faster;
  //        kInvalidArgument: another model is open
  Result<RankedEngine> open(const std::string& path, const EngineOptions& options,
                            const RankOptions& rank_options);
  // On rank 0: has the others' serve() return. Fails  kIo
  Status end();
  // On other ranks: does what rank 0 says, until the group ends. Fails  kIo, kCorrupt
  Status serve();

 private:
  // What a rank can have of the shape of passes, and its tier of instruction sets.
  struct Reply {
    Status status;
    std::uint32_t rows_per_pass = 0;
    std::uint32_t context = 0;
    std::string tier;
  };
  static Reply reply_to(const Opening& opening, const EngineOptions& options,
                        std::unique_ptr<Engine>* engine);
  Result<std::vector<Reply>> collect_replies();
  Result<Reply> agree(const Opening& opening, const EngineOptions& own,
                      std::unique_ptr<Engine>* engine);
  Status serve_opening(ByteSpan request);

  Link& link_;
  std::weak_ptr<Ring> open_;  // of rank 0
};

}  // namespace qsf

#endif  // QSF_RANKS_RANK_GROUP_H_
