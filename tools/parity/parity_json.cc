// SPDX-License-Identifier: MIT

#include "tools/parity/parity_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "tools/common/tool_support.h"
#include "tools/parity/sha256.h"

namespace qsf_tools {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr double kRounding = 1e-12;  // of numbers that were written in full and read again
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kTraceVersion = 2;

// Returns a discarded value for text that is no JSON, or nests too deep.
json parse_json(std::string_view text) {
  bool is_deep = false;
  const auto keep = [&](int depth, json::parse_event_t, json&) {
    is_deep = is_deep || depth > kMaxDepth;
    return !is_deep;
  };
  json value = json::parse(text, keep, false);
  return is_deep ? json(json::value_t::discarded) : value;
}

std::string dump(const json& value, int indent = -1) {
  return value.dump(indent, ' ', true, json::error_handler_t::replace);
}

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json();
}

// The values that a field may have, beside those of its type.
struct Range {
  double min = -kInfinity;
  double max = kInfinity;
  std::size_t min_length = 0;
  std::size_t max_length = std::numeric_limits<std::size_t>::max();
  std::vector<std::string> words = {};  // empty: any
};

const Range kAny = {};
const Range kNotNegative = {.min = 0};
const Range kPositive = {.min = 1};
const Range kShare = {.min = 0, .max = 1};
const Range kCosine = {.min = -1, .max = 1};
const Range kText = {.min_length = 1};
const Range kHash = {.min_length = 64, .max_length = 64};

template <typename T>
constexpr bool kIsRecord = std::is_class_v<T>;
template <typename T>
constexpr bool kIsRecord<std::vector<T>> = false;
template <typename T>
constexpr bool kIsRecord<std::optional<T>> = false;
template <>
constexpr bool kIsRecord<std::string> = false;
template <typename A, typename B>
constexpr bool kIsRecord<std::map<A, B>> = false;

// Every record lists its fields once, for an archive that writes them or reads them.
// archive(key, value, range): a field that is always there; an optional value may be null.
// archive.maybe(key, value, range): a field that may be missing.
// archive.present(key, value, range): a field of an optional value that is always there.

template <typename Archive>
void fields(Archive& archive, ParityThresholds& r) {
  archive.closed();
  archive("cosine", r.cosine, kShare);
  archive("max_abs_error", r.max_abs_error, kNotNegative);
  archive("mse", r.mse, kNotNegative);
  archive("kl", r.kl, kNotNegative);
  archive("top1", r.top1, kAny);
  archive("greedy_match", r.greedy_match, kShare);
}

template <typename Archive>
void fields(Archive& archive, RowRecord& r) {
  archive.closed();
  archive("position", r.position, kNotNegative);
  archive("token", r.token, kNotNegative);
  archive("role", r.role, Range{.words = {"prompt", "generated"}});
  archive("finite", r.finite, kAny);
  archive("zero", r.zero, kAny);
  archive("cosine", r.cosine, kCosine);
  archive("centred_cosine", r.centred_cosine, kCosine);
  archive("max_abs_error", r.max_abs_error, kNotNegative);
  archive("mse", r.mse, kNotNegative);
  archive("kl", r.kl, kNotNegative);
  archive("top_ours", r.top_ours, kAny);
  archive("top_reference", r.top_reference, kAny);
  archive("top1_match", r.top1_match, kAny);
  archive("top5_agreement", r.top5_agreement, kShare);
  archive("outcome", r.outcome, Range{.words = {"ok", "divergence", "not_compared"}});
}

