// SPDX-License-Identifier: MIT

#include "import/pytorch/pytorch_unpickler.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/utf8_text.h"
#include "import/pytorch/pytorch_globals.h"

namespace qsf {

namespace {

struct OpcodeName {
  std::uint8_t code;
  const char* name;
};
constexpr OpcodeName kOpcodeNames[] = {
    {'(', "MARK"},          {')', "EMPTY_TUPLE"},
    {'.', "STOP"},          {'0', "POP"},
    {'1', "POP_MARK"},      {'2', "DUP"},
    {'B', "BINBYTES"},      {'C', "SHORT_BINBYTES"},
    {'F', "FLOAT"},         {'G', "BINFLOAT"},
    {'I', "INT"},           {'J', "BININT"},
    {'K', "BININT1"},       {'L', "LONG"},
    {'M', "BININT2"},       {'N', "NONE"},
    {'P', "PERSID"},        {'Q', "BINPERSID"},
    {'R', "REDUCE"},        {'S', "STRING"},
    {'T', "BINSTRING"},     {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},       {'X', "BINUNICODE"},
    {']', "EMPTY_LIST"},    {'a', "APPEND"},
    {'b', "BUILD"},         {'c', "GLOBAL"},
    {'d', "DICT"},          {'e', "APPENDS"},
    {'g', "GET"},           {'h', "BINGET"},
    {'i', "INST"},          {'j', "LONG_BINGET"},
    {'l', "LIST"},          {'o', "OBJ"},
    {'p', "PUT"},           {'q', "BINPUT"},
    {'r', "LONG_BINPUT"},   {'s', "SETITEM"},
    {'t', "TUPLE"},         {'u', "SETITEMS"},
    {'}', "EMPTY_DICT"},    {0x80, "PROTO"},
    {0x81, "NEWOBJ"},       {0x82, "EXT1"},
    {0x83, "EXT2"},         {0x84, "EXT4"},
    {0x85, "TUPLE1"},       {0x86, "TUPLE2"},
    {0x87, "TUPLE3"},       {0x88, "NEWTRUE"},
    {0x89, "NEWFALSE"},     {0x8a, "LONG1"},
    {0x8b, "LONG4"},        {0x8c, "SHORT_BINUNICODE"},
    {0x8d, "BINUNICODE8"},  {0x8e, "BINBYTES8"},
    {0x8f, "EMPTY_SET"},    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},    {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"}, {0x94, "MEMOIZE"},
    {0x95, "FRAME"},        {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"},
};

}  // namespace

std::string opcode_text(std::uint8_t code) {
  char text[64];
  for (const OpcodeName& opcode : kOpcodeNames) {
    if (opcode.code != code) continue;
    std::snprintf(text, sizeof(text), "%s (0x%02x)", opcode.name, code);
    return text;
  }
  std::snprintf(text, sizeof(text), "byte 0x%02x, which is no opcode of pickle", code);
  return text;
}

namespace {

constexpr std::size_t kBufferBytes = 64U << 10;

}  // namespace

PickleInput::PickleInput(const File& file, std::uint64_t begin, std::uint64_t n_bytes) noexcept
    : file_(file),
      begin_(begin),
      n_bytes_(std::min(n_bytes, kMaxPickleBytes)),
      cut_(n_bytes > kMaxPickleBytes) {}

bool PickleInput::fill() {
  if (!ok()) return false;
  if (remaining() == 0) {
    status_ = cut_ ? unsupported("the pickle is longer than %" PRIu64 " bytes", kMaxPickleBytes)
                   : corrupt("the pickle ends at byte %" PRIu64
                             " without being complete; the file is truncated or damaged",
                             n_bytes_);
    return false;
  }
  buffer_.resize(std::min<std::uint64_t>(kBufferBytes, remaining()));
  used_ = 0;
  status_ = file_.read_exact_at(begin_ + position_, buffer_);
  return ok();
}

bool PickleInput::take(MutableByteSpan to) {
  while (ok() && !to.empty()) {
    if (used_ == buffer_.size() && !fill()) return false;
    const std::size_t n = std::min(to.size(), buffer_.size() - used_);
    std::memcpy(to.data(), buffer_.data() + used_, n);
    used_ += n;
    position_ += n;
    to = to.subspan(n);
  }
  return ok();
}

std::string PickleInput::read_text(std::size_t n_bytes) {
  std::string text(n_bytes, '\0');
  if (!take(std::as_writable_bytes(std::span(text)))) text.clear();
  return text;
}

std::string PickleInput::read_line(std::size_t max_bytes) {
  std::string line;
  while (line.size() <= max_bytes) {
    const char next = read<char>();
    if (!ok()) return {};
    if (next == '\n') return line;
    line += next;
  }
  status_ = corrupt("a line of more than %zu bytes", max_bytes);
  return {};
}

namespace {

constexpr std::size_t kMaxGlobalBytes = 256;

class Unpickler {
 public:
  Unpickler(PickleInput& input, PickleObjects& objects) : in_(input), objects_(objects) {}

