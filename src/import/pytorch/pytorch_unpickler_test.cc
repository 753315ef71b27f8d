// SPDX-License-Identifier: MIT
//
// The restricted unpickler against pickles that mean harm: each ends in a status that names what
// was wrong, in bounded time and memory, and none executes anything.

#include "import/pytorch/pytorch_unpickler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "import/pytorch/pytorch_model.h"
#include "import/testing/pytorch_file.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace testing_support;

struct Outcome {
  Status status;
  PickleValue value;
  PickleObjects objects;
  std::uint64_t taken = 0;
};

Outcome run(const std::string& bytes) {
  Outcome outcome;
  MemoryFileOps ops(as_bytes(bytes));
  const auto file = File::open("pickle", ops);
  PickleInput input(*file, 0, bytes.size());
  const auto value = unpickle(input, outcome.objects);
  outcome.taken = input.position();
  if (value) {
    outcome.value = *value;
  } else {
    outcome.status = value.error();
  }
  return outcome;
}

void expect_pickle_refused(const std::string& bytes, StatusCode code, const std::string& message) {
  const Outcome outcome = run(bytes);
  EXPECT_EQ(outcome.status.code(), code) << message << ": " << outcome.status.message();
  EXPECT_THAT(outcome.status.message(), AllOf(HasSubstr(message), HasSubstr("byte ")));
}

std::string repeat(const std::string& text, std::size_t n_times) {
  std::string out;
  for (std::size_t i = 0; i < n_times; ++i) out += text;
  return out;
}

TEST(PytorchUnpicklerTest, ReadsIntegersOfEveryWidth) {
  const std::string steps = std::string("(K\xffM\x01\x02J\xff\xff\xff\xff\x8a\x00", 13) +
                            "\x8a\x01\x80\x8a\x02\xff\x7f\x8a\x08" + little_endian(INT64_MIN) + "t";
  const Outcome outcome = run(pickle(steps));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  std::vector<std::int64_t> values;
  for (const PickleValue value : outcome.objects.tuples[outcome.value.index()]) {
    EXPECT_EQ(value.kind, PickleKind::kInt);
    values.push_back(value.payload);
  }
  EXPECT_EQ(values, (std::vector<std::int64_t>{255, 513, -1, 0, -128, 32767, INT64_MIN}));
  const Outcome large = run(pickle("\x8a\x09" + std::string(9, 'x')));
  EXPECT_EQ(large.value.kind, PickleKind::kLong);
}

TEST(PytorchUnpicklerTest, StopsWhereThePickleStops) {
  const std::string one = pickle("N");
  EXPECT_EQ(run(one + "garbage").taken, one.size());
}

TEST(PytorchUnpicklerTest, MemoAndFrames) {
  const Outcome list =
      run(std::string("\x80\x04\x95\x0d\0\0\0\0\0\0\0]\x94(\x8c\x01x\x94h\x01h\0e.", 24));
  ASSERT_TRUE(list.status.ok()) << list.status.message();
  const auto& items = list.objects.lists[list.value.index()];
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(list.objects.text(items[1]), "x");
  EXPECT_EQ(items[2].kind, PickleKind::kList);  // itself: a cycle is just an index
}

// Every byte but those on the list is refused by its name, wherever it stands.
TEST(PytorchUnpicklerTest, EveryOtherOpcodeIsRefused) {
  const std::set<unsigned> carried_out = {'(',  '.',  'G',  'J',  'K',  'M',  'N',  'Q',  'R',
                                          'X',  'a',  'b',  'c',  'e',  'h',  'j',  'q',  'r',
                                          's',  't',  'u',  ')',  ']',  '}',  0x80, 0x85, 0x86,
                                          0x87, 0x88, 0x89, 0x8a, 0x8c, 0x93, 0x94, 0x95};
  int n_refused = 0;
  for (unsigned code = 0; code < 256; ++code) {
    // Values of several kinds below, so that no opcode fails for lack of any.
    const std::string before = "\x80\x02" + pickle_text("os") + "(})" + pickle_text("x") + "N";
    const Outcome outcome = run(before + static_cast<char>(code) + std::string(64, '\0') + "\n\n.");
    const bool is_carried_out = carried_out.contains(code);
    const std::string at = "byte " + std::to_string(before.size()) + ": ";
    const std::string& message = outcome.status.message();
    const bool is_refused = message.starts_with(at) &&
                            message.find("a state dict does not need this") != std::string::npos;
    EXPECT_NE(is_refused, is_carried_out) << code << ": " << message;
    if (is_carried_out) continue;
    ++n_refused;
    EXPECT_EQ(outcome.status.code(), StatusCode::kUnsupported);
    char hex[8];
    std::snprintf(hex, sizeof(hex), "0x%02x", code);
    EXPECT_THAT(message, AllOf(HasSubstr(hex), HasSubstr("nothing in the file was executed")));
  }
  EXPECT_EQ(n_refused, 256 - 35);
}

