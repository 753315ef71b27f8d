// SPDX-License-Identifier: MIT
//
// The tables of the kernels written over vectors.h: one entry a tier of this architecture, best
// first.

#include "kernels/lanes/lane_kernels.h"

#include <array>
#include <span>

namespace qsf::kernels {
namespace {

constexpr const LaneKernels* kTiers[] = {
#if defined(__x86_64__)
    &kLanesAvx512, &kLanesAvx2,
#elif defined(__aarch64__)
    &kLanesNeon,
#endif
    &kLanesScalar};

template <auto kMember>
auto table_of() noexcept {
  using Kernels = std::remove_cvref_t<decltype(kLanesScalar.*kMember)>;
  static const auto table = [] {
    std::array<Kernels, std::size(kTiers)> kernels{};
    for (std::size_t tier = 0; tier < std::size(kTiers); ++tier) {
      kernels[tier] = kTiers[tier]->*kMember;
    }
    return kernels;
  }();
  return std::span<const Kernels>(table);
}

}  // namespace

std::span<const ActivationKernels> activation_kernels() noexcept {
  return table_of<&LaneKernels::activation>();
}
std::span<const ConvertKernels> convert_kernels() noexcept {
  return table_of<&LaneKernels::convert>();
}
std::span<const ElementwiseKernels> elementwise_kernels() noexcept {
  return table_of<&LaneKernels::elementwise>();
}
std::span<const KvRowKernels> kv_row_kernels() noexcept {
  return table_of<&LaneKernels::kv_rows>();
}
std::span<const LowRankKernels> low_rank_kernels() noexcept {
  return table_of<&LaneKernels::low_rank>();
}
std::span<const NormKernels> norm_kernels() noexcept {
  return table_of<&LaneKernels::norm>();
}
std::span<const QuantiseKernels> quantise_kernels() noexcept {
  return table_of<&LaneKernels::quantise>();
}
std::span<const RopeKernels> rope_kernels() noexcept {
  return table_of<&LaneKernels::rope>();
}
std::span<const SampleKernels> sample_kernels() noexcept {
  return table_of<&LaneKernels::sample>();
}
std::span<const ScanKernels> scan_kernels() noexcept {
  return table_of<&LaneKernels::scan>();
}
std::span<const SoftmaxKernels> softmax_kernels() noexcept {
  return table_of<&LaneKernels::softmax>();
}

}  // namespace qsf::kernels