  Result<PickleValue> run() {
    for (std::uint64_t n_steps = 0; n_steps < kMaxPickleSteps; ++n_steps) {
      const std::uint64_t at = in_.position();
      const auto code = in_.read<std::uint8_t>();
      Status status = in_.ok() ? step(code, n_steps == 0) : ok_status();
      // What was missing reads as zeros, on which a step may have failed in its own way.
      if (!in_.ok()) status = in_.status();
      if (!status.ok()) {
        return std::move(status).with_context("byte " + std::to_string(at) + ": " +
                                              opcode_text(code));
      }
      if (stopped_) return stack_.back();
    }
    return unsupported("byte %" PRIu64 ": the pickle has more than %" PRIu64 " steps",
                       in_.position(), kMaxPickleSteps);
  }

 private:
  using Values = std::vector<PickleValue>;

  Status step(std::uint8_t code, bool is_first) {
    if (is_first != (static_cast<PickleOpcode>(code) == PickleOpcode::kProto)) {
      return corrupt(is_first ? "not a pickle of protocol 2 to 5, which begins with PROTO"
                              : "PROTO in the middle of a pickle");
    }
    switch (static_cast<PickleOpcode>(code)) {
      case PickleOpcode::kProto: return check_protocol();
      case PickleOpcode::kFrame: return check_frame();
      case PickleOpcode::kStop: return stop();
      case PickleOpcode::kMark: return push_mark();
      case PickleOpcode::kNone: return push({PickleKind::kNone});
      case PickleOpcode::kNewTrue: return push({PickleKind::kBool, 1});
      case PickleOpcode::kNewFalse: return push({PickleKind::kBool, 0});
      case PickleOpcode::kBinInt: return push({PickleKind::kInt, in_.read<std::int32_t>()});
      case PickleOpcode::kBinInt1: return push({PickleKind::kInt, in_.read<std::uint8_t>()});
      case PickleOpcode::kBinInt2: return push({PickleKind::kInt, in_.read<std::uint16_t>()});
      case PickleOpcode::kLong1: return push_long();
      case PickleOpcode::kBinFloat: in_.read<std::uint64_t>(); return push({PickleKind::kFloat});
      case PickleOpcode::kBinUnicode: return push_text(in_.read<std::uint32_t>());
      case PickleOpcode::kShortBinUnicode: return push_text(in_.read<std::uint8_t>());
      case PickleOpcode::kEmptyTuple: return push_new(objects_.tuples, PickleKind::kTuple);
      case PickleOpcode::kEmptyList: return push_new(objects_.lists, PickleKind::kList);
      case PickleOpcode::kEmptyDict: return push_new(objects_.dicts, PickleKind::kDict);
      case PickleOpcode::kTuple1: return push_tuple(1);
      case PickleOpcode::kTuple2: return push_tuple(2);
      case PickleOpcode::kTuple3: return push_tuple(3);
      case PickleOpcode::kTuple: return push_tuple_to_mark();
      case PickleOpcode::kAppend: return append(1);
      case PickleOpcode::kAppends: return append_to_mark();
      case PickleOpcode::kSetItem: return set_items(2);
      case PickleOpcode::kSetItems: return set_items_to_mark();
      case PickleOpcode::kBinPut: return put(in_.read<std::uint8_t>());
      case PickleOpcode::kLongBinPut: return put(in_.read<std::uint32_t>());
      case PickleOpcode::kMemoize: return put(memo_.size());
      case PickleOpcode::kBinGet: return get(in_.read<std::uint8_t>());
      case PickleOpcode::kLongBinGet: return get(in_.read<std::uint32_t>());
      case PickleOpcode::kGlobal: return push_global();
      case PickleOpcode::kStackGlobal: return push_stack_global();
      case PickleOpcode::kReduce: return reduce();
      case PickleOpcode::kBuild: return build();
      case PickleOpcode::kBinPersId: return push_persistent();
    }
    return unsupported("a state dict does not need this; %s", kPytorchAdvice);
  }

  Status check_protocol() {
    const unsigned protocol = in_.read<std::uint8_t>();
    if (protocol >= 2 && protocol <= 5) return ok_status();
    return unsupported("protocol %u, expected 2 to 5", protocol);
  }