TEST(PytorchUnpicklerTest, OpcodesHaveTheirNames) {
  EXPECT_EQ(opcode_text('i'), "INST (0x69)");
  EXPECT_EQ(opcode_text('o'), "OBJ (0x6f)");
  EXPECT_EQ(opcode_text(0x81), "NEWOBJ (0x81)");
  EXPECT_EQ(opcode_text(0x98), "READONLY_BUFFER (0x98)");
  EXPECT_EQ(opcode_text(0xff), "byte 0xff, which is no opcode of pickle");
}

TEST(PytorchUnpicklerTest, NoOtherGlobalIsEvenLookedAt) {
  const char* globals[][2] = {
      {"os", "system"},
      {"posix", "system"},
      {"nt", "system"},
      {"subprocess", "Popen"},
      {"builtins", "eval"},
      {"builtins", "exec"},
      {"builtins", "getattr"},
      {"__builtin__", "__import__"},
      {"torch", "load"},
      {"torch", "Storage"},
      {"torch", "FloatStorage.__init__"},
      {"torch", "FloatStorage "},
      {"torch.storage", "TypedStorage"},
      {"torch.storage", "_load_from_bytes"},
      {"torch._utils", "_rebuild_device_tensor_from_numpy"},
      {"torch.nn.modules.linear", "Linear"},
      {"numpy.core.multiarray", "_reconstruct"},
      {"collections", "defaultdict"},
      {"Collections", "OrderedDict"},
      {"", ""},
      {"collections", ""},
  };
  for (const auto& [module, name] : globals) {
    const std::string full =
        std::string(module) + "." + name + ", which a state dict does not need";
    expect_pickle_refused(pickle(pickle_global(module, name)), StatusCode::kUnsupported, full);
    // Its call would follow; the name alone is enough.
    expect_pickle_refused(pickle(pickle_global(module, name) + pickle_text("id") + "\x85R"),
                          StatusCode::kUnsupported,
                          "byte 2: GLOBAL (0x63): it uses the global " + full);
    expect_pickle_refused("\x80\x04" + pickle_text(module) + pickle_text(name) + "\x93)R.",
                          StatusCode::kUnsupported, full);
  }
  // What a terminal would act upon does not reach it.
  expect_pickle_refused(pickle(pickle_global("\x1b[2J", "\x07\xff")), StatusCode::kUnsupported,
                        "it uses the global ?[2J.??,");
  expect_pickle_refused(pickle("c" + std::string(300, 'a') + "\nb\n"), StatusCode::kCorrupt,
                        "a line of more than 256 bytes");
  expect_pickle_refused("\x80\x04" + pickle_int(1) + pickle_text("x") + "\x93.",
                        StatusCode::kCorrupt, "a global named by an integer and a text");
}

