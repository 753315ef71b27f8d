// SPDX-License-Identifier: MIT
//
// The adapters of an engine: opened and checked before memory is planned, loaded with the weights,
// chosen by each session while it is empty.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "engine/engine_impl.h"
#include "engine/engine_plan.h"

namespace qsf {

DecoderOptions decoder_options(const EngineOptions& options,
                               std::span<const AdapterReader> adapters) noexcept {
  return {.rope_reindex = options.kv_policy.rope_reindex,
          .max_adapter_rank = AdapterSet::max_rank(adapters)};
}

Status Engine::Impl::open_adapters() {
  if (options.adapters.size() > std::numeric_limits<std::uint16_t>::max()) {
    return invalid_argument("adapters: %zu files, expected at most %u", options.adapters.size(),
                            unsigned{std::numeric_limits<std::uint16_t>::max()});
  }
  if (!options.adapters.empty() && options.quality != 1.0F) {
    return unsupported("adapters with quality %g: adapters name layers of the whole model; use 1",
                       static_cast<double>(options.quality));
  }
  for (const AdapterFile& file : options.adapters) {
    QSF_ASSIGN_OR_RETURN(AdapterReader opened, AdapterReader::open(file.path, {}, file_ops()));
    QSF_RETURN_IF_ERROR(check_adapter_fits(opened.spec(), *reader).with_context(file.path));
    AdapterInfo info = {.name = file.name.empty() ? opened.spec().name : file.name,
                        .fingerprint = opened.fingerprint(),
                        .bytes = opened.values_bytes(),
                        .max_rank = AdapterSet::max_rank({&opened, 1})};
    const bool taken = std::any_of(adapters.begin(), adapters.end(),
                                   [&](const AdapterInfo& a) { return a.name == info.name; });
    if (taken) {
      return invalid_argument("%s: a second adapter of the name \"%s\"; give one another name",
                              file.path.c_str(), info.name.c_str());
    }
    adapters.push_back(std::move(info));
    adapter_files.push_back(std::move(opened));
  }
  return check_adapter(options.session_adapter);
}

Status Engine::Impl::load_adapters(MutableByteSpan region) {
  QSF_ASSIGN_OR_RETURN(adapter_set, AdapterSet::load(adapter_files, *reader, region));
  for (const AdapterReader& file : adapter_files) {
    if (options.ram_budget_bytes != 0) file.file().drop_cached();
  }
  adapter_files.clear();
  return ok_status();
}

Status Engine::Impl::check_adapter(AdapterUse use) const {
  if (use.number > adapters.size()) {
    return invalid_argument("adapter %u: the model was opened with %zu adapters", use.number,
                            adapters.size());
  }
  if (std::isfinite(use.scale)) return ok_status();
  return invalid_argument("adapter scale: %g, expected a finite number",
                          static_cast<double>(use.scale));
}

void Engine::Impl::add_adapter_to_key(SequenceId sequence, std::string& key) const {
  const AdapterUse use = sequence_adapters[sequence];
  if (use.number == 0) return;
  std::array<std::byte, 12> bytes;
  store_le(MutableByteSpan(bytes), 0, adapters[use.number - 1U].fingerprint);
  store_le(MutableByteSpan(bytes), 8, use.scale);
  static_assert(kMaxPrefixKeyBytes + sizeof bytes <= PrefixTree::kMaxKeyBytes);
  key.append(as_text(bytes));
}

std::span<const AdapterInfo> Engine::adapters() const noexcept {
  return impl_->adapters;
}

Result<std::uint16_t> Engine::find_adapter(std::string_view name) const {
  std::string names;
  for (std::size_t i = 0; i < impl_->adapters.size(); ++i) {
    const std::string& known = impl_->adapters[i].name;
    if (known == name) return static_cast<std::uint16_t>(i + 1);
    names.append(i == 0 ? "" : ", ").append(known);
  }
  return not_found("adapter \"%s\": the model was opened with %s", std::string(name).c_str(),
                   names.empty() ? "none" : names.c_str());
}

Status Session::set_adapter(AdapterUse use) {
  QSF_RETURN_IF_ERROR(engine_.check_adapter(use));
  if (generation_ != nullptr) {
    return invalid_argument("adapter: the session is generating; choose before that");
  }
  if (!tokens_.empty() || pending_token_ != kNoToken) {
    return invalid_argument(
        "adapter: the session has %zu tokens, computed with another choice; truncate it to 0 "
        "tokens, or take a new session",
        tokens_.size());
  }
  engine_.sequence_adapters[sequence_] = use;
  return ok_status();
}

AdapterUse Session::adapter() const noexcept {
  return engine_.sequence_adapters[sequence_];
}

}  // namespace qsf
