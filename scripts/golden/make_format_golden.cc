// SPDX-License-Identifier: MIT
//
// Writes the golden files of the .qsf format: make_format_golden DIRECTORY.
//
// Beside each NAME.qsf stands NAME.expected, one line a tensor: section, kind, expert, rows,
// columns and the CRC-32 of its decoded weights as little-endian f32. Both readers are held to it.
// Files of a released version are never made again.

#include <cinttypes>
#include <cstdio>
#include <string>

#include "base/crc32.h"
#include "format/qsf_reader.h"
#include "format/tensor_values.h"
#include "format/testing/small_models.h"
#include "io/atomic_file.h"

namespace qsf {
namespace {

Result<std::string> describe(const QsfReader& reader) {
  std::string text;
  for (const SectionDirectory& d : reader.directories()) {
    for (std::uint32_t i = 0; i < d.tensors.size(); ++i) {
      QSF_ASSIGN_OR_RETURN(const std::vector<float> values, read_tensor_values(reader, d, i));
      const TensorInfo& t = d.tensors[i];
      char line[160];
      std::snprintf(line, sizeof line, "%s %s %u %u %u %08x\n",
                    d.kind == SectionKind::kLayer ? ("layer." + std::to_string(d.layer)).c_str()
                                                  : section_label(d.kind, 0).c_str(),
                    std::string(tensor_kind_name(t.kind)).c_str(), t.expert, t.rows, t.cols,
                    crc32(std::as_bytes(std::span(values))));
      text += line;
    }
  }
  return text;
}

Status make_all(const std::string& directory) {
  for (const testing_support::SmallModel& model :
       {testing_support::minimal_model(), testing_support::types_model(),
        testing_support::compressed_model(), testing_support::longrope_model(),
        testing_support::super_model(), testing_support::base3_model(),
        testing_support::k_quant_model(), testing_support::codebook_model(),
        testing_support::mxfp4_model(), testing_support::trellis_model()}) {
    const std::string path = directory + "/" + model.name;
    QSF_RETURN_IF_ERROR(write_small_model(model, path + ".qsf"));
    QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path + ".qsf"));
    QSF_ASSIGN_OR_RETURN(const std::string text, describe(reader));
    QSF_RETURN_IF_ERROR(write_file(path + ".expected", as_bytes(text)));
  }
  return ok_status();
}

}  // namespace
}  // namespace qsf

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_format_golden DIRECTORY\n");
    return 2;
  }
  const qsf::Status status = qsf::make_all(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "make_format_golden: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
