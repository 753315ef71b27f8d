// SPDX-License-Identifier: MIT
//
// PrefixTree: pages of the KV cache by the tokens that they hold, for texts that begin alike.
//
// A node is one full page of kKvPageSlots tokens, and its path from the root is a text from its
// start. Every caller's key has a root of its own, so texts of different keys share nothing. A node
// is the number of its page: there are at most as many nodes as pages.
//
// The tree retains its pages (KvCache::retain_page). A sequence that holds a page of the tree holds
// the pages before it on the path too, so idle pages have idle children only: whenever a page is
// idle, a leaf is, and of the idle leaves the least recently used one is released first.
//
// With a PrefixFolder a page that is evicted goes to a file, and is found there again.
//
// Which rows may enter is the caller's to decide: equal tokens must have equal keys and values.
//
// All tables lie in a region that the caller plans; nothing is allocated after creation.

#ifndef QSF_KV_PREFIX_TREE_H_
#define QSF_KV_PREFIX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "kv/kv_cache.h"
#include "kv/prefix_folder.h"

namespace qsf {

// Counts from creation on, but for what is held now.
struct PrefixTreeStats {
  std::uint32_t n_keys = 0;     // with pages
  std::uint32_t n_entries = 0;  // texts that no other one continues: leaves
  std::uint32_t n_pages = 0;
  std::uint32_t n_idle_pages = 0;  // of them, held by no sequence
  std::uint64_t n_hits = 0;        // look-ups that found at least a page
  std::uint64_t n_hit_tokens = 0;
  std::uint64_t n_no_entry = 0;   // look-ups that found nothing, by reason
  std::uint64_t n_other_key = 0;  // the first page is there, under another key
  std::uint64_t n_too_short = 0;  // no full page before the last token
  std::uint64_t n_evicted_pages = 0;
};

// Threads  as KvCache
class PrefixTree final : public PageRetainer {
 public:
  static constexpr std::size_t kMaxKeyBytes = 272;

  // Bytes of the region that the constructor wants.
  static std::uint64_t region_bytes(std::uint32_t n_pages) noexcept;

  // Becomes the retainer of `kv`.
  // Requires  region.size() >= region_bytes(kv.limits().n_pages), 64-byte aligned; kv, which has no
  //           recent_slots, and region outlive the tree
  PrefixTree(KvCache& kv, MutableByteSpan region);
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Where evicted pages go; null: nowhere. Requires  it outlives the tree, which is empty
  void set_folder(PrefixFolder* folder) noexcept { folder_ = folder; }

  // Gives an empty sequence the longest run of pages that `tokens` begins with, but never all of
  // `tokens`, and returns their number. Stops at idle pages that are reserved as free ones.
  // Requires  key.size() <= kMaxKeyBytes; the sequence has no reservation
  std::uint32_t adopt(std::string_view key, std::span<const std::uint32_t> tokens,
                      SequenceId sequence);
  // Returns how many pages the folder has of `tokens` behind the first `n_pages`, never of all of
  // `tokens`; `before` receives the path of those first ones.
  // Requires  set_folder(); n_pages full pages in `tokens`
  std::uint32_t find_in_folder(std::string_view key, std::span<const std::uint32_t> tokens,
                               std::uint32_t n_pages, PrefixPath& before) const noexcept;
  // Counts a look-up that found `n_pages` pages.
  void count(std::string_view key, std::span<const std::uint32_t> tokens, std::uint32_t n_pages);

  // Takes in the full pages of `tokens`, with which a sequence begins. Where the tree has another
  // page for the same tokens, the sequence gets that one for its own, which becomes free. Stops at
  // a page that a fork or another key has a part in.
  // Requires  key.size() <= kMaxKeyBytes; tokens.size() <= kv.n_slots(sequence)
  void insert(std::string_view key, std::span<const std::uint32_t> tokens, SequenceId sequence);

  // Evicts the least recently used idle leaf.
  void release_one() noexcept override;

  PrefixTreeStats stats() const noexcept;
  // Checks every node, and every sequence that holds one. For tests and debug builds.
  bool is_consistent() const noexcept;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Node {
    std::uint32_t root;
    std::uint32_t parent;  // kNone: the root
    std::uint32_t n_children;
    std::uint32_t next;  // in its bucket
    std::uint64_t hash;
    std::uint64_t last_use;
    PrefixPath path;  // with a folder
  };
  struct Root {
    std::uint32_t n_nodes;  // 0: not in use
    std::uint32_t n_bytes;
    std::byte key[kMaxKeyBytes];
  };

  std::string_view key_of(const Root& root) const noexcept {
    return {reinterpret_cast<const char*>(root.key), root.n_bytes};
  }
  std::span<std::uint32_t> tokens_of(std::uint32_t page) const noexcept {
    return tokens_.subspan(static_cast<std::size_t>(page) * kKvPageSlots, kKvPageSlots);
  }
  std::uint32_t find_root(std::string_view key) const noexcept;
  std::uint32_t make_root(std::string_view key) noexcept;
  std::uint32_t find(std::uint32_t root, std::uint32_t parent,
                     std::span<const std::uint32_t> tokens) const noexcept;
  void add(std::uint32_t page, std::uint32_t root, std::uint32_t parent,
           std::span<const std::uint32_t> tokens) noexcept;
  void remove(std::uint32_t page) noexcept;
  bool node_is_consistent(std::uint32_t page) const noexcept;
  bool paths_are_held() const noexcept;

  KvCache& kv_;
  PrefixFolder* folder_ = nullptr;
  std::span<Node> nodes_;             // [n_pages]; used where the page is retained
  std::span<Root> roots_;             // [n_pages]
  std::span<std::uint32_t> tokens_;   // [n_pages][kKvPageSlots]
  std::span<std::uint32_t> buckets_;  // [power of two]; first node of each
  std::uint64_t n_uses_ = 0;
  PrefixTreeStats counts_;
};

}  // namespace qsf

#endif  // QSF_KV_PREFIX_TREE_H_
