// SPDX-License-Identifier: MIT
//
// The two parts of a file that stand outside its tensor sections: header with metadata, and layer
// index. qsf_reader.cc puts them together.

#ifndef QSF_FORMAT_QSF_OPEN_H_
#define QSF_FORMAT_QSF_OPEN_H_

#include <vector>

#include "base/result.h"
#include "format/directory_codec.h"
#include "format/model_spec.h"
#include "format/qsf_reader.h"
#include "io/file.h"

namespace qsf {

// A file opened as far as the places of its sections.
struct OpenedFile {
  ModelSpec spec;
  Metadata metadata;
  std::vector<SectionInfo> sections;
  std::vector<SectionPlace> places;  // embedding, layers, final
};

// Reads header, metadata and layer index, and checks that the sections fill the file without gap or
// overlap.
// Fails  kCorrupt, kUnsupported, kIo
Result<OpenedFile> read_places(const File& file, bool verify_crc);

}  // namespace qsf

#endif  // QSF_FORMAT_QSF_OPEN_H_
