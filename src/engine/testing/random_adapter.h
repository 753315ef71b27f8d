// SPDX-License-Identifier: MIT
//
// Files of random adapters for a model, for tests.

#ifndef QSF_ENGINE_TESTING_RANDOM_ADAPTER_H_
#define QSF_ENGINE_TESTING_RANDOM_ADAPTER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/testing/temporary_path.h"
#include "format/adapter_spec.h"
#include "format/adapter_writer.h"
#include "format/qsf_reader.h"
#include "format/testing/adapter_values.h"

namespace qsf::testing_support {

// Pairs for every matrix of the model that adapters may change, of ranks 1 to 9.
inline AdapterSpec adapter_spec_for(const std::string& model, const std::string& name) {
  const QsfReader reader = QsfReader::open(model).value();
  AdapterSpec spec;
  spec.name = name;
  spec.architecture = reader.spec().architecture;
  for (const SectionDirectory& section : reader.directories()) {
    for (const TensorInfo& tensor : section.tensors) {
      const bool tied = tensor.kind == TensorKind::kTokenEmbedding && reader.spec().tied_head;
      if (!is_adaptable(tensor.kind) && !tied) continue;
      const TensorKind kind = tied ? TensorKind::kHead : tensor.kind;
      spec.pairs.push_back({.kind = kind,
                            .layer = kind == TensorKind::kHead ? 0 : section.layer,
                            .expert = tensor.expert,
                            .rank = 1 + static_cast<std::uint32_t>(spec.pairs.size() % 9),
                            .in = tensor.cols,
                            .out = tensor.rows,
                            // As much as a tenth of the product, whatever the shape.
                            .scale = 30.0F / std::sqrt(static_cast<float>(tensor.cols))});
    }
  }
  std::sort(spec.pairs.begin(), spec.pairs.end(), comes_before);
  return spec;
}

// Writes an adapter, which removes itself at the end of the process, and returns its path.
inline std::string write_random_adapter(const std::string& model, const std::string& name,
                                        std::uint64_t seed) {
  std::string path = temporary_path(name + ".adapter.qsf");
  const AdapterSpec spec = adapter_spec_for(model, name);
  const Status written = write_adapter_file(path, spec, random_adapter_values(spec, seed));
  EXPECT_TRUE(written.ok()) << written.message();
  return path;
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_RANDOM_ADAPTER_H_
