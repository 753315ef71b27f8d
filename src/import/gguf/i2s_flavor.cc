// SPDX-License-Identifier: MIT

#include "import/gguf/i2s_flavor.h"

#include <algorithm>
#include <array>
#include <cinttypes>

#include "base/bytes.h"

namespace qsf {
namespace {

constexpr std::string_view kFlavorNames[] = {"ms128",    "ms64",    "ms4row",
                                             "inline32", "split32", "qk256"};
constexpr std::uint64_t kMicrosoftFileType = 40;
constexpr std::uint64_t kSeedTolerance = 128;

// The layouts that sizes distinguish: the three Microsoft layouts have the same size.
constexpr I2sFlavor kI2sFlavors[] = {I2sFlavor::kMicrosoft128, I2sFlavor::kBitNet32F16,
                                     I2sFlavor::kSplit32WithSibling, I2sFlavor::kGgmlQk256NoScale};
constexpr std::size_t kQk256Family = 3;
using Families = std::array<bool, std::size(kI2sFlavors)>;

// Returns whether the tensor's bytes are `need`, padded to the alignment.
bool fits(const I2sTensor& t, std::uint64_t need, std::uint64_t alignment) noexcept {
  if (t.ends_file && t.available_bytes == need) return true;
  const std::uint64_t rest = need % alignment;
  const auto padded = checked_add(need, rest == 0 ? 0 : alignment - rest);
  return padded && t.available_bytes == *padded;
}

bool has_size_of(I2sFlavor flavor, const I2sTensor& t, std::uint64_t alignment) noexcept {
  const std::uint64_t n = t.rows * t.cols;
  if (fits(t, i2s_bytes(flavor, t.rows, t.cols).value_or(0), alignment)) return true;
  // Writers of split32 that do not fill their last block, or fill the last 256.
  return flavor == I2sFlavor::kSplit32WithSibling &&
         (fits(t, ceil_div(n, 4), alignment) || fits(t, ceil_div(n, 256) * 64, alignment));
}

// Returns why a tensor of the right size cannot have the flavour, or null.
const char* shape_objection(I2sFlavor flavor, const I2sTensor& t) noexcept {
  switch (flavor) {
    case I2sFlavor::kMicrosoft128:
      return t.cols % 128 == 0 ? nullptr : "its groups of 128 weights straddle rows";
    case I2sFlavor::kMicrosoft64:
      return t.cols % 64 == 0 ? nullptr : "its groups of 64 weights straddle rows";
    case I2sFlavor::kMicrosoft4Row:
      return t.rows % 4 == 0 ? nullptr : "its rows are no multiple of 4";
    case I2sFlavor::kSplit32WithSibling:
      return t.n_sibling_scales == ceil_div(t.rows * t.cols, 32)
                 ? nullptr
                 : "no tensor beside it has a scale for every 32 weights";
    case I2sFlavor::kGgmlQk256NoScale:
      return t.n_sibling_scales == 0 ? nullptr : "a tensor beside it has scales";
    case I2sFlavor::kBitNet32F16: break;
  }
  return nullptr;
}

bool is_candidate(I2sFlavor flavor, const I2sTensor& t, std::uint64_t alignment) noexcept {
  return has_size_of(flavor, t, alignment) && shape_objection(flavor, t) == nullptr;
}

// "blk.0.attn_q.weight, I2_S of 640 x 2560 in 409632 bytes (ms128 needs 409632, ...)"
std::string account(const I2sTensor& t, std::uint64_t alignment) {
  std::string text = std::string(t.name) + ", I2_S of " + std::to_string(t.rows) + " x " +
                     std::to_string(t.cols) + " in " + std::to_string(t.available_bytes) +
                     " bytes (";
  for (const I2sFlavor flavor : kI2sFlavors) {
    text +=
        std::string(flavor == kI2sFlavors[0] ? "" : ", ") + std::string(i2s_flavor_name(flavor));
    text += flavor == kI2sFlavors[0] ? ", ms64 and ms4row need " : " needs ";
    text += std::to_string(*i2s_bytes(flavor, t.rows, t.cols));
  }
  const std::uint64_t n_blocks = ceil_div(t.rows * t.cols, 32);
  return text + "; split32 also " + std::to_string(n_blocks) + " scales beside it, there are " +
         std::to_string(t.n_sibling_scales) + "; alignment " + std::to_string(alignment) + ")";
}

Status check_shape(const I2sTensor& t) {
  if (t.rows == 0 || t.cols == 0) {
    return corrupt("%.*s: an I2_S tensor without weights", static_cast<int>(t.name.size()),
                   t.name.data());
  }
  for (const I2sFlavor flavor : kI2sFlavors) {
    if (!i2s_bytes(flavor, t.rows, t.cols)) {
      return corrupt("%.*s: an I2_S tensor of %" PRIu64 " x %" PRIu64 " weights",
                     static_cast<int>(t.name.size()), t.name.data(), t.rows, t.cols);
    }
  }
  return ok_status();
}

Status check_explicit(I2sFlavor flavor, const I2sFile& file) {
  for (const I2sTensor& t : file.tensors) {
    const std::string name(i2s_flavor_name(flavor));
    if (!has_size_of(flavor, t, file.alignment)) {
      return unsupported("%s: the size is not that of %s; use --i2s-layout auto",
                         account(t, file.alignment).c_str(), name.c_str());
    }
    if (const char* objection = shape_objection(flavor, t); objection != nullptr) {
      return unsupported("%s: cannot be %s, %s; use another --i2s-layout",
                         account(t, file.alignment).c_str(), name.c_str(), objection);
    }
  }
  return ok_status();
}

// No family fits all tensors: names the first that does not fit what most of them do.
Status refuse_disagreement(const I2sFile& file, const std::array<std::size_t, 4>& n_fitting) {
  const auto most = static_cast<std::size_t>(std::max_element(n_fitting.begin(), n_fitting.end()) -
                                             n_fitting.begin());
  const I2sFlavor flavor = kI2sFlavors[most];
  const std::string name(i2s_flavor_name(flavor));
  for (const I2sTensor& t : file.tensors) {
    if (is_candidate(flavor, t, file.alignment)) continue;
    if (n_fitting[most] != 0) {
      return unsupported("%s: not %s, as %zu of the file's %zu I2_S tensors are%s",
                         account(t, file.alignment).c_str(), name.c_str(), n_fitting[most],
                         file.tensors.size(),
                         "; the file is damaged, or say what it is with --i2s-layout");
    }
    const char* objection = has_size_of(I2sFlavor::kMicrosoft128, t, file.alignment)
                                ? shape_objection(I2sFlavor::kMicrosoft128, t)
                                : nullptr;
    return unsupported(
        "%s: no known layout%s%s; the file is damaged, or say what it is with "
        "--i2s-layout",
        account(t, file.alignment).c_str(), objection == nullptr ? "" : ", not ms128 because ",
        objection == nullptr ? "" : objection);
  }
  return internal_error("I2_S: every tensor fits %s", name.c_str());
}

Result<I2sFlavor> detect_for_file(const I2sFile& file) {
  std::array<std::size_t, 4> n_fitting{};
  for (const I2sTensor& t : file.tensors) {
    for (std::size_t f = 0; f < std::size(kI2sFlavors); ++f) {
      n_fitting[f] += is_candidate(kI2sFlavors[f], t, file.alignment) ? 1U : 0U;
    }
  }
  Families fits_all{};
  for (std::size_t f = 0; f < std::size(kI2sFlavors); ++f) {
    fits_all[f] = n_fitting[f] == file.tensors.size();
  }
  const auto n_families = std::count(fits_all.begin(), fits_all.end(), true);
  if (n_families == 0) return refuse_disagreement(file, n_fitting);
  if (fits_all[0] && file.file_type == kMicrosoftFileType) return I2sFlavor::kMicrosoft128;
  const std::string first = account(file.tensors.front(), file.alignment);
  if (n_families > 1) {
    return unsupported(
        "%s: fits several layouts, as every I2_S tensor of the file does; say which "
        "it is with --i2s-layout",
        first.c_str());
  }
  if (fits_all[kQk256Family]) {
    return unsupported(
        "%s: only qk256 fits, which no known writer produces; if the file is that, "
        "say so with --i2s-layout qk256",
        first.c_str());
  }
  return kI2sFlavors[static_cast<std::size_t>(std::find(fits_all.begin(), fits_all.end(), true) -
                                              fits_all.begin())];
}

bool within_seed_tolerance(std::uint64_t available, std::uint64_t need) noexcept {
  return (available > need ? available - need : need - available) <= kSeedTolerance;
}

Result<I2sFlavor> detect_by_seed(const I2sTensor& t, std::uint64_t alignment) {
  const std::uint64_t n = t.rows * t.cols;
  const std::uint64_t available = t.available_bytes;
  if (within_seed_tolerance(available, ceil_div(n, 256) * 64)) return I2sFlavor::kGgmlQk256NoScale;
  if (t.n_sibling_scales != 0 && within_seed_tolerance(available, ceil_div(n, 32) * 8)) {
    return I2sFlavor::kSplit32WithSibling;
  }
  if (within_seed_tolerance(available, ceil_div(n, 32) * 10)) return I2sFlavor::kBitNet32F16;
  return unsupported(
      "%s: unsupported layout by the rule of --i2s-layout seed, which takes what "
      "is within %" PRIu64 " bytes",
      account(t, alignment).c_str(), kSeedTolerance);
}

}  // namespace

std::string_view i2s_flavor_name(I2sFlavor flavor) noexcept {
  return kFlavorNames[static_cast<std::size_t>(flavor)];
}

std::optional<I2sLayout> find_i2s_layout(std::string_view name) noexcept {
  for (std::size_t i = 0; i < std::size(kI2sLayoutNames); ++i) {
    if (kI2sLayoutNames[i] == name) return static_cast<I2sLayout>(i);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> i2s_bytes(I2sFlavor flavor, std::uint64_t rows,
                                       std::uint64_t cols) noexcept {
  const auto n = checked_mul(rows, cols);
  if (!n) return std::nullopt;
  switch (flavor) {
    case I2sFlavor::kMicrosoft128:
    case I2sFlavor::kMicrosoft64:
    case I2sFlavor::kMicrosoft4Row: return *n / 4 + 32;
    case I2sFlavor::kBitNet32F16: return checked_mul(ceil_div(*n, 32), 10);
    case I2sFlavor::kSplit32WithSibling: return checked_mul(ceil_div(*n, 32), 8);
    case I2sFlavor::kGgmlQk256NoScale: break;
  }
  const auto n_blocks = checked_mul(rows, ceil_div(cols, 256));
  return n_blocks ? checked_mul(*n_blocks, 64) : std::nullopt;
}

Result<std::vector<I2sFlavor>> detect_i2s_flavors(const I2sFile& file, I2sLayout layout) {
  for (const I2sTensor& t : file.tensors) QSF_RETURN_IF_ERROR(check_shape(t));
  std::vector<I2sFlavor> flavors;
  if (file.tensors.empty()) return flavors;
  if (layout == I2sLayout::kSeed) {
    for (const I2sTensor& t : file.tensors) {
      QSF_ASSIGN_OR_RETURN(const I2sFlavor flavor, detect_by_seed(t, file.alignment));
      flavors.push_back(flavor);
    }
    return flavors;
  }
  I2sFlavor flavor{};
  if (layout == I2sLayout::kAuto) {
    QSF_ASSIGN_OR_RETURN(flavor, detect_for_file(file));
  } else {
    flavor = static_cast<I2sFlavor>(static_cast<unsigned>(layout) - 1U);
    QSF_RETURN_IF_ERROR(check_explicit(flavor, file));
  }
  flavors.assign(file.tensors.size(), flavor);
  return flavors;
}

static_assert(static_cast<int>(I2sLayout::kQk256) - 1 ==
              static_cast<int>(I2sFlavor::kGgmlQk256NoScale));

std::vector<std::string> i2s_scale_names(std::string_view tensor_name) {
  std::vector<std::string> names;
  std::string_view base = tensor_name;
  for (const std::string_view suffix : {".weight", ".data", ".qweight"}) {
    if (!tensor_name.ends_with(suffix)) continue;
    base = tensor_name.substr(0, tensor_name.size() - suffix.size());
    names.push_back(std::string(base) + ".scale");
    names.push_back(std::string(base) + ".scales");
  }
  const auto add = [&names](std::string_view front, std::string_view suffix) {
    std::string name = std::string(front) + std::string(suffix);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string_view suffix : {".scale", ".scales", "._scale", "._scales", "_scale",
                                        "_scales", ".q_scales", ".qh", ".d", ".scl", ".s"}) {
    add(base, suffix);
  }
  for (const std::string_view suffix : {".scale", ".scales", "._scale", "._scales"}) {
    add(tensor_name, suffix);
  }
  return names;
}

}  // namespace qsf