template <typename Archive>
void fields(Archive& archive, SummaryRecord& r) {
  archive.closed();
  archive("positions", r.positions, kNotNegative);
  archive("rows", r.rows, kNotNegative);
  archive("compared", r.compared, kNotNegative);
  archive("cosine_min", r.cosine_min, kCosine);
  archive("cosine_mean", r.cosine_mean, kCosine);
  archive("centred_cosine_min", r.centred_cosine_min, kCosine);
  archive("centred_cosine_mean", r.centred_cosine_mean, kCosine);
  archive("max_abs_error", r.max_abs_error, kNotNegative);
  archive("mse_mean", r.mse_mean, kNotNegative);
  archive("kl_mean", r.kl_mean, kNotNegative);
  archive("kl_max", r.kl_max, kNotNegative);
  archive("top1_agreement", r.top1_agreement, kShare);
  archive("top5_agreement", r.top5_agreement, kShare);
  archive("cosine_ok", r.cosine_ok, kAny);
  archive("first_divergence", r.first_divergence, kNotNegative);
}

template <typename Archive>
void fields(Archive& archive, GreedyRecord& r) {
  archive.closed();
  archive("steps", r.steps, kNotNegative);
  archive("ours", r.ours, kAny);
  archive("reference", r.reference, kAny);
  archive("matches", r.matches, kNotNegative);
  archive("match_rate", r.match_rate, kShare);
  archive("finite", r.finite, kAny);
  archive("first_divergence_step", r.first_divergence_step, kNotNegative);
}

template <typename Archive>
void fields(Archive& archive, TokenizationRecord& r) {
  archive("ids_given", r.ids_given, kAny);
  archive("ours", r.ours, kAny);
  archive("reference", r.reference, kAny);
  archive("n_ours", r.n_ours, kNotNegative);
  archive("n_reference", r.n_reference, kNotNegative);
  archive("match", r.match, kAny);
  archive("first_difference", r.first_difference, kNotNegative);
}

template <typename Archive>
void fields(Archive& archive, ModelRecord& r) {
  archive("path", r.path, kText);
  archive("sha256", r.sha256, kHash);
  archive("bytes", r.bytes, kNotNegative);
  archive.maybe("converted_path", r.converted_path, kText);
  archive.maybe("converted_sha256", r.converted_sha256, kHash);
  archive.inlined(r.description, "architecture");
}

template <typename Archive>
void fields(Archive& archive, ModelDescription& r) {
  archive("architecture", r.architecture, kAny);
  archive("quantisation", r.quantisation, kAny);
  archive("layers", r.layers, kPositive);
  archive("hidden", r.hidden, kPositive);
  archive("heads", r.heads, kPositive);
  archive("kv_heads", r.kv_heads, kPositive);
  archive("n_vocab", r.n_vocab, kPositive);
  archive("parameters", r.parameters, kPositive);
  archive("natively_ternary", r.natively_ternary, kAny);
  archive("int8_rows", r.int8_rows, kAny);
  archive("source", r.source, kAny);
  archive("quantiser", r.quantiser, kAny);
}

template <typename Archive>
void fields(Archive& archive, PromptRecord& r) {
  archive("text", r.text, kAny);
  archive("sha256", r.sha256, kHash);
  archive("parse_special", r.parse_special, kAny);
  std::optional<std::string> no_template;  // chat templates are not applied
  archive("template", no_template, kAny);
}

template <typename Archive>
void fields(Archive& archive, TokenizerDescription& r) {
  archive("source", r.source, kAny);
  archive("kind", r.kind, kAny);
  archive("n_tokens", r.n_tokens, kAny);
  archive("bos", r.bos, kAny);
  archive("eos", r.eos, kAny);
  archive("add_bos", r.add_bos, kAny);
  archive("add_eos", r.add_eos, kAny);
}

// The engine's own side has every field of an engine.
template <typename Archive>
void engine_fields(Archive& archive, SourceDescription& r) {
  archive("kind", r.kind, Range{.words = {"engine"}});
  archive("name", r.name, Range{.words = {"qsf"}});
  archive.present("backend", r.backend, Range{.words = {"cpu", "none"}});
  archive.present("device", r.device, Range{.words = {"cpu", "none"}});
  archive.present("instruction_set", r.instruction_set, kAny);
  archive.present("exact", r.exact, kAny);
  archive.present("kv_type", r.kv_type, kText);
  archive.present("threads", r.threads, kNotNegative);
  archive("n_vocab", r.n_vocab, kNotNegative);
}

