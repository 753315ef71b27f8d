// SPDX-License-Identifier: MIT
//
// Weight types by the names of tensors: --tensor-type PATTERN=TYPE.

#ifndef QSF_CONVERT_CHOOSE_TENSOR_TYPE_RULES_H_
#define QSF_CONVERT_CHOOSE_TENSOR_TYPE_RULES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "convert/encode/transcode_types.h"
#include "import/model_source.h"

namespace qsf {

struct TensorTypeRule {
  std::string pattern;  // a regular expression of Perl
  QuantType type = QuantType::kQ8;
};

// Parses PATTERN=TYPE; the last = counts. Fails  kInvalidArgument, with what is expected
Result<TensorTypeRule> parse_tensor_type_rule(std::string_view text);

// Returns the formats of the matrices that rules name: those in whose name a rule's pattern is
// found, in any case of letters. Of several rules the first one counts. Names are those of GGUF
// files, whatever the source is: "blk.3.ffn_down.weight", "token_embd.weight", "output.weight";
// all experts of a layer have one.
// Matrices that --quant-type leaves as floats have no type to choose: routers, position embeddings.
// Fails  kInvalidArgument on a pattern that is no regular expression or is found in no name, on a
//        type that embedding and head cannot have, and on blocks that a type does not have
Result<TensorFormats> formats_by_rules(const ModelSource& source,
                                       std::span<const TensorTypeRule> rules, std::uint32_t block);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_TENSOR_TYPE_RULES_H_
