// SPDX-License-Identifier: MIT

#include "convert/calibrate/saved_hidden_rows.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32.h"
#include "base/ranges.h"
#include "io/atomic_file.h"
#include "io/file.h"

namespace qsf {
namespace {

constexpr const char* kPlaceNames[] = {"rows-a", "rows-b"};
constexpr const char* kStateName = "rows";
constexpr std::string_view kMagic = "QSFR";

// The state file: magic; for each place a layer and a CRC of every window; a CRC of all these.
std::size_t state_bytes(std::size_t n_windows) {
  return kMagic.size() + (std::size(kPlaceNames) * (1 + n_windows) + 1) * sizeof(std::uint32_t);
}

}  // namespace

std::uint64_t SavedHiddenRows::memory_bytes(std::uint64_t window_floats) noexcept {
  return align_up(window_floats * sizeof(float), kDirectAlign);
}

std::vector<std::string> SavedHiddenRows::file_names() {
  std::vector<std::string> names(std::begin(kPlaceNames), std::end(kPlaceNames));
  names.emplace_back(kStateName);
  return names;
}

Result<std::unique_ptr<SavedHiddenRows>> SavedHiddenRows::create(const std::string& path,
                                                                 std::size_t n_windows,
                                                                 std::size_t window_floats,
                                                                 FileOps& ops) {
  std::vector<Place> places(1);
  QSF_ASSIGN_OR_RETURN(
      places[0].file,
      ScratchFile::create(path, n_windows * memory_bytes(window_floats), std::nullopt, ops));
  return std::unique_ptr<SavedHiddenRows>(
      new SavedHiddenRows(std::move(places), n_windows, window_floats));
}

Result<std::unique_ptr<SavedHiddenRows>> SavedHiddenRows::open_in(const std::string& folder,
                                                                  std::size_t n_windows,
                                                                  std::size_t window_floats,
                                                                  FileOps& ops) {
  std::vector<Place> places(std::size(kPlaceNames));
  for (std::size_t i = 0; i < places.size(); ++i) {
    QSF_ASSIGN_OR_RETURN(places[i].file,
                         ScratchFile::open_named(folder + "/" + kPlaceNames[i],
                                                 n_windows * memory_bytes(window_floats), ops));
  }
  std::unique_ptr<SavedHiddenRows> rows(
      new SavedHiddenRows(std::move(places), n_windows, window_floats));
  rows->state_path_ = folder + "/" + kStateName;
  rows->ops_ = &ops;
  QSF_RETURN_IF_ERROR(rows->read_state());
  return rows;
}

SavedHiddenRows::SavedHiddenRows(std::vector<Place> places, std::size_t n_windows,
                                 std::size_t window_floats)
    : places_(std::move(places)),
      window_floats_(window_floats),
      stride_(memory_bytes(window_floats)),
      memory_(new (std::align_val_t{kDirectAlign}) std::byte[stride_]) {
  for (Place& place : places_) {
    place.queue = place.file->device().make_blocking_queue();
    place.crcs.resize(n_windows);
  }
  // The bytes after the last row of a short window reach the disk as well.
  ranges::fill(bytes(), std::byte{0});
}

Status SavedHiddenRows::read_state() {
  const auto file = File::open(state_path_, *ops_);
  if (!file && file.error().code() == StatusCode::kNotFound) return ok_status();
  if (!file) return Status(file.error());
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> state,
                       file->read_all(state_bytes(places_.front().crcs.size())));
  ByteReader from(state);
  const bool is_state = from.read_text(kMagic.size()) == kMagic;
  for (Place& place : places_) {
    place.layer = from.read<std::uint32_t>();
    for (std::uint32_t& crc : place.crcs) crc = from.read<std::uint32_t>();
  }
  const std::size_t at = from.position();
  if (is_state && from.read<std::uint32_t>() == crc32(ByteSpan(state).first(at)) && from.ok()) {
    return ok_status();
  }
  return corrupt("%s: damaged; remove this file and run again", state_path_.c_str());
}

Status SavedHiddenRows::write_state() const {
  if (state_path_.empty()) return ok_status();
  ByteWriter to;
  to.write_text(kMagic);
  for (const Place& place : places_) {
    to.write(place.layer);
    for (const std::uint32_t crc : place.crcs) to.write(crc);
  }
  to.write(crc32(to.view()));
  return write_file(state_path_, to.view(), *ops_);
}

Result<std::uint32_t> SavedHiddenRows::start(std::uint32_t layer) {
  // A layer after the requested one is of no use.
  const auto worth = [layer](const Place& place) { return place.layer <= layer ? place.layer : 0; };
  const auto best = ranges::max_element(places_, {}, worth);
  const std::uint32_t begin = worth(*best);
  from_ = static_cast<std::size_t>(best - places_.begin());
  to_ = begin > 0 ? places_.size() - 1 - from_
                  : static_cast<std::size_t>(ranges::min_element(places_, {}, &Place::layer) -
                                             places_.begin());
  // Until all windows are written they are rows of two places.
  if (places_[to_].layer != 0) {
    places_[to_].layer = 0;
    QSF_RETURN_IF_ERROR(write_state());
  }
  return begin;
}

Status SavedHiddenRows::finish(std::uint32_t layer) {
  if (!state_path_.empty()) QSF_RETURN_IF_ERROR(places_[to_].file->sync());
  places_[to_].layer = layer;
  return write_state();
}

std::span<float> SavedHiddenRows::window() noexcept {
  return {reinterpret_cast<float*>(memory_.get()), window_floats_};
}

Status SavedHiddenRows::read(std::size_t index) {
  const Place& place = places_[from_];
  place.queue->start({.offset = index * stride_, .to = bytes(), .tag = 0});
  QSF_RETURN_IF_ERROR(place.queue->wait().status);
  if (state_path_.empty() || crc32(bytes()) == place.crcs[index]) return ok_status();
  return corrupt("%s: window %zu has a wrong checksum; remove %s and run again",
                 place.file->path().c_str(), index, state_path_.c_str());
}

Status SavedHiddenRows::write(std::size_t index) {
  places_[to_].crcs[index] = crc32(bytes());
  return places_[to_].file->write(index * stride_, bytes());
}

}  // namespace qsf
