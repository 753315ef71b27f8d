// SPDX-License-Identifier: MIT
//
// The check of a receipt: computes everything again that follows from the receipt's own numbers and
// from the files it names.

#include <algorithm>
#include <cctype>
#include <utility>

#include "tools/parity/parity_json.h"
#include "tools/parity/parity_receipt.h"
#include "tools/parity/sha256.h"

namespace qsf_tools {
namespace {

class ReceiptChecker {
 public:
  explicit ReceiptChecker(std::string model) : model_(std::move(model)) {}

  ReceiptCheck check(const std::string& text) {
    auto parsed = parse_receipt(text);
    if (!parsed) {
      add(std::string(parsed.error().message()));
      return std::move(found_);
    }
    receipt_ = std::move(parsed->receipt);
    if (receipt_.sha256 != parsed->digest) {
      add("receipt_sha256: wrong digest; the receipt was changed after it was written");
    }
    // The verdict relies on these sizes.
    check_shapes();
    if (!found_.problems.empty()) return std::move(found_);
    const ParityResult result = result_of(receipt_);
    Receipt computed;
    computed.rows = row_records(result);
    computed.tokenization = tokenization_record(result);
    add_all(differing_measurements(receipt_, computed));
    for (std::size_t i = 0; i < result.rows.size(); ++i) check_row(result, i);
    if (!found_.problems.empty()) return std::move(found_);
    found_.verdict = judge(result);
    computed.summary = found_.verdict.summary;
    computed.greedy = found_.verdict.greedy;
    computed.status = status_name(found_.verdict.status);
    computed.reason = found_.verdict.reason;
    add_all(differing_verdict(receipt_, computed));
    check_sides();
    check_kernels();
    check_greedy(result);
    check_files();
    return std::move(found_);
  }

 private:
  void add(std::string problem) { found_.problems.push_back(std::move(problem)); }
  void add_all(std::vector<std::string> problems) {
    for (std::string& problem : problems) add(std::move(problem));
  }
  static std::string place(std::size_t row) { return "rows/" + std::to_string(row) + "/"; }

  // Sizes that result_of() and judge() rely on.
  void check_shapes() {
    constexpr std::uint32_t kMostTokens = 1U << 24;
    const std::uint64_t positions = receipt_.summary.positions;
    if (positions > receipt_.tokenization.ours.size()) {
      add("summary/positions: more than there are tokens");
    }
    const GreedyRecord& greedy = receipt_.greedy;
    if (greedy.steps > kMostTokens || greedy.ours.size() > greedy.steps ||
        greedy.reference.size() > greedy.steps) {
      add("greedy: more tokens than steps");
    }
    if (!found_.problems.empty()) return;
    for (std::size_t i = 0; i < receipt_.rows.size(); ++i) check_row_shape(receipt_.rows[i], i);
    if (receipt_.rows.size() > positions + greedy.ours.size()) {
      add("rows: more than there are tokens");
    }
  }

  // A row has numbers where both sides are finite and not both zero.
  void check_row_shape(const RowRecord& row, std::size_t i) {
    const bool both_zero = row.zero && !row.cosine;
    const bool measured = row.finite && !both_zero;
    const std::pair<const char*, const std::optional<double>*> numbers[] = {
        {"cosine", &row.cosine},
        {"centred_cosine", &row.centred_cosine},
        {"max_abs_error", &row.max_abs_error},
        {"mse", &row.mse},
        {"kl", &row.kl}};
    for (const auto& [key, number] : numbers) {
      if (number->has_value() != measured) {
        add(place(i) + key +
            (measured ? ": null in a row that is measured"
                      : ": a number in a row that is not measured"));
      }
    }
    const std::size_t n_top = row.top_ours.size();
    if (n_top != row.top_reference.size() || n_top > kTopTokens || (n_top > 0) != measured) {
      add(place(i) + "top_ours: " + std::to_string(n_top) + " tokens");
    }
  }

