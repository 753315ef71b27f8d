// SPDX-License-Identifier: MIT
//
// One set of kernels per tier, chosen from the tables when first asked for.

#include "kernels/kernel_set.h"

#include <array>
#include <span>

#include "base/check.h"
#include "kernels/isa.h"

namespace qsf::kernels {
namespace {

// Returns the first entry that `best` covers; tables end in scalar, so there is one.
template <typename Kernels>
const Kernels& first_covered(std::span<const Kernels> table, Isa best) noexcept {
  for (const Kernels& kernels : table) {
    if (isa_covers(best, kernels.isa)) return kernels;
  }
  QSF_CHECK(!"a kernel table without a scalar entry");
  return table.front();
}

KernelSet make_set(Isa best) noexcept {
  return {.best = best,
          .norm = first_covered(norm_kernels(), best),
          .rope = first_covered(rope_kernels(), best),
          .activation = first_covered(activation_kernels(), best),
          .elementwise = first_covered(elementwise_kernels(), best),
          .softmax = first_covered(softmax_kernels(), best),
          .attend_prompt = first_covered(attend_prompt_kernels(), best),
          .attend_decode = first_covered(attend_decode_kernels(), best),
          .attend_query_tile_prompt = first_covered(attend_query_tile_prompt_kernels(), best),
          .attend_query_tile_decode = first_covered(attend_query_tile_decode_kernels(), best),
          .convert = first_covered(convert_kernels(), best),
          .sample = first_covered(sample_kernels(), best),
          .scan = first_covered(scan_kernels(), best),
          .quantise = first_covered(quantise_kernels(), best),
          .kv_rows = first_covered(kv_row_kernels(), best),
          .low_rank = first_covered(low_rank_kernels(), best)};
}

using Sets = std::array<KernelSet, std::size(kAllIsas)>;

Sets make_sets() noexcept {
  Sets sets{};
  for (const Isa isa : kAllIsas) sets[static_cast<std::size_t>(isa)] = make_set(isa);
  return sets;
}

void append_line(std::string* text, std::string_view what, std::string_view name) {
  text->append(what).append(": ").append(name).append("\n");
}

std::string format_text(BlockFormat format) {
  std::string text(quant_type_name(format.type));
  if (fixed_block(format.type) == 0) text.append("/").append(std::to_string(format.block));
  return text;
}

}  // namespace

const KernelSet& kernel_set(Isa best) noexcept {
  static const Sets sets = make_sets();
  return sets[static_cast<std::size_t>(best)];
}

const KernelSet& host_kernel_set() noexcept {
  static const KernelSet& set = []() -> const KernelSet& {
    const auto isa = choose_host_isa();
    return kernel_set(isa.has_value() ? *isa : Isa::kScalar);
  }();
  return set;
}

std::string kernel_set_names(const KernelSet& set) {
  std::string text;
  for (const QuantType type : kAllQuantTypes) {
    for (const std::uint32_t block : {32U, 64U}) {
      if (fixed_block(type) != 0 && block == 64) continue;
      const BlockFormat format = block_format(type, block);
      for (const ActivationType input :
           {ActivationType::kInt8, ActivationType::kBf16, ActivationType::kF32}) {
        const MatMulKernel* kernel = find_matmul(format, input, set.best);
        if (kernel == nullptr) continue;
        const std::string form(activation_type_name(input));
        append_line(&text, "matmul " + format_text(format) + " " + form, kernel->name);
      }
    }
  }
  append_line(&text, "attend prompt", set.attend_prompt.name);
  append_line(&text, "attend decode", set.attend_decode.name);
  append_line(&text, "attend query tile prompt", set.attend_query_tile_prompt.name);
  append_line(&text, "attend query tile decode", set.attend_query_tile_decode.name);
  for (const char* name : {set.norm.name, set.rope.name, set.activation.name, set.elementwise.name,
                           set.softmax.name, set.convert.name, set.sample.name, set.scan.name,
                           set.quantise.name, set.kv_rows.name, set.low_rank.name}) {
    const std::string_view whole = name;
    append_line(&text, whole.substr(0, whole.rfind('_')), whole);
  }
  return text;
}

}  // namespace qsf::kernels
