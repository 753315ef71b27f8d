// SPDX-License-Identifier: MIT
//
// The check of a receipt: everything that can be computed again is, from what the receipt says and
// from the files it names.

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tools/parity/json_schema.h"
#include "tools/parity/parity_receipt_schema.h"
#include "tools/parity/qsf_parity_receipt.h"
#include "tools/parity/sha256.h"

namespace qsf_tools {
namespace {

using nlohmann::json;

constexpr double kRounding = 1e-12;  // of numbers that were written in full and read again

class ReceiptChecker {
 public:
  ReceiptChecker(const json& receipt, const std::string& model)
      : receipt_(receipt), model_(model) {}

  ReceiptCheck check() {
    const json schema = json::parse(kParityReceiptSchema, nullptr, false);
    const std::string problem = check_schema(receipt_, schema);
    if (!problem.empty()) {
      add(problem);
      return std::move(found_);
    }
    if (receipt_["receipt_sha256"] != receipt_digest(receipt_)) {
      add("receipt_sha256: another digest; the receipt was changed after it was written");
    }
    // Sizes that the verdict relies on come first.
    check_shapes();
    if (!found_.problems.empty()) return std::move(found_);
    const ParityResult result = result_of(receipt_);
    check_rows(result);
    if (!found_.problems.empty()) return std::move(found_);
    check_verdict(result);
    check_sides();
    check_kernels();
    check_greedy(result);
    check_files();
    return std::move(found_);
  }

 private:
  void add(std::string problem) { found_.problems.push_back(std::move(problem)); }

  void expect_equal(const std::string& where, const json& got, const json& expected) {
    if (!same(got, expected)) {
      add(where + ": " + got.dump() + ", but what the receipt holds gives " + expected.dump());
    }
  }

  static bool same(const json& a, const json& b) {
    if (!a.is_number() || !b.is_number()) return a == b;
    const double x = a.get<double>();
    const double y = b.get<double>();
    return std::fabs(x - y) <= kRounding * std::max({1.0, std::fabs(x), std::fabs(y)});
  }

  // What result_of() and judge() take for granted.
  void check_shapes() {
    constexpr std::uint64_t kMostTokens = 1U << 24;
    const std::uint64_t n_tokens = receipt_["tokenization"]["ours"].size();
    const auto positions = receipt_["summary"]["positions"].get<std::uint64_t>();
    if (positions > n_tokens) add("summary/positions: more than there are tokens");
    const auto steps = receipt_["greedy"]["steps"].get<std::uint64_t>();
    const json& greedy = receipt_["greedy"];
    if (steps > kMostTokens || greedy["ours"].size() > steps ||
        greedy["reference"].size() > steps) {
      add("greedy: more tokens than steps");
    }
    if (!found_.problems.empty()) return;
    for (std::size_t i = 0; i < receipt_["rows"].size(); ++i) {
      const json& row = receipt_["rows"][i];
      const bool both_zero = row["zero"].get<bool>() && row["cosine"].is_null();
      const bool measured = row["finite"].get<bool>() && !both_zero;
      for (const char* const key : {"cosine", "centred_cosine", "max_abs_error", "mse", "kl"}) {
        if (row[key].is_null() == measured) {
          add(place(i) + key + ": " + row[key].dump() + " in a row that is " +
              (measured ? "measured" : "not measured"));
        }
      }
      const std::size_t n_top = row["top_ours"].size();
      if (n_top != row["top_reference"].size() || n_top > kTopTokens || (n_top > 0) != measured) {
        add(place(i) + "top_ours: " + std::to_string(n_top) + " tokens");
      }
    }
    const std::uint64_t most_rows = positions + receipt_["greedy"]["ours"].size();
    if (receipt_["rows"].size() > most_rows) add("rows: more than there are tokens");
  }

  static std::string place(std::size_t row) { return "rows/" + std::to_string(row) + "/"; }

  void check_rows(const ParityResult& result) {
    if (!result.rows.empty()) {
      const json rows = rows_json(result);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (const auto& [key, value] : rows[i].items()) {
          expect_equal(place(i) + key, receipt_["rows"][i][key], value);
        }
        check_row(result, i);
      }
    }
    const json tokenization = tokenization_json(result);
    for (const auto& [key, value] : tokenization.items()) {
      expect_equal("tokenization/" + key, receipt_["tokenization"][key], value);
    }
  }

  // What numbers of one row have to do with each other, whatever the logits were.
  void check_row(const ParityResult& result, std::size_t i) {
    const RowParity& row = result.rows[i];
    if (!row.cosine) return;
    const double largest = *row.max_abs_error;
    if (*row.mse > largest * largest * (1 + 1e-9) + 1e-300) {
      add(place(i) + "mse: above the square of the largest error");
    }
    if (largest > 0.0 && *row.mse * result.n_vocab < largest * largest * (1 - 1e-9)) {
      add(place(i) + "mse: below what the largest error alone makes of it");
    }
    if (largest == 0.0 && (*row.cosine < 1 - 1e-9 || *row.kl > 1e-9)) {
      add(place(i) + "max_abs_error: 0 in rows that differ");
    }
    for (const auto* list : {&row.top_ours, &row.top_reference}) {
      std::vector<std::uint32_t> ids = *list;
      std::sort(ids.begin(), ids.end());
      const bool twice = std::adjacent_find(ids.begin(), ids.end()) != ids.end();
      if (twice || ids.back() >= result.n_vocab) add(place(i) + "top: no list of distinct tokens");
      if (ids.size() != std::min<std::size_t>(kTopTokens, result.n_vocab)) {
        add(place(i) + "top: not as many tokens as there have to be");
      }
    }
  }