  // Relations between the numbers of one row that hold for any logits.
  void check_row(const ParityResult& result, std::size_t i) {
    const RowParity& row = result.rows[i];
    if (!row.cosine) return;
    const double largest = *row.max_abs_error;
    if (*row.mse > largest * largest * (1 + 1e-9) + 1e-300) {
      add(place(i) + "mse: above the square of the largest error");
    }
    if (largest > 0.0 && *row.mse * result.n_vocab < largest * largest * (1 - 1e-9)) {
      add(place(i) + "mse: below the share of the largest error alone");
    }
    if (largest == 0.0 && (*row.cosine < 1 - 1e-9 || *row.kl > 1e-9)) {
      add(place(i) + "max_abs_error: 0 in rows that differ");
    }
    for (const auto* list : {&row.top_ours, &row.top_reference}) {
      std::vector<std::uint32_t> ids = *list;
      std::sort(ids.begin(), ids.end());
      const bool twice = std::adjacent_find(ids.begin(), ids.end()) != ids.end();
      if (twice || ids.back() >= result.n_vocab)
        add(place(i) + "top: not a list of distinct tokens");
      if (ids.size() != std::min<std::size_t>(kTopTokens, result.n_vocab)) {
        add(place(i) + "top: not the expected number of tokens");
      }
    }
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

  // A comparison with rows has two sides of one vocabulary.
  void check_sides() {
    const SourceDescription& ours = receipt_.ours;
    const SourceDescription& reference = receipt_.reference.source;
    const bool has_rows = !receipt_.rows.empty();
    if (has_rows && (ours.backend == "none" || reference.kind == "none")) {
      add("ours, reference: rows without two sides");
    }
    if (has_rows && ours.n_vocab != reference.n_vocab) {
      add("n_vocab: rows of two vocabularies cannot be compared");
    }
    const ModelRecord& model = receipt_.model;
    if (model.description && ours.n_vocab != model.description->n_vocab) {
      add("ours/n_vocab: differs from the model's");
    }
    if (has_rows && !model.sha256) add("model/sha256: null, but there are logits of the model");
    if (reference.kind == "engine" && !reference.exact.value_or(false)) {
      add("reference/exact: this engine is a reference only with exact products");
    }
  }

  // Kernels that ran: at least one product, of the kind that the receipt claims. A model with
  // int8_rows has int8 products in exact mode too.
  void check_kernels() {
    bool has_product = false;
    const bool int8_rows = receipt_.model.description && receipt_.model.description->int8_rows;
    for (const KernelRecord& kernel : receipt_.kernels) {
      const std::string& id = kernel.kernel_id;
      std::string lower = id;
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      for (const char* const word : {"mock", "fake", "stub"}) {
        if (lower.find(word) != std::string::npos) add("kernels: " + id + " computes nothing");
      }
      const bool product = id.starts_with("matmul_");
      has_product = has_product || product;
      if (product && receipt_.ours.exact.value_or(false) && id.find("_f32_") == std::string::npos &&
          !(int8_rows && id.find("_i8_") != std::string::npos)) {
        add("kernels: " + id + " rounds activations, but the receipt says exact");
      }
    }
    if (!has_product && !receipt_.rows.empty()) add("kernels: rows, but no product that ran");
  }

  void check_file(const std::string& where, const std::optional<std::string>& path,
                  const HashOrNull& expected) {
    if (!path || !expected) return;
    const std::optional<std::string> hash = sha256_of_file(*path);
    if (!hash) {
      found_.unchecked.push_back(where + ": " + *path + " cannot be read");
    } else if (*hash != *expected) {
      add(where + ": " + *path + " has another SHA-256 than the file of the comparison");
    }
  }

  void check_files() {
    const ModelRecord& model = receipt_.model;
    check_file("model", model_.empty() ? model.path : model_, model.sha256);
    check_file("converted model", model.converted_path,
               model.converted_sha256.value_or(std::nullopt));
    const ReferenceRecord& reference = receipt_.reference;
    check_file("reference model", reference.model_path,
               reference.model_sha256.value_or(std::nullopt));
    check_file("recorded logits", reference.source.path,
               reference.source.sha256.value_or(std::nullopt));
    if (receipt_.kernel_records) {
      check_file("kernel records", receipt_.kernel_records->path, receipt_.kernel_records->sha256);
    }
  }

  Receipt receipt_;
  std::string model_;
  ReceiptCheck found_;
};

}  // namespace

ReceiptCheck check_receipt(const std::string& text, const std::string& model) {
  return ReceiptChecker(model).check(text);
}

}  // namespace qsf_tools