  // A frame only announces how many bytes follow before the next.
  Status check_frame() {
    const auto n_bytes = in_.read<std::uint64_t>();
    if (n_bytes <= in_.remaining()) return ok_status();
    return corrupt("a frame of %" PRIu64 " bytes where %" PRIu64 " are left", n_bytes,
                   in_.remaining());
  }

  Status stop() {
    if (stack_.size() != 1 || !marks_.empty()) {
      return corrupt("%zu values on the stack, expected one", stack_.size());
    }
    stopped_ = true;
    return ok_status();
  }

  // The values above the innermost mark, which are all that a step may take.
  std::size_t available() const noexcept {
    return stack_.size() - (marks_.empty() ? 0 : marks_.back());
  }
  Status need(std::size_t n_values) const {
    if (available() >= n_values) return ok_status();
    return corrupt("it takes %zu values from the stack, which has %zu above the last mark",
                   n_values, available());
  }
  // Returns the last `n_values` of the stack, valid until it changes.
  // Requires  need(n_values)
  std::span<const PickleValue> top(std::size_t n_values) const noexcept {
    return std::span(stack_).last(n_values);
  }
  void drop(std::size_t n_values) { stack_.resize(stack_.size() - n_values); }

  Status push(PickleValue value) {
    if (stack_.size() == kMaxPickleStack) {
      return unsupported("more than %zu values on the stack", kMaxPickleStack);
    }
    stack_.push_back(value);
    return ok_status();
  }
  Status push_mark() {
    if (marks_.size() == kMaxPickleStack) {
      return unsupported("more than %zu marks on the stack", kMaxPickleStack);
    }
    marks_.push_back(stack_.size());
    return ok_status();
  }
  // Removes the innermost mark; the values above it stay.
  // Guarantees  *n_values is their number
  Status pop_mark(std::size_t* n_values) {
    if (marks_.empty()) return corrupt("no mark on the stack");
    *n_values = available();
    marks_.pop_back();
    return ok_status();
  }

  template <typename T>
  Status push_new(std::vector<T>& table, PickleKind kind) {
    table.emplace_back();
    return push({kind, static_cast<std::int64_t>(table.size() - 1)});
  }

  Status push_text(std::size_t n_bytes) {
    if (n_bytes > kMaxPickleTextBytes) {
      return unsupported("a text of %zu bytes, expected at most %zu", n_bytes, kMaxPickleTextBytes);
    }
    std::string text = in_.read_text(n_bytes);
    if (find_non_text(text) != text.size()) return corrupt("a text that is not valid UTF-8");
    QSF_RETURN_IF_ERROR(push_new(objects_.texts, PickleKind::kText));
    objects_.texts.back() = std::move(text);
    return ok_status();
  }

  // A two's complement number, little-endian, of any length.
  Status push_long() {
    std::string bytes = in_.read_text(in_.read<std::uint8_t>());
    if (bytes.size() > sizeof(std::int64_t)) {
      objects_.texts.push_back(std::move(bytes));
      return push({PickleKind::kLong, static_cast<std::int64_t>(objects_.texts.size() - 1)});
    }
    const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0;
    bytes.resize(sizeof(std::int64_t), negative ? '\xff' : '\0');
    return push({PickleKind::kInt, load_le<std::int64_t>(as_bytes(bytes), 0)});
  }

  Status push_tuple(std::size_t n_values) {
    QSF_RETURN_IF_ERROR(need(n_values));
    const auto values = top(n_values);
    objects_.tuples.emplace_back(values.begin(), values.end());
    drop(n_values);
    return push({PickleKind::kTuple, static_cast<std::int64_t>(objects_.tuples.size() - 1)});
  }
  Status push_tuple_to_mark() {
    std::size_t n_values = 0;
    QSF_RETURN_IF_ERROR(pop_mark(&n_values));
    return push_tuple(n_values);
  }

  // Checks that the value below the last `n_values` has the kind.
  Status check_target(std::size_t n_values, PickleKind kind) const {
    QSF_RETURN_IF_ERROR(need(n_values + 1));
    const PickleValue target = top(n_values + 1).front();
    if (target.kind == kind) return ok_status();
    return unsupported("it changes %s, expected %s; %s", kind_text(target.kind), kind_text(kind),
                       kPytorchAdvice);
  }

