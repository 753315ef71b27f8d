// SPDX-License-Identifier: MIT
//
// Makes values and counts what they cost, so that a template is stopped before it exhausts the
// process.

#ifndef QSF_CHAT_JINJA_HEAP_H_
#define QSF_CHAT_JINJA_HEAP_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/jinja_callable.h"
#include "chat/jinja_limits.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {

// Must outlive every value that it made.
class Heap {
 public:
  explicit Heap(const RunLimits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const RunLimits& limits() const { return limits_; }

  // Counts steps.
  // Fails  kUnsupported when there have been too many
  Status charge(std::uint64_t steps);

  // Fails  kUnsupported when n_bytes more would be too many; called before they are made
  Status check_bytes(std::uint64_t n_bytes) const;

  // What follows makes a value and charges for its making.
  Result<Value> make_text(Text text);
  Result<Value> make_text(std::string_view bytes, bool trusted) {
    return make_text(Text(bytes, trusted));
  }
  // Text that Python calls markup: `+` would escape what is joined to it.
  Result<Value> make_markup(Text text);
  Result<Value> make_list(ListKind kind, std::vector<Value> items);
  // A key that comes again replaces the value and keeps its place.
  // Fails  kInvalidArgument on a key that cannot be one
  Result<Value> make_dict(const std::vector<DictEntry>& entries);
  Result<Value> make_callable(Callable callable);
  Result<Value> make_namespace();

 private:
  Status check_extent(const Extent& extent) const;

  RunLimits limits_;
  std::uint64_t steps_ = 0;
  Usage usage_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_HEAP_H_
