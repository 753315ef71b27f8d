// SPDX-License-Identifier: MIT

#include "tools/convert/convert_work.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/crc32.h"
#include "convert/calibrate/calibrate_model.h"
#include "convert/calibrate/calibration.h"
#include "convert/tune/tune_model.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "io/atomic_file.h"
#include "io/file.h"
#include "tools/common/file_path.h"
#include "tools/convert/convert_checks.h"

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = "lock";
constexpr const char* kConversionName = "conversion";
constexpr std::uint64_t kMaxConversionBytes = 64 << 10;

bool is_section(const std::string& name) {
  return name.starts_with(qsf::SavedSections::kPrefix);
}

// Returns whether a file holds no progress, only the identity of the folder.
bool is_label(const std::string& name) {
  const std::string last = qsf::final_name(name);
  return last == kLockName || last == kConversionName;
}

// Returns whether a conversion creates files of that name in its folder, temporary ones included:
// it may have been killed while it had one.
bool is_own(const std::string& temporary_or_last) {
  const std::string name = qsf::final_name(temporary_or_last);
  std::vector<std::string> names = qsf::calibration_folder_names();
  for (std::string& tuning : qsf::tune_folder_names()) names.push_back(std::move(tuning));
  return is_section(name) || is_label(name) || std::ranges::find(names, name) != names.end();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(file_path(folder), failure), end; !failure && entry != end;
       entry.increment(failure)) {
    names.push_back(path_text(entry->path().filename()));
  }
  return names;
}

// Refuses a folder with files that no conversion has created.
qsf::Status check_names(const std::string& path) {
  const std::vector<std::string> names = names_in(path);
  const bool is_ours = std::ranges::find(names, kConversionName) != names.end();
  for (const std::string& name : names) {
    if (is_label(name) || (is_ours && is_own(name))) continue;
    return qsf::invalid_argument(
        "--work-folder %s: holds %s, which is no file of a conversion; give an empty or a new "
        "folder",
        path.c_str(), name.c_str());
  }
  return qsf::ok_status();
}

// Refuses results inside the folder: it is removed when they are complete.
qsf::Status check_results(const ConvertOptions& options) {
  for (const std::string& result : {options.output, options.calibration_out, options.report}) {
    std::error_code failure;
    const fs::path whole = fs::absolute(file_path(result), failure);
    if (result.empty() || !is_same_file(path_text(whole.parent_path()), options.work_folder))
      continue;
    return qsf::invalid_argument(
        "--work-folder %s: would hold %s, and is removed at the end; give another folder",
        options.work_folder.c_str(), result.c_str());
  }
  return qsf::ok_status();
}

// A checksum of a whole file, read piece by piece.
qsf::Result<std::string> fingerprint(const std::string& path) {
  QSF_ASSIGN_OR_RETURN(const qsf::File file, qsf::File::open(path));
  std::array<std::byte, 1 << 16> piece;
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < file.size_bytes(); at += piece.size()) {
    const auto part = qsf::MutableByteSpan(piece).first(
        std::min<std::uint64_t>(piece.size(), file.size_bytes() - at));
    QSF_RETURN_IF_ERROR(file.read_exact_at(at, part));
    crc = qsf::crc32(part, crc);
  }
  return std::to_string(file.size_bytes()) + " bytes, checksum " + std::to_string(crc);
}

// Returns a checksum of the constants of a model. Requires  validate(spec) is OK
std::uint32_t constants_crc(const qsf::ModelSpec& spec) {
  std::array<std::byte, qsf::kHeaderBytes> header = {};
  qsf::encode_spec_header(spec, header);
  qsf::ByteWriter metadata;
  qsf::encode_spec_metadata(spec).encode(metadata);
  return qsf::crc32(metadata.view(), qsf::crc32(header));
}

// Returns the name of a choice, empty where none was made.
template <typename Choice, typename Name>
std::string name_of(const std::optional<Choice>& choice, const Name& name) {
  return choice ? std::string(name(*choice)) : std::string();
}

// Returns everything that decides the bytes of the result, one line each.
qsf::Result<std::string> describe(const ConvertOptions& options, const qsf::ModelSource& source,
                                  const qsf::MergedModel* merged, qsf::ByteSpan tokenizer) {
  QSF_ASSIGN_OR_RETURN(const qsf::CalibratedModel model, qsf::identify_model(source));
  std::ostringstream lines;
  lines << "program: qsf-convert " QSF_VERSION "\n"
        << "model: " << model.architecture << ", " << model.n_layers << " layers of "
        << model.hidden << " columns, checksum " << model.weights_crc << "\n"
        << "constants: checksum " << constants_crc(source.spec()) << "\n"
        << "tokenizer: " << tokenizer.size() << " bytes, checksum " << qsf::crc32(tokenizer) << "\n"
        << "--quant-type: " << name_of(options.preset, qsf::quant_preset_name) << "\n"
        << "--head-type: " << name_of(options.head_type, qsf::quant_type_name) << "\n"
        << "--tensor-type:";
  for (const qsf::TensorTypeRule& rule : options.tensor_types) {
    lines << " " << rule.pattern << "=" << qsf::quant_type_name(rule.type);
  }
  lines << "\n"
        << "--block-size: " << options.block << "\n"
        << "--target-size: " << options.target_bytes << " bytes\n"
        << "--scale-search: " << scale_search_name(options.rounding) << "\n"
        << "--rotate: " << rotation_name(options.rotation) << "\n"
        << "--ternary-packing: " << ternary_packing_name(options.native_ternary) << "\n"
        << "--i2s-layout: " << qsf::kI2sLayoutNames[static_cast<std::size_t>(options.i2s_layout)]
        << "\n"
        << "--int8-rows: " << options.int8_rows << "\n"
        << "--layout: " << static_cast<unsigned>(options.layout) << "\n"
        << "--tile-bytes: " << options.tile_bytes << "\n"
        << "--gptq: " << options.gptq << "\n"
        << "--tune: " << (options.tune ? options.tune_passes : 0) << " passes\n"
        << "--merge-lora: " << options.merge.size() << " adapters, checksum "
        << (merged == nullptr ? 0 : merged->adapters_crc()) << "\n";
  if (options.calibration.empty()) return std::move(lines).str();
  QSF_ASSIGN_OR_RETURN(const std::string text, fingerprint(options.calibration));
  lines << "--calibration: " << text << "\n"
        << "--calibration-tokens: " << options.calibration_tokens << "\n"
        << "--calibration-context: " << options.calibration_context << "\n";
  return std::move(lines).str();
}

