// SPDX-License-Identifier: MIT
//
// Pickles and zip archives written opcode by opcode and field by field, so that each can be wrong.

#ifndef QSF_IMPORT_TESTING_PYTORCH_FILE_H_
#define QSF_IMPORT_TESTING_PYTORCH_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace qsf::testing_support {

template <typename T>
std::string little_endian(T value) {
  ByteWriter out;
  out.write(value);
  return std::string(as_text(out.view()));
}

inline std::string pickle_text(const std::string& text) {
  return "X" + little_endian(static_cast<std::uint32_t>(text.size())) + text;
}
inline std::string pickle_int(std::int32_t value) {
  return "J" + little_endian(value);
}
inline std::string pickle_global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string pickle_tuple(const std::vector<std::int32_t>& values) {
  std::string out = "(";
  for (const std::int32_t value : values) out += pickle_int(value);
  return out + "t";
}
// A whole pickle of protocol 2.
inline std::string pickle(const std::string& steps) {
  return "\x80\x02" + steps + ".";
}

struct TestStorage {
  std::string type = "FloatStorage";
  std::string key = "0";
  std::int32_t elements = 4;
  bool legacy = false;
};

inline std::string pickle_storage(const TestStorage& storage) {
  return "(" + pickle_text("storage") + pickle_global("torch", storage.type) +
         pickle_text(storage.key) + pickle_text("cpu") + pickle_int(storage.elements) +
         (storage.legacy ? "N" : "") + "tQ";
}

struct TestView {
  std::int32_t offset = 0;
  std::vector<std::int32_t> shape = {4};
  std::vector<std::int32_t> strides = {1};
};

inline const std::string kNoHooks = pickle_global("collections", "OrderedDict") + ")R";

inline std::string pickle_tensor(const TestStorage& storage, const TestView& view) {
  return pickle_global("torch._utils", "_rebuild_tensor_v2") + "(" + pickle_storage(storage) +
         pickle_int(view.offset) + pickle_tuple(view.shape) + pickle_tuple(view.strides) + "\x89" +
         kNoHooks + "tR";
}

// A state dict with one tensor called "w".
inline std::string pickle_of_one(const TestStorage& storage, const TestView& view) {
  return pickle("}" + pickle_text("w") + pickle_tensor(storage, view) + "s");
}

// An entry of an archive; what is not set follows from the rest.
struct TestZipEntry {
  std::string name;
  std::string data;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::string local_name = name;
  std::uint64_t stored_bytes = data.size();
  std::uint64_t bytes = data.size();
  std::int64_t header_shift = 0;  // how far the directory is wrong about the place
};

struct TestZip {
  std::vector<TestZipEntry> entries;
  bool zip64 = false;
  std::int64_t count_shift = 0;
  std::int64_t directory_shift = 0;
};

inline std::string zip_local(const TestZipEntry& entry) {
  ByteWriter out;
  out.write_text("PK\x03\x04");
  out.write(std::uint16_t{0});
  out.write(entry.flags);
  out.write(entry.method);
  for (int i = 0; i < 4; ++i) out.write(std::uint32_t{0});
  out.write(static_cast<std::uint16_t>(entry.local_name.size()));
  out.write(std::uint16_t{0});
  out.write_text(entry.local_name);
  out.write_text(entry.data);
  return std::string(as_text(out.view()));
}

inline std::string zip_directory_entry(const TestZipEntry& entry, std::uint64_t header,
                                       bool zip64) {
  ByteWriter out;
  out.write_text("PK\x01\x02");
  out.write(std::uint32_t{0});
  out.write(entry.flags);
  out.write(entry.method);
  out.write(std::uint64_t{0});
  out.write(zip64 ? UINT32_MAX : static_cast<std::uint32_t>(entry.stored_bytes));
  out.write(zip64 ? UINT32_MAX : static_cast<std::uint32_t>(entry.bytes));
  out.write(static_cast<std::uint16_t>(entry.name.size()));
  out.write(static_cast<std::uint16_t>(zip64 ? 28 : 0));
  out.write(std::uint16_t{0});
  out.write(std::uint64_t{0});
  out.write(zip64 ? UINT32_MAX : static_cast<std::uint32_t>(header));
  out.write_text(entry.name);
  if (zip64) {
    out.write(std::uint16_t{1});
    out.write(std::uint16_t{24});
    out.write(entry.bytes);
    out.write(entry.stored_bytes);
    out.write(header);
  }
  return std::string(as_text(out.view()));
}

// The end of an archive whose directory stands at `offset`.
inline std::string zip_end(const TestZip& zip, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t n = zip.entries.size() + static_cast<std::uint64_t>(zip.count_shift);
  const std::uint64_t stated = offset + static_cast<std::uint64_t>(zip.directory_shift);
  ByteWriter out;
  if (zip.zip64) {
    out.write_text("PK\x06\x06");
    out.write(std::uint64_t{44});
    out.write(std::uint32_t{0});
    out.write(std::uint64_t{0});
    for (const std::uint64_t value : {n, n, bytes, stated}) out.write(value);
    out.write_text("PK\x06\x07");
    out.write(std::uint32_t{0});
    out.write(offset + bytes);
    out.write(std::uint32_t{1});
  }
  out.write_text("PK\x05\x06");
  out.write(std::uint32_t{0});
  for (int i = 0; i < 2; ++i) out.write(static_cast<std::uint16_t>(n));
  out.write(static_cast<std::uint32_t>(bytes));
  out.write(static_cast<std::uint32_t>(stated));
  out.write(std::uint16_t{0});
  return std::string(as_text(out.view()));
}

inline std::string zip_file(const TestZip& zip) {
  std::string out;
  std::string directory;
  for (const TestZipEntry& entry : zip.entries) {
    directory += zip_directory_entry(
        entry, out.size() + static_cast<std::uint64_t>(entry.header_shift), zip.zip64);
    out += zip_local(entry);
  }
  const std::uint64_t offset = out.size();
  return out + directory + zip_end(zip, offset, directory.size());
}

// An archive as torch lays it out, with storage 0.
inline TestZip torch_archive(const std::string& pickle, const std::string& storage) {
  return {{{.name = "a/data.pkl", .data = pickle},
           {.name = "a/byteorder", .data = "little"},
           {.name = "a/data/0", .data = storage}}};
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_PYTORCH_FILE_H_
