// SPDX-License-Identifier: MIT

#include "chat/jinja_loop.h"

#include <algorithm>

#include "chat/jinja_scope_entry.h"

namespace qsf::jinja {

Result<bool> Loop::look_ahead() {
  while (next_ < source_.size()) {
    QSF_RETURN_IF_ERROR(interpreter_.heap().charge(1));
    Value item = source_[next_++];
    if (stmt_.condition != nullptr) {
      const Interpreter::ScopeEntry entry(interpreter_, outer_);
      QSF_RETURN_IF_ERROR(interpreter_.assign(stmt_.target, item));
      QSF_ASSIGN_OR_RETURN(const Value passes, interpreter_.evaluate(*stmt_.condition));
      if (!is_true(passes)) continue;
    }
    ahead_.push_back(std::move(item));
    return true;
  }
  return false;
}

Result<bool> Loop::advance() {
  if (ahead_.empty()) {
    QSF_ASSIGN_OR_RETURN(const bool has_more, look_ahead());
    if (!has_more) return false;
  }
  previous_ = std::exchange(current_, std::move(ahead_.front()));
  ahead_.pop_front();
  ++index0_;
  return true;
}

void Loop::release() {
  source_ = {};
  ahead_ = {};
  next_ = 0;
  previous_ = current_ = {};
  last_changed_ = {};
}

Result<std::int64_t> Loop::length() {
  while (true) {
    QSF_ASSIGN_OR_RETURN(const bool has_more, look_ahead());
    if (!has_more) break;
  }
  return index0_ + 1 + static_cast<std::int64_t>(ahead_.size());
}

Result<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return make_int(index0_ + 1);
  if (name == "index0") return make_int(index0_);
  if (name == "first") return make_bool(index0_ == 0);
  if (name == "depth") return make_int(1);
  if (name == "depth0") return make_int(0);
  if (name == "previtem") {
    return index0_ == 0 ? make_undefined("there is no previous item") : previous_;
  }
  if (name == "last" || name == "nextitem") {
    bool has_more = !ahead_.empty();
    if (!has_more) {
      QSF_ASSIGN_OR_RETURN(has_more, look_ahead());
    }
    if (name == "last") return make_bool(!has_more);
    return has_more ? ahead_.front() : make_undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    QSF_ASSIGN_OR_RETURN(const std::int64_t n, length());
    return make_int(name == "length" ? n : name == "revindex" ? n - index0_ : n - index0_ - 1);
  }
  return make_undefined("'LoopContext' object has no attribute '" + shown_name(name) + "'");
}

Result<Value> Loop::cycle(const CallArgs& args) const {
  if (args.positional.empty()) return invalid_argument("loop.cycle: no items to cycle through");
  return args.positional[static_cast<std::size_t>(index0_) % args.positional.size()];
}

Result<Value> Loop::changed(const CallArgs& args) {
  const bool is_same =
      has_changed_ && std::equal(args.positional.begin(), args.positional.end(),
                                 last_changed_.begin(), last_changed_.end(), equal);
  has_changed_ = true;
  if (!is_same) last_changed_ = args.positional;
  return make_bool(!is_same);
}

}  // namespace qsf::jinja