// Returns the first line of `a` that `b` does not have in its place.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a);
  std::istringstream lines_b(b);
  std::string line_a;
  std::string line_b;
  while (std::getline(lines_a, line_a) && std::getline(lines_b, line_b)) {
    if (line_a != line_b) return line_a;
  }
  return line_a;
}

}  // namespace

qsf::Result<std::unique_ptr<WorkFolder>> WorkFolder::open(const ConvertOptions& options,
                                                          const qsf::ModelSource& source,
                                                          const qsf::MergedModel* merged,
                                                          qsf::ByteSpan tokenizer) {
  const std::string& path = options.work_folder;
  QSF_ASSIGN_OR_RETURN(const std::string conversion, describe(options, source, merged, tokenizer));
  std::error_code failure;
  const fs::file_status status = fs::status(file_path(path), failure);
  if (fs::exists(status) && !fs::is_directory(status)) {
    return qsf::invalid_argument("--work-folder %s: not a folder; give a folder or a new name",
                                 path.c_str());
  }
  QSF_RETURN_IF_ERROR(check_results(options));
  QSF_RETURN_IF_ERROR(check_names(path));
  fs::create_directory(file_path(path), failure);
  if (failure) {
    return qsf::io_error("--work-folder %s: cannot be created: %s", path.c_str(),
                         failure.message().c_str());
  }
  std::unique_ptr<WorkFolder> folder(new WorkFolder(path));
  QSF_RETURN_IF_ERROR(folder->lock());
  QSF_RETURN_IF_ERROR(folder->check_conversion(conversion));
  for (const std::string& name : names_in(path)) {
    if (qsf::final_name(name) != name) fs::remove(file_path(path + "/" + name), failure);
  }
  folder->n_done_ = static_cast<std::size_t>(std::ranges::count_if(names_in(path), is_section));
  return folder;
}

WorkFolder::~WorkFolder() {
  if (is_ours_ && std::ranges::all_of(names_in(path_), is_label)) remove();
}

qsf::Status WorkFolder::lock() {
  const std::string name = path_ + "/" + kLockName;
  if (!lock_.create(name)) {
    return qsf::io_error("--work-folder %s: cannot be created: %s", name.c_str(),
                         std::strerror(errno));
  }
  // A killed process holds the lock until the system has cleaned up.
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    const FileLock::Tried tried = lock_.try_lock(/*shared=*/false);
    if (tried == FileLock::Tried::kLocked) return qsf::ok_status();
    if (tried == FileLock::Tried::kFailed) {
      return qsf::io_error("--work-folder %s: cannot be locked: %s; give a folder on another disk",
                           name.c_str(), std::strerror(errno));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return qsf::invalid_argument(
      "--work-folder %s: another conversion uses it; wait for it, or give another folder",
      path_.c_str());
}

qsf::Status WorkFolder::check_conversion(const std::string& expected) {
  const std::string name = path_ + "/" + kConversionName;
  const auto file = qsf::File::open(name);
  if (!file && file.error().code() == qsf::StatusCode::kNotFound) {
    is_ours_ = true;
    return qsf::write_file(name, qsf::as_bytes(expected));
  }
  if (!file) return qsf::Status(file.error());
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, file->read_all(kMaxConversionBytes));
  const std::string found(qsf::as_text(bytes));
  goes_on_ = found == expected;
  is_ours_ = goes_on_;
  if (goes_on_) return qsf::ok_status();
  return qsf::invalid_argument(
      "--work-folder %s: belongs to another conversion, which has \"%s\" where this one has "
      "\"%s\"; "
      "repeat that command, give another folder, or remove this one",
      path_.c_str(), first_difference(found, expected).c_str(),
      first_difference(expected, found).c_str());
}

void WorkFolder::remove() {
  std::error_code ignored;
  // The identity goes last: an interrupted removal can be repeated.
  for (const std::string& name : names_in(path_)) {
    if (is_own(name) && name != kConversionName && name != kLockName) {
      fs::remove(file_path(path_ + "/" + name), ignored);
    }
  }
  fs::remove(file_path(path_ + "/" + kConversionName), ignored);
  fs::remove(file_path(path_ + "/" + kLockName), ignored);
  if (!fs::is_symlink(file_path(path_), ignored)) fs::remove(file_path(path_), ignored);
}

}  // namespace qsf_tools
