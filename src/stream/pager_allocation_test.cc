// SPDX-License-Identifier: MIT
//
// Streaming allocates nothing once a pager is open: malloc itself is counted, so that the libraries
// of compression count as well.

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "stream/testing/pager_files.h"
#include "stream/testing/pager_reference.h"
#include "stream/weight_pager.h"

namespace qsf {
namespace {

using testing_support::counts_allocations;
using testing_support::n_allocations;
using testing_support::open_pager;
using testing_support::open_reader;
using testing_support::pager_file_path;
using testing_support::PagerFile;
using testing_support::Storage;
using testing_support::Watchdog;

TEST(PagerAllocationTest, PassesAndRowsAllocateNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const Watchdog watchdog{120};
  for (const Storage& storage :
       {Storage{}, Storage{{QuantType::kQ4, 64}, Layout::kRowMajor, Compression::kZstd},
        Storage{{QuantType::kQ4, 64}, Layout::kInterleaved, Compression::kLz4}}) {
    for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap}) {
      const PagerFile file(pager_file_path(), storage, {.n_layers = 4});
      const QsfReader reader = open_reader(file.path());
      const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
      auto opened = open_pager(reader, {.limits = {.bytes = least + 30000, .ring_bytes = 1},
                                        .device = {.path = path, .direct = false}})
                        .value();
      WeightPager& pager = *opened.pager;
      std::vector<float> row(150);
      ASSERT_TRUE(pager.load().ok());
      const TileId first = pager.tiles_of(layer_section(0), 1).front();
      const long before = n_allocations();
      bool all_ok = true;
      for (int pass = 0; pass < 5; ++pass) {
        pager.start_pass(pager.plan_of(0, reader.spec().n_layers, true));
        for (std::uint32_t r = 0; r < 300; r += 11)
          all_ok = pager.embedding_row(r, row).ok() && all_ok;
        for (TileId id = first; id < pager.n_tiles(); ++id) {
          all_ok = pager.acquire(id).has_value() && all_ok;
          pager.release(id);
        }
      }
      EXPECT_EQ(n_allocations(), before);
      EXPECT_TRUE(all_ok);
      EXPECT_GT(pager.stats().ring_wraps, 0U);
    }
  }
  EXPECT_GT(n_allocations(), 0);
}

}  // namespace
}  // namespace qsf