template <typename Archive>
void fields(Archive& archive, SourceDescription& r) {
  archive("kind", r.kind, Range{.words = {"child", "file", "engine", "none"}});
  archive("name", r.name, kText);
  archive("n_vocab", r.n_vocab, kNotNegative);
  archive.maybe("backend", r.backend, kAny);
  archive.maybe("device", r.device, kAny);
  archive.maybe("instruction_set", r.instruction_set, kAny);
  archive.maybe("exact", r.exact, kAny);
  archive.maybe("kv_type", r.kv_type, kAny);
  archive.maybe("threads", r.threads, kNotNegative);
  archive.maybe("program", r.program, kAny);
  archive.maybe("commit", r.commit, kAny);
  archive.maybe("system", r.system, kAny);
  archive.maybe("timeout_seconds", r.timeout_seconds, kNotNegative);
  archive.maybe("path", r.path, kAny);
  archive.maybe("sha256", r.sha256, kHash);
  archive.object("recorded_from", r.recorded_from);
}

template <typename Archive>
void fields(Archive& archive, ReferenceRecord& r) {
  fields(archive, r.source);
  archive.maybe("model_path", r.model_path, kAny);
  archive.maybe("model_sha256", r.model_sha256, kHash);
  archive.maybe("program_sha256", r.program_sha256, kHash);
}

template <typename Archive>
void fields(Archive& archive, KernelRecord& r) {
  archive.closed();
  archive("kernel_id", r.kernel_id, Range{.min_length = 1, .max_length = 128});
  archive("calls", r.calls, kPositive);
  archive("microseconds", r.microseconds, kNotNegative);
}

template <typename Archive>
void fields(Archive& archive, KernelRecordsFile& r) {
  archive("path", r.path, kText);
  archive("sha256", r.sha256, kHash);
  archive("records", r.records, kNotNegative);
}

template <typename Archive>
void fields(Archive& archive, EnvironmentRecord& r) {
  archive("system", r.system, kAny);
  archive("machine", r.machine, kAny);
  archive("cpu", r.cpu, kAny);
  archive("cpu_features", r.cpu_features, kAny);
  archive("memory_bytes", r.memory_bytes, kNotNegative);
  archive("compiler", r.compiler, kAny);
  archive("libc", r.libc, kAny);
  archive("variables", r.variables, kAny);
}

// A receipt's two sides of different form, and its timing, as records of their own.
struct OursRecord {
  SourceDescription& source;
};
struct TimingRecord {
  double& ours_seconds;
  double& reference_seconds;
};

template <typename Archive>
void fields(Archive& archive, OursRecord& r) {
  engine_fields(archive, r.source);
}
template <typename Archive>
void fields(Archive& archive, TimingRecord& r) {
  archive("ours_seconds", r.ours_seconds, kNotNegative);
  archive("reference_seconds", r.reference_seconds, kNotNegative);
}

template <typename Archive>
void fields(Archive& archive, Receipt& r) {
  archive.closed();
  std::string version = kReceiptVersion;
  std::string tool = kParityTool;
  archive("schema_version", version, Range{.words = {kReceiptVersion}});
  archive("tool", tool, Range{.words = {kParityTool}});
  archive("tool_version", r.tool_version, kText);
  archive("timestamp", r.timestamp, Range{.min_length = 20});
  archive("status", r.status, Range{.words = {"ok", "divergence", "not_compared"}});
  archive("reason", r.reason, kAny);
  archive("failure", r.failure, kAny);
  archive("model", r.model, kAny);
  archive("prompt", r.prompt, kAny);
  archive("tokenizer", r.tokenizer, kAny);
  archive("tokenization", r.tokenization, kAny);
  OursRecord ours{r.ours};
  archive("ours", ours, kAny);
  archive("reference", r.reference, kAny);
  archive("thresholds", r.thresholds, kAny);
  archive("rows", r.rows, kAny);
  archive("summary", r.summary, kAny);
  archive("greedy", r.greedy, kAny);
  archive("kernels", r.kernels, kAny);
  archive("kernel_records", r.kernel_records, kAny);
  TimingRecord timing{r.ours_seconds, r.reference_seconds};
  archive("timing", timing, kAny);
  archive("environment", r.environment, kAny);
  archive("receipt_sha256", r.sha256, kHash);
}