  void check_verdict(const ParityResult& result) {
    found_.verdict = judge(result);
    for (const auto& [key, value] : found_.verdict.summary.items()) {
      expect_equal("summary/" + key, receipt_["summary"][key], value);
    }
    for (const auto& [key, value] : found_.verdict.greedy.items()) {
      expect_equal("greedy/" + key, receipt_["greedy"][key], value);
    }
    expect_equal("status", receipt_["status"], status_name(found_.verdict.status));
    expect_equal("reason", receipt_["reason"], found_.verdict.reason);
  }

  // The first greedy token is the most likely one of the prompt's last row, and so on.
  void check_greedy(const ParityResult& result) {
    for (std::size_t step = 0; step < result.greedy.size(); ++step) {
      const std::size_t row = result.n_positions - 1 + step;
      if (result.n_positions == 0 || row >= result.rows.size()) break;
      const RowParity& from = result.rows[row];
      if (from.top_ours.empty()) break;
      const bool ours = from.top_ours[0] == result.greedy[step];
      const bool reference = step >= result.reference_greedy.size() ||
                             from.top_reference[0] == result.reference_greedy[step];
      if (!ours || !reference) {
        add("greedy: step " + std::to_string(step) + " did not take the most likely token");
      }
    }
  }

  // An empty comparison has no sides; one with rows has both, of the vocabulary they say.
  void check_sides() {
    const json& ours = receipt_["ours"];
    const json& reference = receipt_["reference"];
    const bool has_rows = !receipt_["rows"].empty();
    if (has_rows && (ours["backend"] == "none" || reference["kind"] == "none")) {
      add("ours, reference: rows without two sides");
    }
    if (has_rows && ours["n_vocab"] != reference["n_vocab"]) {
      add("n_vocab: rows of two vocabularies cannot be compared");
    }
    const json& model = receipt_["model"];
    if (model.contains("n_vocab") && ours["n_vocab"] != model["n_vocab"]) {
      add("ours/n_vocab: not that of the model");
    }
    if (has_rows && model["sha256"].is_null()) add("model/sha256: none, but logits of it");
    if (reference["kind"] == "engine" && reference.value("exact", false) == false) {
      add("reference/exact: our own engine is a reference with exact products alone");
    }
  }

  // Names of kernels that ran: products among them, of the kind that the receipt claims. A model
  // with int8 rows takes them in exact products as well.
  void check_kernels() {
    bool has_product = false;
    const bool int8_rows = receipt_["model"].value("int8_rows", false);
    for (const json& kernel : receipt_["kernels"]) {
      const auto id = kernel["kernel_id"].get<std::string>();
      std::string lower = id;
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      for (const char* const word : {"mock", "fake", "stub"}) {
        if (lower.find(word) != std::string::npos) add("kernels: " + id + " computes nothing");
      }
      const bool product = id.starts_with("matmul_");
      has_product = has_product || product;
      if (product && receipt_["ours"]["exact"].get<bool>() &&
          id.find("_f32_") == std::string::npos &&
          !(int8_rows && id.find("_i8_") != std::string::npos)) {
        add("kernels: " + id + " rounds activations, and the receipt says exact");
      }
    }
    if (!has_product && !receipt_["rows"].empty()) add("kernels: rows, and no product that ran");
  }

  void check_file(const std::string& where, const json& path, const json& expected) {
    if (!path.is_string() || !expected.is_string()) return;
    const auto name = path.get<std::string>();
    const std::optional<std::string> hash = sha256_of_file(name);
    if (!hash) {
      found_.unchecked.push_back(where + ": " + name + " is not here");
    } else if (*hash != expected.get<std::string>()) {
      add(where + ": " + name + " has another SHA-256; it is not what the receipt is about");
    }
  }

  void check_files() {
    const json& model = receipt_["model"];
    check_file("model", model_.empty() ? model["path"] : json(model_), model["sha256"]);
    check_file("converted model", model.value("converted_path", json()),
               model.value("converted_sha256", json()));
    const json& reference = receipt_["reference"];
    const auto of = [&](const char* key) { return reference.value(key, json()); };
    check_file("reference model", of("model_path"), of("model_sha256"));
    check_file("recorded logits", of("path"), of("sha256"));
    const json& records = receipt_["kernel_records"];
    if (records.is_object()) check_file("kernel records", records["path"], records["sha256"]);
  }

  const json& receipt_;
  std::string model_;
  ReceiptCheck found_;
};

}  // namespace

ReceiptCheck check_receipt(const json& receipt, const std::string& model) {
  return ReceiptChecker(receipt, model).check();
}

}  // namespace qsf_tools
