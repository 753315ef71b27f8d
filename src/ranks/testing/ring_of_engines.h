// SPDX-License-Identifier: MIT
//
// For tests: a ring of engines in threads of one process.

#ifndef QSF_RANKS_TESTING_RING_OF_ENGINES_H_
#define QSF_RANKS_TESTING_RING_OF_ENGINES_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "ranks/ring.h"
#include "ranks/testing/local_links.h"

namespace qsf::testing_support {

// The engines of a ring; those of ranks above 0 serve until the end.
class RingOfEngines {
 public:
  RingOfEngines(const std::string& path, const RingPlan& plan, unsigned n_ranks,
                EngineOptions options)
      : links_(LocalLink::create(n_ranks)) {
    for (const auto& link : links_) {
      rings_.push_back(std::make_unique<Ring>(*link, plan));
      Ring& ring = *rings_.back();
      options.cut = &ring.cut();
      options.pass_hook = {};
      if (link->rank() == 0) {
        options.pass_hook.announce = [](const PassMessage& pass, void* user) {
          return static_cast<Ring*>(user)->announce(pass);
        };
        options.pass_hook.user = &ring;
      }
      auto engine = Engine::open(path, options);
      EXPECT_TRUE(engine.has_value()) << engine.error().message();
      engines_.push_back(std::move(*engine));
    }
    for (unsigned rank = 1; rank < n_ranks; ++rank) {
      threads_.emplace_back([this, rank] {
        const Status status = rings_[rank]->serve(*engines_[rank]);
        EXPECT_TRUE(status.ok()) << status.message();
      });
    }
  }
  ~RingOfEngines() {
    EXPECT_TRUE(rings_[0]->close().ok());
    for (std::thread& thread : threads_) thread.join();
  }
  RingOfEngines(const RingOfEngines&) = delete;
  RingOfEngines& operator=(const RingOfEngines&) = delete;

  Engine& first() { return *engines_[0]; }
  Engine& engine(unsigned rank) { return *engines_[rank]; }
  LocalLink& link(unsigned rank) { return *links_[rank]; }

 private:
  LocalLink::Group links_;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::thread> threads_;
};

}  // namespace qsf::testing_support

#endif  // QSF_RANKS_TESTING_RING_OF_ENGINES_H_