class Writer {
 public:
  template <typename T>
  static json of(T& value) {
    using Plain = std::remove_const_t<T>;
    if constexpr (std::is_same_v<Plain, std::string>) {
      return valid_utf8(value);
    } else if constexpr (kIsRecord<Plain>) {
      Writer writer;
      fields(writer, value);
      return std::move(writer.json_);
    } else {
      return value;
    }
  }
  template <typename T>
  static json of(std::optional<T>& value) {
    return value ? of(*value) : json();
  }
  template <typename T>
  static json of(std::vector<T>& values) {
    json array = json::array();
    for (T& value : values) array.push_back(of(value));
    return array;
  }

  void closed() {}
  template <typename T>
  void operator()(const char* key, T& value, const Range&) {
    json_[key] = of(value);
  }
  template <typename T>
  void maybe(const char* key, std::optional<T>& value, const Range&) {
    if (value) json_[key] = of(*value);
  }
  template <typename T>
  void present(const char* key, std::optional<T>& value, const Range&) {
    json_[key] = of(*value);
  }
  template <typename T>
  void inlined(std::optional<T>& value, const char*) {
    if (value) fields(*this, *value);
  }
  void object(const char* key, std::optional<std::string>& text) {
    if (text) json_[key] = parse_json(*text);
  }

 private:
  json json_ = json::object();
};

class Reader {
 public:
  // `where`: the path of the object, empty for the whole; `problem`: the first one that was found.
  Reader(const json& from, std::string where, std::string& problem)
      : from_(from), where_(std::move(where)), problem_(problem) {}

  // No fields but those of the record may be there.
  void closed() { closed_ = true; }

  template <typename T>
  void operator()(const char* key, T& value, const Range& range) {
    keys_.emplace_back(key);
    if (!problem_.empty()) return;
    const auto found = from_.find(key);
    if (found == from_.end()) {
      problem_ = (where_.empty() ? "receipt" : where_) + ": has no " + key;
      return;
    }
    read(*found, path_of(key), value, range);
  }
  template <typename T>
  void maybe(const char* key, std::optional<T>& value, const Range& range) {
    if (!from_.contains(key)) {
      keys_.emplace_back(key);
      return;
    }
    (*this)(key, value.emplace(), range);
  }
  template <typename T>
  void present(const char* key, std::optional<T>& value, const Range& range) {
    (*this)(key, value.emplace(), range);
  }
  // A record whose fields stand in this object, all of them or, as the first one tells, none.
  template <typename T>
  void inlined(std::optional<T>& value, const char* first) {
    T record;
    if (!from_.contains(first)) {
      refuse_parts(record);
      return;
    }
    fields(*this, record);
    value = std::move(record);
  }
  void object(const char* key, std::optional<std::string>& text) {
    keys_.emplace_back(key);
    const auto found = from_.find(key);
    if (found == from_.end() || !problem_.empty()) return;
    if (!found->is_object()) return wrong(*found, path_of(key), "an object");
    text = dump(*found);
  }