  Status append(std::size_t n_values) {
    QSF_RETURN_IF_ERROR(check_target(n_values, PickleKind::kList));
    const auto values = top(n_values);
    Values& list = objects_.lists[top(n_values + 1).front().index()];
    list.insert(list.end(), values.begin(), values.end());
    drop(n_values);
    return ok_status();
  }
  Status append_to_mark() {
    std::size_t n_values = 0;
    QSF_RETURN_IF_ERROR(pop_mark(&n_values));
    return append(n_values);
  }

  Status set_items(std::size_t n_values) {
    QSF_RETURN_IF_ERROR(check_target(n_values, PickleKind::kDict));
    if (n_values % 2 != 0) return corrupt("a key without a value");
    const auto values = top(n_values);
    PickleDict& dict = objects_.dicts[top(n_values + 1).front().index()];
    for (std::size_t i = 0; i < n_values; i += 2) dict.items.emplace_back(values[i], values[i + 1]);
    drop(n_values);
    return ok_status();
  }
  Status set_items_to_mark() {
    std::size_t n_values = 0;
    QSF_RETURN_IF_ERROR(pop_mark(&n_values));
    return set_items(n_values);
  }

  // Picklers number what they remember from 0 on, without gaps.
  Status put(std::uint64_t index) {
    QSF_RETURN_IF_ERROR(need(1));
    if (index > memo_.size()) {
      return corrupt("memo entry %" PRIu64 " after %zu entries", index, memo_.size());
    }
    if (index == memo_.size()) {
      memo_.push_back(stack_.back());
    } else {
      memo_[static_cast<std::size_t>(index)] = stack_.back();
    }
    return ok_status();
  }
  Status get(std::uint64_t index) {
    if (index >= memo_.size()) {
      return corrupt("memo entry %" PRIu64 " of %zu", index, memo_.size());
    }
    return push(memo_[static_cast<std::size_t>(index)]);
  }

  Status push_global() {
    const std::string module = in_.read_line(kMaxGlobalBytes);
    const std::string name = in_.read_line(kMaxGlobalBytes);
    QSF_ASSIGN_OR_RETURN(const PickleValue global, find_global(module, name));
    return push(global);
  }
  Status push_stack_global() {
    QSF_RETURN_IF_ERROR(need(2));
    const auto names = top(2);
    if (names[0].kind != PickleKind::kText || names[1].kind != PickleKind::kText) {
      return corrupt("a global named by %s and %s, expected two texts", kind_text(names[0].kind),
                     kind_text(names[1].kind));
    }
    QSF_ASSIGN_OR_RETURN(const PickleValue global,
                         find_global(objects_.text(names[0]), objects_.text(names[1])));
    drop(2);
    return push(global);
  }

  Status reduce() {
    QSF_RETURN_IF_ERROR(need(2));
    const PickleValue callee = top(2)[0];
    const PickleValue arguments = top(2)[1];
    if (arguments.kind != PickleKind::kTuple) {
      return corrupt("the arguments are %s, expected a tuple", kind_text(arguments.kind));
    }
    QSF_ASSIGN_OR_RETURN(const PickleValue made,
                         call_global(objects_, callee, objects_.tuples[arguments.index()]));
    drop(2);
    return push(made);
  }

  // Sets attributes of an object. A state dict has one, the versions of its modules, which say
  // nothing about the numbers.
  Status build() {
    QSF_RETURN_IF_ERROR(need(2));
    const PickleValue target = top(2)[0];
    const PickleValue state = top(2)[1];
    if (target.kind != PickleKind::kDict || !objects_.dicts[target.index()].ordered) {
      return unsupported("it sets attributes of %s; %s", kind_text(target.kind), kPytorchAdvice);
    }
    if (state.kind != PickleKind::kDict) {
      return corrupt("attributes are %s, expected a dict", kind_text(state.kind));
    }
    const auto& attributes = objects_.dicts[state.index()].items;
    if (attributes.size() != 1 || objects_.text(attributes[0].first) != "_metadata" ||
        attributes[0].second.kind != PickleKind::kDict) {
      return unsupported("it sets attributes of a dict other than _metadata; %s", kPytorchAdvice);
    }
    drop(1);
    return ok_status();
  }

  Status push_persistent() {
    QSF_RETURN_IF_ERROR(need(1));
    QSF_ASSIGN_OR_RETURN(const PickleValue storage, load_storage(objects_, stack_.back()));
    drop(1);
    return push(storage);
  }

  PickleInput& in_;
  PickleObjects& objects_;
  Values stack_;
  Values memo_;
  std::vector<std::size_t> marks_;  // the height of the stack at each
  bool stopped_ = false;
};

}  // namespace

Result<PickleValue> unpickle(PickleInput& input, PickleObjects& objects) {
  return Unpickler(input, objects).run();
}

}  // namespace qsf
