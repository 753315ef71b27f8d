// SPDX-License-Identifier: MIT
//
// Nodes by page number, found by a hash of root, parent and tokens. Tokens are compared as well, so
// no text is taken for another. Roots and evicted leaves are found by a scan: look-ups are made
// once a request, evictions once a page.

#include "kv/prefix_tree.h"

#include <algorithm>
#include <bit>

#include "base/bit_cast.h"
#include "base/check.h"

namespace qsf {
namespace {

std::uint32_t n_buckets(std::uint32_t n_pages) noexcept {
  return std::bit_ceil(std::min(n_pages, std::uint32_t{1} << 30));
}

constexpr std::uint64_t after(std::uint64_t offset, std::uint64_t n, std::size_t bytes) noexcept {
  return align_up(offset + n * bytes, 64);
}

std::uint64_t hash_of(std::uint32_t root, std::uint32_t parent,
                      std::span<const std::uint32_t> tokens) noexcept {
  std::uint64_t hash = (std::uint64_t{root} << 32) | parent;
  const auto add = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  };
  for (const std::uint32_t token : tokens) add(token);
  return hash;
}

}  // namespace

std::uint64_t PrefixTree::region_bytes(std::uint32_t n_pages) noexcept {
  std::uint64_t end = after(0, n_pages, sizeof(Node));
  end = after(end, n_pages, sizeof(Root));
  end = after(end, n_pages, kKvPageSlots * sizeof(std::uint32_t));
  return after(end, n_buckets(n_pages), sizeof(std::uint32_t));
}

PrefixTree::PrefixTree(KvCache& kv, MutableByteSpan region) : kv_(kv) {
  const std::uint32_t n_pages = kv.limits().n_pages;
  QSF_CHECK(kv.limits().recent_slots == 0 && region.size() >= region_bytes(n_pages));
  QSF_CHECK(bit_cast<std::uintptr_t>(region.data()) % 64 == 0);
  std::byte* at = region.data();
  const auto take = [&at]<typename T>(std::span<T>& to, std::size_t n) {
    to = {reinterpret_cast<T*>(at), n};
    at += align_up(n * sizeof(T), 64);
  };
  take(nodes_, n_pages);
  take(roots_, n_pages);
  take(tokens_, static_cast<std::size_t>(n_pages) * kKvPageSlots);
  take(buckets_, n_buckets(n_pages));
  for (Root& root : roots_) root.n_nodes = 0;
  std::fill(buckets_.begin(), buckets_.end(), kNone);
  kv.set_retainer(this);
}

std::uint32_t PrefixTree::find_root(std::string_view key) const noexcept {
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    if (roots_[i].n_nodes != 0 && key_of(roots_[i]) == key) return static_cast<std::uint32_t>(i);
  }
  return kNone;
}

// Every root in use has a node, and the page of the one to be added has none: a root is free.
std::uint32_t PrefixTree::make_root(std::string_view key) noexcept {
  const auto unused = std::find_if(roots_.begin(), roots_.end(),
                                   [](const Root& root) { return root.n_nodes == 0; });
  QSF_CHECK(unused != roots_.end() && key.size() <= kMaxKeyBytes);
  const ByteSpan bytes = std::as_bytes(std::span(key.data(), key.size()));
  std::copy(bytes.begin(), bytes.end(), unused->key);
  unused->n_bytes = static_cast<std::uint32_t>(key.size());
  return static_cast<std::uint32_t>(unused - roots_.begin());
}

std::uint32_t PrefixTree::find(std::uint32_t root, std::uint32_t parent,
                               std::span<const std::uint32_t> tokens) const noexcept {
  if (root == kNone) return kNone;
  const std::uint64_t hash = hash_of(root, parent, tokens);
  std::uint32_t page = buckets_[hash % buckets_.size()];
  while (page != kNone) {
    const Node& node = nodes_[page];
    if (node.hash == hash && node.root == root && node.parent == parent &&
        std::equal(tokens.begin(), tokens.end(), tokens_of(page).begin())) {
      return page;
    }
    page = node.next;
  }
  return kNone;
}