  // Refuses fields that no record has. Returns whether all is well.
  bool finish() {
    if (!closed_ || !problem_.empty()) return problem_.empty();
    for (const auto& [name, unused] : from_.items()) {
      if (std::find(keys_.begin(), keys_.end(), name) != keys_.end()) continue;
      problem_ = (where_.empty() ? "receipt" : where_) + ": unknown field " + name;
      return false;
    }
    return true;
  }

  template <typename T>
  void read(const json& value, const std::string& where, T& to, const Range& range) {
    if constexpr (kIsRecord<T>) {
      if (!value.is_object()) return wrong(value, where, "an object");
      Reader reader(value, where, problem_);
      fields(reader, to);
      reader.finish();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) return wrong(value, where, "true or false");
      to = value.get<bool>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      read_text(value, where, to, range);
    } else if constexpr (std::is_integral_v<T>) {
      if (!value.is_number_integer()) return wrong(value, where, "an integer");
      constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
      if (!in_range(value, where, {.min = std::max(range.min, 0.0), .max = kMost})) return;
      to = value.get<T>();
    } else {
      if (!value.is_number()) return wrong(value, where, "a number");
      if (in_range(value, where, range)) to = value.get<T>();
    }
  }
  template <typename T>
  void read(const json& value, const std::string& where, std::optional<T>& to, const Range& range) {
    to.reset();
    if (!value.is_null()) read(value, where, to.emplace(), range);
  }
  template <typename T>
  void read(const json& value, const std::string& where, std::vector<T>& to, const Range& range) {
    if (!value.is_array()) return wrong(value, where, "an array");
    to.resize(value.size());
    for (std::size_t i = 0; i < to.size() && problem_.empty(); ++i) {
      read(value[i], where + "/" + std::to_string(i), to[i], range);
    }
  }
  void read(const json& value, const std::string& where, std::map<std::string, std::string>& to,
            const Range& range) {
    if (!value.is_object()) return wrong(value, where, "an object");
    for (const auto& [name, text] : value.items()) {
      if (problem_.empty()) read(text, where + "/" + name, to[name], range);
    }
  }

 private:
  std::string path_of(const char* key) const { return where_.empty() ? key : where_ + "/" + key; }

  void wrong(const json& value, const std::string& where, const std::string& expected) {
    if (!problem_.empty()) return;
    std::string got = dump(value);
    if (got.size() > 60) got = got.substr(0, 60) + "...";
    problem_ = where + ": got " + got + ", expected " + expected;
  }

  bool in_range(const json& value, const std::string& where, const Range& range) {
    const auto number = value.get<double>();
    if (number >= range.min && number <= range.max) return true;
    wrong(value, where,
          number < range.min ? "at least " + dump(range.min) : "at most " + dump(range.max));
    return false;
  }

  void read_text(const json& value, const std::string& where, std::string& to, const Range& range) {
    if (!value.is_string()) return wrong(value, where, "a text");
    to = value.get<std::string>();
    if (to.size() < range.min_length || to.size() > range.max_length) {
      return wrong(value, where,
                   range.max_length == range.min_length
                       ? "a text of " + std::to_string(range.min_length) + " characters"
                       : "a longer or shorter text");
    }
    const auto& words = range.words;
    if (words.empty() || std::find(words.begin(), words.end(), to) != words.end()) return;
    std::string names;
    for (const std::string& word : words) names += (names.empty() ? "" : ", ") + word;
    wrong(value, where, words.size() == 1 ? names : "one of " + names);
  }

  // Of a record that is not there no field may be there either.
  template <typename T>
  void refuse_parts(T& record) {
    std::string missing;
    const json none = json::object();
    Reader names(none, where_, missing);
    fields(names, record);
    for (const std::string& key : names.keys_) {
      if (from_.contains(key) && problem_.empty()) problem_ = path_of(key.c_str()) + ": unexpected";
    }
  }

  const json& from_;
  std::string where_;
  std::string& problem_;
  bool closed_ = false;
  std::vector<std::string> keys_;
};

