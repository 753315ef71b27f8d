// SPDX-License-Identifier: MIT

#include "format/embedding_spec.h"

#include <string>

#include "format/spec_keys.h"
#include "format/spec_range.h"

namespace qsf {
namespace {

constexpr Pooling kPoolings[] = {Pooling::kMean, Pooling::kLast, Pooling::kFirst};

}  // namespace

Status check_embedding(const ModelSpec& s) {
  if (s.embedding_dense != 0) {
    QSF_RETURN_IF_ERROR(
        check_range({"columns between dense layers", s.embedding_dense, 2, 1U << 20}));
  }
  if (s.embeds_only && !s.tied_head) {
    return invalid_argument(
        "a model that embeds texts alone: has a head of its own, expected none");
  }
  if (!s.bidirectional) return ok_status();
  if (s.embeds_only && !s.chunked_windows && !s.has_state() && !s.has_latent() &&
      s.positions != PositionEncoding::kAlibi) {
    return ok_status();
  }
  return invalid_argument(
      "bidirectional attention: expected a model that embeds texts alone, without chunks, states, "
      "latent attention and ALiBi");
}

void encode_embedding(const ModelSpec& s, Metadata& m) {
  if (s.pooling.has_value()) m.set_text(keys::kEmbeddingPooling, pooling_name(*s.pooling), true);
  if (s.embedding_dense != 0) m.set_u32(keys::kEmbeddingDense, s.embedding_dense, true);
  if (s.bidirectional) m.set_bool(keys::kAttentionBidirectional, true, true);
  if (s.embeds_only) m.set_bool(keys::kEmbeddingOnly, true, true);
}

Status decode_embedding(const Metadata& m, ModelSpec& s) {
  QSF_ASSIGN_OR_RETURN(s.embeds_only, m.get_bool(keys::kEmbeddingOnly, false));
  QSF_ASSIGN_OR_RETURN(s.embedding_dense, m.get_u32(keys::kEmbeddingDense, 0));
  QSF_ASSIGN_OR_RETURN(s.bidirectional, m.get_bool(keys::kAttentionBidirectional, false));
  QSF_ASSIGN_OR_RETURN(const std::string name, m.get_text(keys::kEmbeddingPooling, ""));
  if (!m.contains(keys::kEmbeddingPooling)) return ok_status();
  for (const Pooling pooling : kPoolings) {
    if (pooling_name(pooling) == name) s.pooling = pooling;
  }
  if (s.pooling.has_value()) return ok_status();
  return unsupported("%s: \"%.64s\" is not known to this version", keys::kEmbeddingPooling,
                     name.c_str());
}

}  // namespace qsf
