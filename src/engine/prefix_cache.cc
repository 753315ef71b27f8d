// SPDX-License-Identifier: MIT
//
// The prefix cache: pages of the KV cache that prompts which begin alike share (kv/prefix_tree.h).
//
// A generation that is admitted takes over the longest run of full pages that its prompt begins
// with, and each part of its prompt that was computed enters. Pages that had to leave memory come
// back from files (kv/prefix_folder.h), before its first pass. Only prompt rows enter: their bits
// follow from the tokens alone, so a text is the same whether its prompt was computed or found.

#include "engine/engine_impl.h"
#include "engine/engine_plan.h"
#include "engine/generation.h"

namespace qsf {

namespace {

Status check_prefix_folder(const EngineOptions& options, std::uint64_t page_bytes) {
  if (options.prefix_folder.empty()) return ok_status();
  if (!options.kv_spill_path.empty()) {
    return unsupported(
        "prefix_folder with kv_spill: the pages of the KV cache are in a file already; use one of "
        "the two");
  }
  if (PrefixFolder::n_files(options.prefix_folder_bytes, page_bytes) > 0) return ok_status();
  return invalid_argument(
      "prefix_folder: %llu bytes, expected room for a page of this model, %llu bytes, or more",
      static_cast<unsigned long long>(options.prefix_folder_bytes),
      static_cast<unsigned long long>(PrefixFolder::kHeaderBytes + page_bytes));
}

}  // namespace

Status check_prefix_cache(const EngineOptions& options, std::uint64_t page_bytes) {
  if (!options.prefix_cache) {
    if (!options.prefix_folder.empty()) {
      return invalid_argument("prefix_folder: needs the prefix cache; turn prefix_cache on");
    }
    if (!options.reuse_answers) return ok_status();
    return invalid_argument("reuse_answers: needs the prefix cache; turn prefix_cache on");
  }
  const KvPolicy policy = options.kv_policy.policy;
  if (policy != KvPolicy::kFull) {
    return unsupported(
        "prefix_cache with kv policy %s: texts evict positions of their own choice, so their pages "
        "fit no other text; use kv policy full, or leave prefix_cache out",
        std::string(kv_policy_name(policy)).c_str());
  }
  if (options.attention == AttentionKind::kSparsePrefill) {
    return unsupported(
        "prefix_cache with attention h2o: what a row attends to follows from sums over the rows "
        "before it, which pages do not hold; use full, or leave prefix_cache out");
  }
  if (options.attention == AttentionKind::kSymmetric) {
    return unsupported(
        "prefix_cache with attention symmetric: the rows of a prompt attend to later ones, so "
        "prompts that begin alike share nothing; use full, or leave prefix_cache out");
  }
  if (!options.record_passes) return check_prefix_folder(options, page_bytes);
  return unsupported(
      "prefix_cache with record_passes: messages do not tell which pages a sequence shares; use "
      "one of the two");
}

PrefixCacheStats Engine::Impl::prefix_stats() const noexcept {
  if (!prefix_tree.has_value()) return {};
  return {.tree = prefix_tree->stats(),
          .n_continued = n_continued,
          .folder = prefix_folder == nullptr ? PrefixFolderStats{} : prefix_folder->stats(),
          .n_folder_hits = n_folder_hits,
          .n_folder_hit_tokens = n_folder_hit_tokens};
}

Status Engine::Impl::check_prefix_key(const std::optional<std::string>& key) const {
  if (!key.has_value() || ignores_prefix_keys) return ok_status();
  if (!prefix_tree.has_value()) {
    return invalid_argument(
        "prefix_key: the model was opened without a prefix cache; open it with prefix_cache, or "
        "leave the key out");
  }
  if (key->size() <= kMaxPrefixKeyBytes) return ok_status();
  return invalid_argument("prefix_key: %zu bytes, expected at most %zu", key->size(),
                          kMaxPrefixKeyBytes);
}

void Generation::adopt_prefix() {
  begins_session_ = session_.tokens_.empty() && session_.pending_token_ == kNoToken;
  if (!options_.prefix_key.has_value() || !begins_session_ || prompt_log_probs_.has_value()) {
    return;
  }
  Engine::Impl& engine = session_.engine_;
  const Status given_back = engine.kv->reserve(sequence(), 0);  // by resume(), before admission
  QSF_DCHECK(given_back.ok());
  const std::uint32_t n_pages =
      engine.prefix_tree->adopt(*options_.prefix_key, prompt_, sequence());
  engine.n_shareable[sequence()] = n_pages * kKvPageSlots;
  n_prompt_done_ = std::size_t{n_pages} * kKvPageSlots;
  const auto end = prompt_.begin() + static_cast<std::ptrdiff_t>(n_prompt_done_);
  session_.tokens_.assign(prompt_.begin(), end);
  if (engine.prefix_folder == nullptr || prompt_.empty()) return;
  n_to_read_ =
      engine.prefix_tree->find_in_folder(*options_.prefix_key, prompt_, n_pages, read_path_);
}

void Engine::Impl::read_prefixes(PassInFlight& pass) {
  std::uint32_t n_left = PrefixFolder::kPagesPerPass;
  for (Generation* const member : pass.members) {
    if (!member->is_reading()) continue;
    n_left -= member->read_prefix(n_left);
    pass.counts.n_reading += member->is_reading() ? 1 : 0;
  }
}

std::uint32_t Generation::read_prefix(std::uint32_t n_most) {
  Engine::Impl& engine = session_.engine_;
  const std::uint32_t n = std::min(n_most, n_to_read_);
  std::uint32_t n_done = 0;
  for (; n_done < n; ++n_done) {
    const std::span<const TokenId> tokens =
        std::span<const TokenId>(prompt_).subspan(n_prompt_done_, kKvPageSlots);
    const std::uint32_t slot = engine.kv->n_slots(sequence());
    const PrefixPath path = engine.prefix_folder->path_of(read_path_, tokens);
    if (!engine.kv->append(sequence(), kKvPageSlots).has_value()) break;
    if (!engine.prefix_folder->read(path, engine.kv->page_of(sequence(), slot))) {
      engine.truncate(sequence(), slot);
      break;
    }
    std::uint32_t& n_shareable = engine.n_shareable[sequence()];
    if (n_shareable == slot) n_shareable += kKvPageSlots;
    session_.tokens_.insert(session_.tokens_.end(), tokens.begin(), tokens.end());
    n_prompt_done_ += kKvPageSlots;
    result_.cached_tokens += kKvPageSlots;
    progress_.total_rows -= kKvPageSlots;
    read_path_ = path;
  }
  n_read_ += n_done;
  n_to_read_ = n_done < n ? 0 : n_to_read_ - n;
  engine.n_folder_hit_tokens += std::uint64_t{n_done} * kKvPageSlots;
  share_prefix();
  if (n_to_read_ != 0) return n_done;
  if (n_read_ != 0) ++engine.n_folder_hits;
  count_prefix();
  return n_done;
}

void Generation::return_prefix() {
  n_to_read_ = 0;
  if (n_prompt_done_ == 0) return;
  session_.engine_.truncate(sequence(), 0);
  session_.tokens_.clear();
  n_prompt_done_ = 0;
}

void Generation::count_prefix() {
  if (!options_.prefix_key.has_value() || prompt_log_probs_.has_value()) return;
  Engine::Impl& engine = session_.engine_;
  if (!begins_session_) {
    ++engine.n_continued;
    return;
  }
  result_.cached_tokens = static_cast<std::uint32_t>(n_prompt_done_);
  if (n_to_read_ != 0) return;
  engine.prefix_tree->count(*options_.prefix_key, prompt_, result_.cached_tokens / kKvPageSlots);
}

void Generation::share_prefix() {
  if (!options_.prefix_key.has_value()) return;
  Engine::Impl& engine = session_.engine_;
  const std::size_t n = std::min<std::size_t>(engine.n_shareable[sequence()], session_.length());
  engine.prefix_tree->insert(*options_.prefix_key, session_.tokens().first(n), sequence());
}

}  // namespace qsf