bool same(const json& a, const json& b) {
  if (!a.is_number() || !b.is_number()) return a == b;
  const double x = a.get<double>();
  const double y = b.get<double>();
  return std::fabs(x - y) <= kRounding * std::max({1.0, std::fabs(x), std::fabs(y)});
}

void add_differences(const std::string& where, const json& got, const json& computed,
                     std::vector<std::string>& problems) {
  if (computed.is_object()) {
    for (const auto& [key, value] : computed.items()) {
      add_differences(where + "/" + key, got[key], value, problems);
    }
  } else if (!same(got, computed)) {
    problems.push_back(where + ": got " + dump(got) + ", but the receipt's other fields give " +
                       dump(computed));
  }
}

template <typename T>
json json_of(const T& record) {
  return Writer::of(const_cast<T&>(record));
}

qsf::Result<TracePoint> parse_point(const json& line, const char* path) {
  std::string problem;
  TracePoint point;
  std::int64_t layer = 0;
  std::vector<std::uint32_t> shape;
  std::optional<double> rms;
  std::vector<std::optional<double>> projections;
  if (line.is_object()) {
    Reader reader(line, "point", problem);
    reader("pass", point.pass, kNotNegative);
    reader("name", point.name, kAny);
    reader("shape", shape, kAny);
    reader("rms", rms, kAny);
    reader("projections", projections, kAny);
    reader("checksum", point.checksum, kAny);
    const auto found = line.find("layer");
    if (found == line.end() || !found->is_number_integer()) problem = "no layer";
    if (problem.empty()) layer = found->get<std::int64_t>();
  }
  if (!line.is_object() || !problem.empty() || shape.size() != 2 ||
      projections.size() != kTraceProjections) {
    return qsf::corrupt("%s: not a point of a trace: %s", path, dump(line).substr(0, 120).c_str());
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  point.layer = static_cast<std::int32_t>(layer);
  point.n_rows = shape[0];
  point.n_cols = shape[1];
  point.rms = rms.value_or(nan);
  for (std::size_t i = 0; i < kTraceProjections; ++i) {
    point.projections[i] = projections[i].value_or(nan);
  }
  return point;
}

}  // namespace

std::string receipt_text(const Receipt& receipt) {
  json value = json_of(receipt);
  value.erase("receipt_sha256");
  value["receipt_sha256"] = sha256_of(dump(value));
  return dump(value, 1) + "\n";
}

qsf::Result<ParsedReceipt> parse_receipt(std::string_view text) {
  json value = parse_json(text);
  if (value.is_discarded()) return qsf::corrupt("not JSON, or nested too deep");
  if (!value.is_object()) return qsf::corrupt("not a JSON object");
  ParsedReceipt parsed;
  std::string problem;
  Reader reader(value, "", problem);
  fields(reader, parsed.receipt);
  if (!reader.finish()) return qsf::corrupt("%s", problem.c_str());
  value.erase("receipt_sha256");
  parsed.digest = sha256_of(dump(value));
  return parsed;
}

std::vector<std::string> differing_measurements(const Receipt& receipt, const Receipt& computed) {
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < computed.rows.size(); ++i) {
    add_differences("rows/" + std::to_string(i), json_of(receipt.rows[i]),
                    json_of(computed.rows[i]), problems);
  }
  add_differences("tokenization", json_of(receipt.tokenization), json_of(computed.tokenization),
                  problems);
  return problems;
}

std::vector<std::string> differing_verdict(const Receipt& receipt, const Receipt& computed) {
  std::vector<std::string> problems;
  add_differences("summary", json_of(receipt.summary), json_of(computed.summary), problems);
  add_differences("greedy", json_of(receipt.greedy), json_of(computed.greedy), problems);
  add_differences("status", receipt.status, computed.status, problems);
  add_differences("reason", receipt.reason, computed.reason, problems);
  return problems;
}

