// SPDX-License-Identifier: MIT
//
// Calibration files: a Calibration, saved for further conversions of the same model.
//
// Based on: docs/calibration-files.md, which defines the bytes. Every field is checked before use,
// and allocations are bounded by the actual size of the file.

#ifndef QSF_CONVERT_CALIBRATE_CALIBRATION_FILE_H_
#define QSF_CONVERT_CALIBRATE_CALIBRATION_FILE_H_

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/calibrate/calibration.h"
#include "io/file_ops.h"

namespace qsf {

// Returns whether a file begins as calibration files do. Fails  kNotFound, kIo
Result<bool> is_calibration_file(const std::string& path, FileOps& ops = system_file_ops());

// Returns the bytes of a file. Requires  a calibration as calibrate_model() returns it
std::vector<std::byte> encode_calibration(const Calibration& calibration);

struct CalibrationReadOptions {
  bool verify_crc = true;  // false only in fuzzers, which would not get past a checksum
};
// Reads the bytes of a file. Fails  kCorrupt, kUnsupported, naming the field
Result<Calibration> decode_calibration(ByteSpan bytes, CalibrationReadOptions options = {});

// Writes a file atomically. Fails  kIo
Status write_calibration_file(const std::string& path, const Calibration& calibration,
                              FileOps& ops = system_file_ops());
// Fails  as decode_calibration, and kNotFound, kIo; messages begin with the path
Result<Calibration> read_calibration_file(const std::string& path,
                                          FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_CALIBRATION_FILE_H_
