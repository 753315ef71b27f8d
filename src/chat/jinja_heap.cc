// SPDX-License-Identifier: MIT

#include "chat/jinja_heap.h"

#include <string>
#include <utility>

namespace qsf::jinja {

Status Heap::charge(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.steps && steps <= limits_.steps) return ok_status();
  return unsupported("the template ran for %zu steps and did not end; it is stopped there",
                     limits_.steps);
}

Status Heap::check_bytes(std::uint64_t n_bytes) const {
  if (n_bytes <= limits_.live_bytes && usage_.live_bytes + n_bytes <= limits_.live_bytes) {
    return ok_status();
  }
  return unsupported("the template asked for more than %zu bytes of values", limits_.live_bytes);
}

Status Heap::check_extent(const Extent& extent) const {
  if (extent.depth > kMaxNesting) {
    return unsupported("lists or dicts nested deeper than %d levels", kMaxNesting);
  }
  if (extent.cost > limits_.steps) {
    return unsupported("a value that holds more than %zu others", limits_.steps);
  }
  return ok_status();
}

Result<Value> Heap::make_text(Text text) {
  QSF_RETURN_IF_ERROR(charge(1 + text.size() / 64 + text.runs().size() / 4));
  QSF_RETURN_IF_ERROR(check_bytes(text.size() + text.runs().size() * sizeof(TrustRun)));
  return Value{TextRef(std::make_shared<const TextNode>(std::move(text), &usage_))};
}

Result<Value> Heap::make_markup(Text text) {
  QSF_RETURN_IF_ERROR(charge(1 + text.size() / 64 + text.runs().size() / 4));
  QSF_RETURN_IF_ERROR(check_bytes(text.size() + text.runs().size() * sizeof(TrustRun)));
  return Value{TextRef(std::make_shared<const TextNode>(std::move(text), &usage_, true))};
}

Result<Value> Heap::make_list(ListKind kind, std::vector<Value> items) {
  QSF_RETURN_IF_ERROR(charge(1 + items.size() / 4));
  QSF_RETURN_IF_ERROR(check_bytes(items.size() * sizeof(Value)));
  Extent extent{.depth = 1};
  for (const Value& item : items) extent.add(item);
  QSF_RETURN_IF_ERROR(check_extent(extent));
  return Value{ListRef(std::make_shared<const List>(kind, std::move(items), extent, &usage_))};
}

Result<Value> Heap::make_dict(const std::vector<DictEntry>& entries) {
  QSF_RETURN_IF_ERROR(charge(1 + entries.size()));
  QSF_RETURN_IF_ERROR(check_bytes(entries.size() * sizeof(DictEntry)));
  std::vector<DictEntry> kept;
  std::map<std::string, std::size_t, std::less<>> index;
  for (const DictEntry& entry : entries) {
    auto key = dict_key(entry.key);
    if (!key) {
      return invalid_argument("a value of type %s cannot be the key of a dict",
                              std::string(type_name(entry.key)).c_str());
    }
    QSF_RETURN_IF_ERROR(charge(extent_of(entry.key).cost));
    const auto [found, is_new] = index.try_emplace(std::move(*key), kept.size());
    if (is_new) {
      kept.push_back(entry);
    } else {
      kept[found->second].value = entry.value;
    }
  }
  Extent extent{.depth = 1};
  for (const DictEntry& entry : kept) {
    extent.add(entry.key);
    extent.add(entry.value);
  }
  QSF_RETURN_IF_ERROR(check_extent(extent));
  return Value{
      DictRef(std::make_shared<const Dict>(std::move(kept), std::move(index), extent, &usage_))};
}

Result<Value> Heap::make_callable(Callable callable) {
  QSF_RETURN_IF_ERROR(charge(1));
  callable.extent.add(callable.self);
  QSF_RETURN_IF_ERROR(check_extent(callable.extent));
  return Value{CallableRef(std::make_shared<const Callable>(std::move(callable)))};
}

Result<Value> Heap::make_namespace() {
  // Kept to the end of the rendering, so it costs more.
  QSF_RETURN_IF_ERROR(charge(kKeptCost));
  namespaces_.push_back(std::make_unique<Namespace>());
  return Value{namespaces_.back().get()};
}

}  // namespace qsf::jinja