std::string trace_text(const Trace& trace) {
  std::string text = dump({{"qsf_parity_trace", kTraceVersion},
                           {"engine", trace.engine},
                           {"model", trace.model},
                           {"tokens", trace.tokens},
                           {"points", trace.points.size()}}) +
                     "\n";
  for (const TracePoint& point : trace.points) {
    json projections = json::array();
    for (const double projection : point.projections) {
      projections.push_back(number_or_null(projection));
    }
    text += dump({{"pass", point.pass},
                  {"layer", point.layer},
                  {"name", point.name},
                  {"shape", {point.n_rows, point.n_cols}},
                  {"rms", number_or_null(point.rms)},
                  {"projections", projections},
                  {"checksum", point.checksum}}) +
            "\n";
  }
  return text;
}

qsf::Result<Trace> parse_trace(const std::string& text, const std::string& path) {
  Trace trace;
  std::uint64_t n_points = 0;
  bool has_head = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const json line = parse_json(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    if (has_head) {
      QSF_ASSIGN_OR_RETURN(TracePoint point, parse_point(line, path.c_str()));
      trace.points.push_back(std::move(point));
      continue;
    }
    std::string problem;
    std::uint64_t version = 0;
    if (line.is_object()) {
      Reader reader(line, "trace", problem);
      reader("qsf_parity_trace", version, kAny);
      reader("engine", trace.engine, kAny);
      reader("tokens", trace.tokens, kAny);
      reader("points", n_points, kAny);
    }
    if (version != kTraceVersion || !problem.empty()) {
      return qsf::corrupt("%s: not a trace of version 2", path.c_str());
    }
    has_head = true;
  }
  if (!has_head || trace.points.size() != n_points) {
    return qsf::corrupt("%s: %zu points of a trace, expected %llu; the file is cut", path.c_str(),
                        trace.points.size(), static_cast<unsigned long long>(n_points));
  }
  return trace;
}

std::string kernel_call_line(const KernelCall& call) {
  json line = {{"kernel_id", call.kernel},
               {"layer", call.layer},
               {"operation", call.operation},
               {"call", call.call},
               {"pass", call.pass},
               {"input_rows", call.input_rows},
               {"backend", "cpu"},
               {"device", "cpu"},
               {"timestamp_us", call.timestamp_us},
               {"duration_us", call.duration_us}};
  if (call.weights) {
    const KernelWeights& weights = *call.weights;
    line["rows"] = weights.rows;
    line["cols"] = weights.cols;
    line["block_columns"] = weights.block_columns;
    line["blocks_per_row"] = weights.blocks_per_row;
    line["bytes_per_block"] = weights.bytes_per_block;
    line["weight_bytes"] = weights.bytes;
    line["quantization_type"] = weights.type;
  }
  return dump(line) + "\n";
}

std::string source_text(const SourceDescription& source, const std::string& model_path,
                        const std::string& model_sha256) {
  json value = json_of(source);
  value["model_path"] = model_path;
  value["model_sha256"] = model_sha256;
  return dump(value);
}

bool is_source_text(std::string_view text) {
  return parse_json(text).is_object();
}

std::optional<ChildHello> parse_hello(std::string_view text) {
  const json hello = parse_json(text);
  if (!hello.is_object()) return std::nullopt;
  ChildHello result;
  const auto number = [&](const char* key) -> std::uint64_t {
    const auto found = hello.find(key);
    return found != hello.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  };
  const auto words = [&](const char* key, std::string& to) {
    const auto found = hello.find(key);
    if (found != hello.end() && found->is_string()) to = found->get<std::string>();
  };
  result.protocol = number("protocol");
  result.n_vocab = number("n_vocab");
  result.trace = hello.value("trace", json()) == true;
  words("name", result.name);
  words("commit", result.commit);
  words("system", result.system);
  words("kv_type", result.kv_type);
  return result;
}

}  // namespace qsf_tools
