// SPDX-License-Identifier: MIT
//
// The prefix cache: pages of the KV cache that prompts which begin alike share (kv/prefix_tree.h).
//
// A generation that is admitted takes over the longest run of full pages that its prompt begins
// with, and each part of its prompt that was computed enters. Only prompt rows enter: their bits
// follow from the tokens alone, so a text is the same whether its prompt was computed or found.

#include "engine/engine_impl.h"
#include "engine/engine_plan.h"
#include "engine/generation.h"

namespace qsf {

Status check_prefix_cache(const EngineOptions& options) {
  if (!options.prefix_cache) {
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
  if (!options.record_passes) return ok_status();
  return unsupported(
      "prefix_cache with record_passes: messages do not tell which pages a sequence shares; use "
      "one of the two");
}

PrefixCacheStats Engine::Impl::prefix_stats() const noexcept {
  if (!prefix_tree.has_value()) return {};
  return {prefix_tree->stats(), n_continued};
}

Status Engine::Impl::check_prefix_key(const std::optional<std::string>& key) const {
  if (!key.has_value()) return ok_status();
  if (!prefix_tree.has_value()) {
    return invalid_argument(
        "prefix_key: the model was opened without a prefix cache; open it with prefix_cache, or "
        "leave the key out");
  }
  if (key->size() <= PrefixTree::kMaxKeyBytes) return ok_status();
  return invalid_argument("prefix_key: %zu bytes, expected at most %zu", key->size(),
                          PrefixTree::kMaxKeyBytes);
}

void Generation::adopt_prefix() {
  begins_session_ = session_.tokens_.empty() && session_.pending_token_ == kNoToken;
  if (!options_.prefix_key.has_value() || !begins_session_) return;
  Engine::Impl& engine = session_.engine_;
  const Status given_back = engine.kv->reserve(sequence(), 0);  // by resume(), before admission
  QSF_DCHECK(given_back.ok());
  const std::uint32_t n_pages =
      engine.prefix_tree->adopt(*options_.prefix_key, prompt_, sequence());
  engine.n_shareable[sequence()] = n_pages * kKvPageSlots;
  n_prompt_done_ = std::size_t{n_pages} * kKvPageSlots;
  const auto end = prompt_.begin() + static_cast<std::ptrdiff_t>(n_prompt_done_);
  session_.tokens_.assign(prompt_.begin(), end);
}

void Generation::return_prefix() {
  if (n_prompt_done_ == 0) return;
  session_.engine_.truncate(sequence(), 0);
  session_.tokens_.clear();
  n_prompt_done_ = 0;
}

void Generation::count_prefix() {
  if (!options_.prefix_key.has_value()) return;
  Engine::Impl& engine = session_.engine_;
  if (!begins_session_) {
    ++engine.n_continued;
    return;
  }
  result_.cached_tokens = static_cast<std::uint32_t>(n_prompt_done_);
  engine.prefix_tree->count(*options_.prefix_key, prompt_, result_.cached_tokens / kKvPageSlots);
}

void Generation::share_prefix() {
  if (!options_.prefix_key.has_value()) return;
  Engine::Impl& engine = session_.engine_;
  const std::size_t n = std::min<std::size_t>(engine.n_shareable[sequence()], session_.length());
  engine.prefix_tree->insert(*options_.prefix_key, session_.tokens().first(n), sequence());
}

}  // namespace qsf