void PrefixTree::add(std::uint32_t page, std::uint32_t root, std::uint32_t parent,
                     std::span<const std::uint32_t> tokens) noexcept {
  kv_.retain_page(page);
  const std::uint64_t hash = hash_of(root, parent, tokens);
  std::uint32_t& bucket = buckets_[hash % buckets_.size()];
  nodes_[page] = {.root = root,
                  .parent = parent,
                  .n_children = 0,
                  .next = bucket,
                  .hash = hash,
                  .last_use = 0,
                  .path = {}};
  if (folder_ != nullptr) {
    nodes_[page].path = folder_->path_of(
        parent == kNone ? folder_->path_of(key_of(roots_[root])) : nodes_[parent].path, tokens);
  }
  bucket = page;
  std::copy(tokens.begin(), tokens.end(), tokens_of(page).begin());
  ++roots_[root].n_nodes;
  if (parent != kNone) ++nodes_[parent].n_children;
}

void PrefixTree::remove(std::uint32_t page) noexcept {
  const Node& node = nodes_[page];
  QSF_CHECK(node.n_children == 0);
  std::uint32_t* link = &buckets_[node.hash % buckets_.size()];
  while (*link != page) link = &nodes_[*link].next;
  *link = node.next;
  --roots_[node.root].n_nodes;
  if (node.parent != kNone) --nodes_[node.parent].n_children;
  kv_.release_page(page);
}

std::uint32_t PrefixTree::adopt(std::string_view key, std::span<const std::uint32_t> tokens,
                                SequenceId sequence) {
  QSF_CHECK(kv_.n_slots(sequence) == 0);
  if (tokens.empty()) return 0;
  const auto n_most = static_cast<std::uint32_t>((tokens.size() - 1) / kKvPageSlots);
  const std::uint32_t root = find_root(key);
  const std::uint64_t use = ++n_uses_;
  std::uint32_t parent = kNone;
  for (std::uint32_t i = 0; i < n_most; ++i) {
    const std::uint32_t page = find(
        root, parent, tokens.subspan(static_cast<std::size_t>(i) * kKvPageSlots, kKvPageSlots));
    if (page == kNone || !kv_.adopt_page(sequence, page)) return i;
    nodes_[page].last_use = use;
    parent = page;
  }
  return n_most;
}

std::uint32_t PrefixTree::find_in_folder(std::string_view key,
                                         std::span<const std::uint32_t> tokens,
                                         std::uint32_t n_pages, PrefixPath& before) const noexcept {
  const auto n_most = static_cast<std::uint32_t>((tokens.size() - 1) / kKvPageSlots);
  const auto of_page = [&](std::uint32_t i) {
    return tokens.subspan(static_cast<std::size_t>(i) * kKvPageSlots, kKvPageSlots);
  };
  before = folder_->path_of(key);
  for (std::uint32_t i = 0; i < n_pages; ++i) before = folder_->path_of(before, of_page(i));
  PrefixPath path = before;
  for (std::uint32_t i = n_pages; i < n_most; ++i) {
    path = folder_->path_of(path, of_page(i));
    if (!folder_->holds(path)) return i - n_pages;
  }
  return n_most - n_pages;
}

void PrefixTree::count(std::string_view key, std::span<const std::uint32_t> tokens,
                       std::uint32_t n_pages) {
  if (n_pages != 0) {
    ++counts_.n_hits;
    counts_.n_hit_tokens += std::uint64_t{n_pages} * kKvPageSlots;
    return;
  }
  if (tokens.size() <= kKvPageSlots) {
    ++counts_.n_too_short;
    return;
  }
  const std::uint32_t own = find_root(key);
  bool elsewhere = false;
  for (std::uint32_t root = 0; root < roots_.size() && !elsewhere; ++root) {
    elsewhere = root != own && roots_[root].n_nodes != 0 &&
                find(root, kNone, tokens.first(kKvPageSlots)) != kNone;
  }
  ++(elsewhere ? counts_.n_other_key : counts_.n_no_entry);
}

