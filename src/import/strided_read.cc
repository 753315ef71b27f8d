// SPDX-License-Identifier: MIT

#include "import/strided_read.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

namespace qsf {
namespace {

constexpr std::size_t kStagingBytes = 64U << 10;
// Elements further apart than this are read one by one: reading what lies between costs more.
constexpr std::uint64_t kMaxGapBytes = 512;

// One dimension of a box: elements `stored` apart in the file go `out` apart in the result.
struct Dimension {
  std::uint64_t extent = 1;
  std::uint64_t stored = 0;
  std::uint64_t out = 0;
};

// A part of the tensor that is a range in every dimension.
struct Box {
  std::array<Dimension, kMaxTensorDimensions> dimensions;
  std::size_t n_dimensions = 0;
  std::uint64_t base = 0;  // stored place of its first element
  std::uint64_t elements = 1;
};

// Returns the largest box that begins at element `at`, goes on in row-major order and has at most
// `left` elements.
Box largest_box(const StoredTensor& tensor, std::uint64_t at, std::uint64_t left) {
  const std::size_t n = tensor.shape.size();
  std::array<std::uint64_t, kMaxTensorDimensions> inner{};  // elements of one index
  std::uint64_t product = 1;
  for (std::size_t d = n; d-- > 0;) {
    inner[d] = product;
    product *= tensor.shape[d];
  }
  Box box;
  std::size_t outer = n;  // the outermost dimension of which the box has whole indices
  std::uint64_t index = 0;
  for (std::size_t d = 0; d < n; ++d) {
    const std::uint64_t here = at / inner[d] % tensor.shape[d];
    box.base += here * tensor.strides[d];
    if (outer == n && at % inner[d] == 0 && inner[d] <= left) {
      outer = d;
      index = here;
    }
  }
  for (std::size_t d = outer; d < n; ++d) {
    const std::uint64_t extent =
        d == outer ? std::min(tensor.shape[d] - index, left / inner[d]) : tensor.shape[d];
    box.dimensions[box.n_dimensions++] = {extent, tensor.strides[d], inner[d]};
    box.elements *= extent;
  }
  return box;
}

class Gatherer {
 public:
  Gatherer(const File& file, const StoredTensor& tensor)
      : file_(file),
        offset_(tensor.offset),
        n_bytes_(stored_type_bytes(tensor.type)),
        staging_(kStagingBytes) {}

  // Reads a box to `to`: runs along the dimension whose elements lie closest, one run for each
  // index of the others.
  Status read(Box box, MutableByteSpan to) {
    Dimension* run = nullptr;
    for (std::size_t d = 0; d < box.n_dimensions; ++d) {
      Dimension& dimension = box.dimensions[d];
      if (dimension.extent == 1 || dimension.stored == 0) continue;
      if (run == nullptr || dimension.stored < run->stored) run = &dimension;
    }
    Dimension along;
    if (run != nullptr) {
      along = *run;
      run->extent = 1;
    }
    std::array<std::uint64_t, kMaxTensorDimensions> index{};
    std::uint64_t stored = box.base;
    std::uint64_t out = 0;
    while (true) {
      QSF_RETURN_IF_ERROR(read_run(along, stored, out, to));
      std::size_t d = box.n_dimensions;
      while (d > 0) {
        const Dimension& dimension = box.dimensions[d - 1];
        stored += dimension.stored;
        out += dimension.out;
        if (++index[d - 1] < dimension.extent) break;
        stored -= dimension.stored * dimension.extent;
        out -= dimension.out * dimension.extent;
        index[d - 1] = 0;
        --d;
      }
      if (d == 0) return ok_status();
    }
  }

 private:
  Status read_run(const Dimension& run, std::uint64_t stored, std::uint64_t out,
                  MutableByteSpan to) {
    const std::uint64_t most =
        run.stored * n_bytes_ > kMaxGapBytes
            ? 1
            : (kStagingBytes / n_bytes_ - 1) / std::max<std::uint64_t>(run.stored, 1) + 1;
    for (std::uint64_t done = 0; done < run.extent;) {
      const std::uint64_t n = std::min(most, run.extent - done);
      const MutableByteSpan bytes =
          MutableByteSpan(staging_).first(((n - 1) * run.stored + 1) * n_bytes_);
      QSF_RETURN_IF_ERROR(
          file_.read_exact_at(offset_ + (stored + done * run.stored) * n_bytes_, bytes));
      for (std::uint64_t i = 0; i < n; ++i) {
        std::memcpy(to.data() + (out + (done + i) * run.out) * n_bytes_,
                    bytes.data() + i * run.stored * n_bytes_, n_bytes_);
      }
      done += n;
    }
    return ok_status();
  }

  const File& file_;
  std::uint64_t offset_;
  std::uint32_t n_bytes_;
  std::vector<std::byte> staging_;
};

}  // namespace

Status read_elements(const File& file, const StoredTensor& tensor, std::uint64_t first,
                     MutableByteSpan to) {
  const std::uint32_t n_bytes = stored_type_bytes(tensor.type);
  if (tensor.strides.empty()) return file.read_exact_at(tensor.offset + first * n_bytes, to);
  Gatherer gatherer(file, tensor);
  for (std::uint64_t left = to.size() / n_bytes; left != 0;) {
    const Box box = largest_box(tensor, first, left);
    const std::uint64_t box_bytes = box.elements * n_bytes;
    QSF_RETURN_IF_ERROR(gatherer.read(box, to.first(box_bytes)));
    to = to.subspan(box_bytes);
    first += box.elements;
    left -= box.elements;
  }
  return ok_status();
}

}  // namespace qsf