TEST(PytorchUnpicklerTest, OnlyWhatIsCallableIsCalled) {
  const auto unsupported_with = [](const std::string& steps, const char* message) {
    expect_pickle_refused(pickle(steps), StatusCode::kUnsupported, message);
  };
  const auto corrupt_with = [](const std::string& steps, const char* message) {
    expect_pickle_refused(pickle(steps), StatusCode::kCorrupt, message);
  };
  unsupported_with(pickle_text("os.system") + ")R", "it calls a text");
  unsupported_with("})R", "it calls a dict");
  unsupported_with("))R", "it calls a tuple");
  unsupported_with(pickle_global("torch", "FloatStorage") + ")R", "torch.FloatStorage: a state");
  unsupported_with(pickle_global("torch", "uint16") + ")R", "torch.uint16: a state dict does not");
  unsupported_with(pickle_global("collections", "OrderedDict") + "]\x85R", "made from arguments");
  corrupt_with(pickle_global("collections", "OrderedDict") + "]R", "expected a tuple");
  for (const char* name :
       {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter"}) {
    const std::string function = pickle_global("torch._utils", name);
    corrupt_with(function + ")R", "0 arguments, expected");
    corrupt_with(function + "(NNNNNNNNNtR", "9 arguments, expected");
    corrupt_with(function + "(NNNNNNNtR", "");
    corrupt_with(function + "(NNNNtR", "");
    corrupt_with(function + "(NNNtR", "");
  }
  unsupported_with("]}b", "it sets attributes of a list");
  unsupported_with("}}b", "it sets attributes of a dict");
  unsupported_with(kNoHooks + "}b", "other than _metadata");
  unsupported_with(kNoHooks + "}" + pickle_text("__class__") + "}sb", "other than _metadata");
  unsupported_with(kNoHooks + "}" + pickle_text("_metadata") + "Nsb", "other than _metadata");
  corrupt_with(kNoHooks + ")b", "attributes are a tuple");
  unsupported_with("NNNs", "it changes None, expected a dict");
  unsupported_with("NNa", "it changes None, expected a list");
  unsupported_with("(N(NNu", "it changes None, expected a dict");
  unsupported_with(")Na", "it changes a tuple, expected a list");
}

TEST(PytorchUnpicklerTest, TensorsOfEveryFunction) {
  const std::string storage = pickle_storage({});
  const std::string place = storage + "K\x01" + pickle_tuple({3}) + pickle_tuple({1});
  const std::string untyped = "(" + pickle_text("storage") +
                              pickle_global("torch.storage", "UntypedStorage") + pickle_text("9") +
                              pickle_text("cpu") + "K\x08tQ";
  const std::string untyped_place = untyped + "K\x01" + pickle_tuple({3}) + pickle_tuple({1});
  const std::string dtype = pickle_global("torch", "uint16");
  const auto call = [](const char* name, const std::string& arguments) {
    return run(pickle(pickle_global("torch._utils", name) + "(" + arguments + "tR"));
  };
  const std::string flags = "\x89" + kNoHooks;
  for (const Outcome& good :
       {call("_rebuild_tensor", place), call("_rebuild_tensor_v2", place + flags),
        call("_rebuild_tensor_v2", place + flags + "N"),
        call("_rebuild_tensor_v2", place + flags + "}"),
        call("_rebuild_tensor_v3", untyped_place + flags + dtype),
        call("_rebuild_tensor_v3", untyped_place + flags + dtype + "}"),
        call("_rebuild_parameter", pickle_tensor({}, {}) + flags)}) {
    EXPECT_TRUE(good.status.ok()) << good.status.message();
    EXPECT_EQ(good.value.kind, PickleKind::kTensor);
  }
  const struct {
    Outcome outcome;
    const char* message;
  } cases[] = {
      {call("_rebuild_tensor_v2", untyped_place + flags), "untyped"},
      {call("_rebuild_tensor_v3", place + flags + dtype), "typed"},
      {call("_rebuild_tensor_v3", untyped_place + flags + "N"), "the dtype of a tensor is None"},
      {call("_rebuild_tensor_v3", untyped_place + flags + pickle_global("torch", "FloatStorage")),
       "the dtype of a tensor is a global"},
      {call("_rebuild_tensor_v2", place + "\x89N"), "backward_hooks is None"},
      {call("_rebuild_tensor_v2", place + "\x89}NNs"), "backward hooks"},
      {call("_rebuild_tensor_v2", place + "N" + kNoHooks), "requires_grad is None"},
      {call("_rebuild_tensor_v2", place + flags + "}NNs"), "negated or conjugated"},
      {call("_rebuild_tensor_v2", place + flags + "K\x01"), "the metadata of a tensor"},
      {call("_rebuild_parameter", "N" + flags), "the data of a parameter is None"},
      {call("_rebuild_tensor", storage + "N))"), "the offset of a tensor is None"},
      {call("_rebuild_tensor", storage + "K\x01]]"), "the shape is a list"},
      {call("_rebuild_tensor", "NK\x01))"), "the storage of a tensor is None"},
  };
  for (const auto& c : cases) {
    EXPECT_FALSE(c.outcome.status.ok()) << c.message;
    EXPECT_THAT(c.outcome.status.message(), HasSubstr(c.message));
  }
}

TEST(PytorchUnpicklerTest, PersistentIdsAreStorages) {
  const std::string type = pickle_global("torch", "FloatStorage");
  const std::string rest = pickle_text("0") + pickle_text("cpu") + "K\x01";
  const std::string start = "(" + pickle_text("storage");
  EXPECT_TRUE(run(pickle(start + type + rest + "tQ")).status.ok());
  EXPECT_TRUE(run(pickle(start + type + rest + "NtQ")).status.ok());
  const struct {
    std::string steps;
    const char* message;
  } cases[] = {
      {"NQ", "a persistent id is None"},
      {pickle_text("storage") + "Q", "a persistent id is a text"},
      {")Q", "of 0 parts"},
      {start + type + "tQ", "of 2 parts"},
      {start + type + rest + "NNtQ", "of 7 parts"},
      {start + type + rest + ")tQ", "a view of a storage"},
      {"(" + pickle_text("module") + type + rest + "tQ", "that is not a storage"},
      {"(N" + type + rest + "tQ", "that is not a storage"},
      {start + "N" + rest + "tQ", "the type of a storage is None"},
      {start + pickle_global("collections", "OrderedDict") + rest + "tQ", "type of a storage"},
      {start + pickle_global("torch", "uint16") + rest + "tQ", "type of a storage"},
      {start + type + "K\x01" + pickle_text("cpu") + "K\x01tQ", "the key of a storage"},
      {start + type + pickle_text("0") + "NK\x01tQ", "the location of a storage"},
      {start + type + pickle_text("0") + pickle_text("cpu") + "NtQ", "the size of a storage"},
      {start + type + pickle_text("0") + pickle_text("cpu") + "\x8a\x08" +
           little_endian(INT64_MAX) + "tQ",
       "storage 0: a size of 9223372036854775807"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = run(pickle(c.steps));
    EXPECT_FALSE(outcome.status.ok()) << c.message;
    EXPECT_THAT(outcome.status.message(), AllOf(HasSubstr(c.message), HasSubstr("BINPERSID")));
  }
}

TEST(PytorchUnpicklerTest, TheStackIsNotTakenBelowItsMarks) {
  for (const char* steps :
       {"",     "a",     "s",    "b",  "R",  "Q",  "\x85",   "\x86",    "\x87",    "\x93",
        "\x94", "q\x01", "(",    "t",  "u",  "e",  "N(\x85", "N(q\x01", "NN(\x86", "NN(\x93",
        "})(R", "}NN(s", "]N(a", "NN", "(N", "(u", "(e",     "}(Nu"}) {
    const Outcome outcome = run(pickle(steps));
    EXPECT_EQ(outcome.status.code(), StatusCode::kCorrupt) << steps;
  }
  expect_pickle_refused(pickle("NN(\x86"), StatusCode::kCorrupt,
                        "takes 2 values from the stack, which "
                        "has 0 above the last mark");
}

TEST(PytorchUnpicklerTest, MemoEntriesFollowOneAnother) {
  using namespace std::string_literals;
  for (const std::string& steps :
       {"Nq\x01"s, "Nq\xff"s, "Nr\xff\xff\xff\xff"s, "Nr\x01\x00\x00\x00"s, "h\x00"s, "Nq\0h\x01"s,
        "j\xff\xff\xff\xff"s, "j\0\0\0\0"s}) {
    expect_pickle_refused(pickle(steps), StatusCode::kCorrupt, "memo entry");
  }
  EXPECT_TRUE(run(pickle("Nq\0q\x01q\0h\x01\x86"s)).status.ok());
}

TEST(PytorchUnpicklerTest, LengthsAreNotBelieved) {
  const std::string huge = "\xff\xff\xff\xff";
  expect_pickle_refused(pickle("X" + huge), StatusCode::kUnsupported, "a text of 4294967295 bytes");
  expect_pickle_refused(pickle("X" + little_endian(65537U)), StatusCode::kUnsupported,
                        "65537 bytes");
  expect_pickle_refused(pickle("X" + little_endian(65536U)), StatusCode::kCorrupt,
                        "without being complete");
  expect_pickle_refused(pickle("\x8b" + huge), StatusCode::kUnsupported, "LONG4");
  expect_pickle_refused(pickle("\x8d" + huge + huge), StatusCode::kUnsupported, "BINUNICODE8");
  expect_pickle_refused(pickle("\x8a\xff"), StatusCode::kCorrupt, "without being complete");
  expect_pickle_refused("\x80\x04\x95" + huge + huge, StatusCode::kCorrupt, "a frame of");
  expect_pickle_refused(pickle("X" + little_endian(2U) + "\xc0\x80"), StatusCode::kCorrupt,
                        "UTF-8");
  for (const char protocol : {'\0', '\1', '\6', '\xff'}) {
    expect_pickle_refused(std::string("\x80") + protocol + "N.", StatusCode::kUnsupported,
                          "protocol");
  }
  expect_pickle_refused("N.", StatusCode::kCorrupt, "begins with PROTO");
  expect_pickle_refused(pickle("\x80\x02N"), StatusCode::kCorrupt, "PROTO in the middle");
}

TEST(PytorchUnpicklerTest, BombsCostWhatTheyWeigh) {
  // Ten times ten times ... the same list: as many objects as there are steps.
  std::string laughs = "]q" + std::string(1, '\0');
  for (char level = 1; level < 100; ++level) {
    laughs += "](";
    for (int i = 0; i < 10; ++i) laughs += std::string("h") + static_cast<char>(level - 1);
    laughs += std::string("eq") + level;
  }
  const Outcome laughing = run("\x80\x02(" + laughs + "t.");
  ASSERT_TRUE(laughing.status.ok()) << laughing.status.message();
  EXPECT_EQ(laughing.objects.lists.size(), 100U);
  // Deep nesting is a chain of indices.
  const Outcome deep = run(pickle(")" + repeat("\x85", 1'000'000)));
  ASSERT_TRUE(deep.status.ok()) << deep.status.message();
  EXPECT_EQ(deep.objects.tuples.size(), 1'000'001U);
  // Dropping it does not recurse either.
  expect_pickle_refused(pickle(repeat("N", kMaxPickleStack + 1)), StatusCode::kUnsupported,
                        "more than 65536 values");
  expect_pickle_refused(pickle(repeat("(", kMaxPickleStack + 1)), StatusCode::kUnsupported,
                        "more than 65536 marks");
  expect_pickle_refused(pickle("N" + repeat("\x94", kMaxPickleSteps)), StatusCode::kUnsupported,
                        "more than 8388608 steps");
  // A large dict as the attributes of another, again and again.
  std::string attributes = kNoHooks + "}q" + std::string(1, '\0') + "(";
  attributes += repeat(pickle_text("_metadata") + "}", 20'000) + "u";
  expect_pickle_refused(pickle(attributes + repeat("bh" + std::string(1, '\0'), 1'000'000)),
                        StatusCode::kUnsupported, "other than _metadata");
}

TEST(PytorchUnpicklerTest, PicklesBeyondTheLimitAreRefused) {
  std::string bytes = pickle("(" + repeat(pickle_text(std::string(65536, 'x')), 1025) + "t");
  const Outcome outcome = run(bytes);
  EXPECT_EQ(outcome.status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(outcome.status.message(), HasSubstr("longer than 67108864 bytes"));
}

TEST(PytorchUnpicklerTest, StateDictsAreFound) {
  const auto read = [](const std::string& steps) {
    const std::string bytes = pickle(steps);
    MemoryFileOps ops(as_bytes(bytes));
    const auto file = File::open("pickle", ops);
    PickleInput input(*file, 0, bytes.size());
    const auto state_dict = unpickle_state_dict(input);
    return state_dict ? std::to_string(state_dict->tensors.size()) + " tensors"
                      : state_dict.error().message();
  };
  const std::string w = pickle_text("w") + pickle_tensor({}, {});
  const std::string dict = "}" + w + "s";
  EXPECT_EQ(read(dict), "1 tensors");
  EXPECT_EQ(read("}" + pickle_text("state_dict") + dict + "s"), "1 tensors");
  EXPECT_EQ(read("}(" + pickle_text("model") + dict + pickle_text("step") + "K\x07u"), "1 tensors");
  EXPECT_EQ(read("}"), "0 tensors");
  EXPECT_THAT(read("}(" + pickle_text("model") + dict + w + "u"), HasSubstr("are outside"));
  EXPECT_THAT(read("}" + pickle_text("weights") + dict + "s"), HasSubstr("\"weights\" is a dict"));
  EXPECT_THAT(read("}" + pickle_text("model") + "}" + pickle_text("model") + dict + "ss"),
              HasSubstr("\"model\" is a dict"));
  EXPECT_THAT(read("}K\x01" + pickle_tensor({}, {}) + "s"), HasSubstr("an integer as a name"));
  EXPECT_THAT(read("}" + pickle_text("") + pickle_tensor({}, {}) + "s"), HasSubstr("0 bytes"));
  EXPECT_THAT(read("}" + pickle_text("a\x1b[2J") + pickle_tensor({}, {}) + "s"),
              HasSubstr("control characters"));
  EXPECT_THAT(read("}" + pickle_text(std::string(1025, 'a')) + pickle_tensor({}, {}) + "s"),
              HasSubstr("1025 bytes"));
  EXPECT_THAT(read("N"), HasSubstr("the file holds None"));
}

}  // namespace
}  // namespace qsf