void PrefixTree::insert(std::string_view key, std::span<const std::uint32_t> tokens,
                        SequenceId sequence) {
  QSF_CHECK(tokens.size() <= kv_.n_slots(sequence));
  const auto n_pages = static_cast<std::uint32_t>(tokens.size() / kKvPageSlots);
  const std::uint64_t use = ++n_uses_;
  std::uint32_t root = find_root(key);
  std::uint32_t parent = kNone;
  for (std::uint32_t i = 0; i < n_pages; ++i) {
    const auto of_page = tokens.subspan(static_cast<std::size_t>(i) * kKvPageSlots, kKvPageSlots);
    const std::uint32_t own = kv_.page_of(sequence, i * kKvPageSlots);
    std::uint32_t page = find(root, parent, of_page);
    if (page == kNone) {
      if (kv_.is_retained(own)) return;
      if (root == kNone) root = make_root(key);
      page = own;
      add(page, root, parent, of_page);
    } else if (page != own) {
      if (kv_.page_references(own) != 1) return;
      kv_.exchange_page(sequence, i, page);
    }
    nodes_[page].last_use = use;
    parent = page;
  }
}

void PrefixTree::release_one() noexcept {
  std::uint32_t oldest = kNone;
  for (std::uint32_t page = 0; page < nodes_.size(); ++page) {
    if (!kv_.is_retained(page) || kv_.page_references(page) != 1) continue;
    if (nodes_[page].n_children != 0) continue;
    if (oldest == kNone || nodes_[page].last_use < nodes_[oldest].last_use) oldest = page;
  }
  QSF_CHECK(oldest != kNone);
  if (folder_ != nullptr) folder_->write(nodes_[oldest].path, oldest);
  remove(oldest);
  ++counts_.n_evicted_pages;
}

PrefixTreeStats PrefixTree::stats() const noexcept {
  PrefixTreeStats stats = counts_;
  stats.n_idle_pages = kv_.n_idle_pages();
  for (const Root& root : roots_) {
    stats.n_pages += root.n_nodes;
    stats.n_keys += root.n_nodes != 0 ? 1 : 0;
  }
  for (std::uint32_t page = 0; page < nodes_.size(); ++page) {
    stats.n_entries += kv_.is_retained(page) && nodes_[page].n_children == 0 ? 1 : 0;
  }
  return stats;
}

bool PrefixTree::node_is_consistent(std::uint32_t page) const noexcept {
  const Node& node = nodes_[page];
  const bool has_parent = node.parent != kNone;
  if (has_parent && !kv_.is_retained(node.parent)) return false;
  if (has_parent &&
      (nodes_[node.parent].root != node.root || nodes_[node.parent].last_use < node.last_use)) {
    return false;
  }
  // Its path and tokens lead to it, and to no other node.
  return find(node.root, node.parent, tokens_of(page)) == page &&
         hash_of(node.root, node.parent, tokens_of(page)) == node.hash;
}

// Whether every sequence that holds a node's page holds that of its parent before it.
bool PrefixTree::paths_are_held() const noexcept {
  for (SequenceId sequence = 0; sequence < kv_.limits().max_sequences; ++sequence) {
    if (!kv_.exists(sequence)) continue;
    const std::span<const std::uint32_t> pages = kv_.whole_pages(sequence);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (!kv_.is_retained(pages[i])) continue;
      if (nodes_[pages[i]].parent != (i == 0 ? kNone : pages[i - 1])) return false;
    }
  }
  return true;
}

bool PrefixTree::is_consistent() const noexcept {
  std::uint32_t n_nodes = 0;
  std::uint32_t n_children = 0;
  std::uint32_t n_with_parent = 0;
  for (std::uint32_t page = 0; page < nodes_.size(); ++page) {
    if (!kv_.is_retained(page)) continue;
    if (!node_is_consistent(page)) return false;
    ++n_nodes;
    n_children += nodes_[page].n_children;
    n_with_parent += nodes_[page].parent != kNone ? 1 : 0;
    std::uint32_t n_own = 0;
    for (std::uint32_t other = 0; other < nodes_.size(); ++other) {
      n_own += kv_.is_retained(other) && nodes_[other].parent == page ? 1 : 0;
    }
    if (n_own != nodes_[page].n_children) return false;
  }
  std::uint32_t n_of_roots = 0;
  for (std::uint32_t i = 0; i < roots_.size(); ++i) {
    n_of_roots += roots_[i].n_nodes;
    if (roots_[i].n_nodes != 0 && find_root(key_of(roots_[i])) != i) return false;
  }
  return n_nodes == n_of_roots && n_children == n_with_parent && paths_are_held();
}

}  // namespace qsf
