// SPDX-License-Identifier: MIT
//
// Detects the layout of I2_S tensors, GGUF's type 36. Six layouts share the number, and files do
// not mark which one they use.
//
//   name      flavour               bytes of n = rows * cols weights         weight
//   ms128     Microsoft, 128 in 32  n/4 + 32, cols a multiple of 128         scale * (code - 1)
//   ms64      its ARM, 64 in 16     n/4 + 32, cols a multiple of 64          the same
//   ms4row    its 4 rows a byte     n/4 + 32, rows a multiple of 4           the same
//   inline32  BitNet32F16           10 * ceil(n / 32)                        scale * (code - 2)
//   split32   Split32WithSibling    8 * ceil(n / 32), scales in a tensor     the same
//                                   beside it, ceil(n / 32) of them
//   qk256     GgmlQk256NoScale      64 * rows * ceil(cols / 256)             -2, -1, 1, 2
//
// import/gguf/i2s_decoder.h describes the bytes of each. Sizes are compared exactly, up to the
// file's alignment, and one layout is chosen for the whole file. A rule with a tolerance would read
// noise: the sizes of ms128 and inline32 are equal for 128, 256, 384 and 512 weights, and ms128 and
// qk256 differ by 32 bytes at any size. The three ms layouts have equal sizes; the default is
// ms128, the layout of every published file.

#ifndef QSF_IMPORT_GGUF_I2S_FLAVOR_H_
#define QSF_IMPORT_GGUF_I2S_FLAVOR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf {

inline constexpr std::uint32_t kGgmlTypeI2S = 36;

enum class I2sFlavor : std::uint8_t {
  kMicrosoft128,
  kMicrosoft64,
  kMicrosoft4Row,
  kBitNet32F16,
  kSplit32WithSibling,
  kGgmlQk256NoScale,
};

// Returns "ms128", "ms64", "ms4row", "inline32", "split32" or "qk256".
std::string_view i2s_flavor_name(I2sFlavor flavor) noexcept;
constexpr bool is_microsoft(I2sFlavor flavor) noexcept {
  return flavor <= I2sFlavor::kMicrosoft4Row;
}

// The value of --i2s-layout: detection, a layout by name, or kSeed, the rule of other readers:
// tensor by tensor, with a tolerance of 128 bytes, qk256 first. kSeed takes every Microsoft tensor
// as qk256 and exists to reproduce the numbers of those readers.
enum class I2sLayout : std::uint8_t {
  kAuto,
  kMs128,
  kMs64,
  kMs4Row,
  kInline32,
  kSplit32,
  kQk256,
  kSeed
};
inline constexpr std::string_view kI2sLayoutNames[] = {"auto",     "ms128",   "ms64",  "ms4row",
                                                       "inline32", "split32", "qk256", "seed"};

// Returns the layout of that name on the command line; nothing for an unknown one.
std::optional<I2sLayout> find_i2s_layout(std::string_view name) noexcept;

struct I2sTensor {
  std::string_view name;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;              // contiguous
  std::uint64_t available_bytes = 0;   // up to the next tensor or the end of the data
  bool ends_file = false;              // nothing follows, so padding may be missing
  std::uint64_t n_sibling_scales = 0;  // elements of the scale tensor beside it; 0: there is none
};

struct I2sFile {
  std::span<const I2sTensor> tensors;      // all of type I2_S
  std::uint64_t alignment = 32;            // general.alignment
  std::optional<std::uint64_t> file_type;  // general.file_type; 40 is Microsoft's I2_S
};

// Returns the bytes that a tensor of a flavour needs, without padding; nothing when that overflows.
std::optional<std::uint64_t> i2s_bytes(I2sFlavor flavor, std::uint64_t rows,
                                       std::uint64_t cols) noexcept;

// Returns the layout of each tensor: the same for all, except with kSeed.
// Fails    kUnsupported when no layout fits, several fit, only qk256 fits and was not requested, or
//          the tensors disagree; kCorrupt for a tensor without weights. Messages list the sizes of
//          the tensor under each layout and name --i2s-layout
// Threads  any
Result<std::vector<I2sFlavor>> detect_i2s_flavors(const I2sFile& file, I2sLayout layout);

// Returns the names under which the scales of a split32 tensor are looked for, in order.
std::vector<std::string> i2s_scale_names(std::string_view tensor_name);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_I2S_FLAVOR_H_
