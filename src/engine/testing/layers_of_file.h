// SPDX-License-Identifier: MIT
//
// Copies of model files for tests: with some of their layers alone, or with an importance of each.

#ifndef QSF_ENGINE_TESTING_LAYERS_OF_FILE_H_
#define QSF_ENGINE_TESTING_LAYERS_OF_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/qsf_reader.h"
#include "format/qsf_writer.h"

namespace qsf::testing_support {

// Writes the layers of a file that are named, in this order, as a model of `spec`; layer i of the
// copy has importance[i], or none. The tiles are those of the file, which must be stored plain.
// Requires  tile_bytes of the file's writer
inline Status copy_layers(const std::string& from, const std::string& to, const ModelSpec& spec,
                          std::span<const std::uint32_t> layers, std::span<const float> importance,
                          std::uint64_t tile_bytes) {
  QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(from));
  QSF_ASSIGN_OR_RETURN(QsfWriter writer, QsfWriter::create(to, spec, {.tile_bytes = tile_bytes}));
  const auto copy = [&](const SectionDirectory& section, std::uint32_t layer,
                        float of_layer) -> Status {
    QSF_RETURN_IF_ERROR(writer.begin_section(section.kind, layer, section.tensors));
    if (writer.tiles().size() != section.tiles.size()) {
      return invalid_argument("%zu tiles, expected %zu", writer.tiles().size(),
                              section.tiles.size());
    }
    for (std::uint32_t tile = 0; tile < section.tiles.size(); ++tile) {
      std::vector<std::byte> bytes(section.tiles[tile].raw_bytes);
      QSF_RETURN_IF_ERROR(reader.read_tile(section, tile, {}, bytes));
      QSF_RETURN_IF_ERROR(writer.write_tile(bytes));
    }
    return writer.end_section(of_layer);
  };
  QSF_RETURN_IF_ERROR(copy(reader.embedding(), 0, 0.0F));
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    QSF_RETURN_IF_ERROR(
        copy(reader.layer(layers[i]), i, importance.empty() ? 0.0F : importance[i]));
  }
  QSF_RETURN_IF_ERROR(copy(reader.final_section(), 0, 0.0F));
  return writer.finish();
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_LAYERS_OF_FILE_H_
