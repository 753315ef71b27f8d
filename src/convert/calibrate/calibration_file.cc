// SPDX-License-Identifier: MIT

#include "convert/calibrate/calibration_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "base/ranges.h"
#include "format/expert_hits.h"
#include "io/atomic_file.h"
#include "io/file.h"

namespace qsf {
namespace {

constexpr std::string_view kMagic = "QSFC";
// A file has the first version that holds what it says, so that older readers read it.
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kProbesVersion = 2;
constexpr std::uint32_t kExpertsVersion = 3;
constexpr std::uint32_t kHitsVersion = 4;
constexpr std::uint32_t kPlacesVersion = 5;
constexpr std::size_t kArchitectureBytes = 64;
constexpr std::size_t kShapeBytes = 136;   // all in front of the layers
constexpr std::size_t kMixtureBytes = 12;  // in front of the list of layers with experts
constexpr std::size_t kHitsBytes = kExpertHitSizes * sizeof(float);  // behind that list
constexpr std::size_t kExpertBytes = 12;  // in front of an expert's means
constexpr std::size_t kProbesHeadBytes = 12;
constexpr std::size_t kProbeBytes = 28;
constexpr std::size_t kCrcBytes = 4;
// Of docs/format.md; they keep the sizes below from overflowing.
constexpr std::uint32_t kMaxLayers = 4096;
constexpr std::uint32_t kMaxHidden = 1U << 20;
constexpr std::uint32_t kMaxQueryCols = 1U << 22;
constexpr std::uint32_t kMaxFfn = 1U << 24;
constexpr std::uint32_t kMaxVocab = 1U << 24;
constexpr std::uint32_t kMaxContext = 1U << 26;
constexpr std::uint32_t kMaxExperts = 1U << 16;
constexpr std::uint32_t kMaxProbes = 1U << 16;
// A cosine is at most 1 but for the roundings of its sum.
constexpr double kMaxCosine = 1.0 + 1e-9;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;

std::uint32_t version_of(const Calibration& calibration) noexcept {
  if (!calibration.model.place_cols.empty()) return kPlacesVersion;
  if (!calibration.expert_hits.empty()) return kHitsVersion;
  if (calibration.model.n_experts != 0) return kExpertsVersion;
  return calibration.probes.empty() ? kVersion : kProbesVersion;
}

// The bytes of the mixture and of the columns of places, behind the shape.
std::uint64_t mixture_bytes(const CalibratedModel& model, std::uint32_t version) noexcept {
  if (version < kExpertsVersion) return 0;
  const std::uint64_t n_lists = version >= kPlacesVersion ? 1 + kInputsPerLayer : 1;
  return kMixtureBytes + n_lists * model.n_layers * sizeof(std::uint32_t) +
         (version >= kHitsVersion ? kHitsBytes : 0);
}

std::uint64_t layer_bytes(const CalibratedModel& model, std::uint32_t layer) noexcept {
  std::uint64_t n_cols = 0;
  for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
    n_cols += input_cols(model, {static_cast<ProductInput>(i), layer});
  }
  const std::uint64_t n_experts = model.has_experts(layer) ? model.n_experts : 0;
  const std::uint64_t expert_cols = std::uint64_t{model.hidden} + model.expert_ffn;
  return 2 * sizeof(double) + n_cols * sizeof(float) +
         n_experts * (kExpertBytes + expert_cols * sizeof(float));
}

std::uint64_t file_bytes(const CalibratedModel& model, std::uint32_t version,
                         std::uint64_t n_probes) noexcept {
  std::uint64_t n = kShapeBytes + std::uint64_t{model.hidden} * sizeof(float) + kCrcBytes;
  n += mixture_bytes(model, version);
  if (version != kVersion) n += kProbesHeadBytes + n_probes * kProbeBytes;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) n += layer_bytes(model, layer);
  return n;
}

void write_means(ByteWriter& to, std::span<const float> means) {
  to.write_bytes(std::as_bytes(means));
}

Status check_range(const char* field, std::uint32_t value, std::uint32_t most) {
  if (value >= 1 && value <= most) return ok_status();
  return corrupt("%s: %u, expected 1 to %u", field, value, most);
}

// Reads a file from its first byte to its last.
class CalibrationDecoder {
 public:
  explicit CalibrationDecoder(ByteSpan bytes) : bytes_(bytes), reader_(bytes) {}

  Status read_start(CalibrationReadOptions options);
  Status read_header();
  Status read_mixture();
  Status read_hits();
  Status read_places();
  Status check_size(std::uint64_t stated);
  Status read_layer(std::uint32_t layer);
  Status read_head();
  Status read_probes();
  Calibration take() { return std::move(calibration_); }
  std::uint32_t n_layers() const noexcept { return calibration_.model.n_layers; }

 private:
  Result<std::string> read_architecture();
  Result<ExpertCalibration> read_expert(const std::string& where);
  Result<Probe> read_probe(std::uint32_t index);
  Result<std::vector<float>> read_means(const std::string& where, std::uint32_t n_cols);

  ByteSpan bytes_;
  ByteReader reader_;
  std::uint32_t n_probes_ = 0;  // by the size of the file
  std::uint32_t version_ = kVersion;
  Calibration calibration_;
};

Status CalibrationDecoder::read_start(CalibrationReadOptions options) {
  if (bytes_.size() < kShapeBytes + kCrcBytes) {
    return corrupt("%zu bytes, too short for a calibration file", bytes_.size());
  }
  if (reader_.read_text(kMagic.size()) != kMagic) {
    return corrupt("not a calibration file: expected it to begin with \"QSFC\"");
  }
  version_ = reader_.read<std::uint32_t>();
  if (version_ < kVersion || version_ > kPlacesVersion) {
    return unsupported("calibration file of version %u; this program reads versions %u to %u",
                       version_, kVersion, kPlacesVersion);
  }
  const std::size_t end = bytes_.size() - kCrcBytes;
  const auto stored = load_le<std::uint32_t>(bytes_, end);
  const std::uint32_t crc = crc32(bytes_.first(end));
  if (!options.verify_crc || crc == stored) return ok_status();
  return corrupt("checksum %08x, expected %08x; the file is damaged; calibrate again", crc, stored);
}

Result<std::string> CalibrationDecoder::read_architecture() {
  const std::string_view field = reader_.read_text(kArchitectureBytes);
  const std::string_view name = field.substr(0, std::min(field.find('\0'), field.size()));
  const bool padded = field.find_first_not_of('\0', name.size()) == std::string_view::npos;
  const bool legible = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
  if (!name.empty() && padded && legible) return std::string(name);
  return corrupt(
      "architecture: invalid name; expected a-z, 0-9, '_', '.' and '-', padded with zeros");
}

Status CalibrationDecoder::read_header() {
  CalibratedModel& model = calibration_.model;
  QSF_ASSIGN_OR_RETURN(model.architecture, read_architecture());
  model.n_layers = reader_.read<std::uint32_t>();
  model.hidden = reader_.read<std::uint32_t>();
  model.q_dim = reader_.read<std::uint32_t>();
  model.ffn = reader_.read<std::uint32_t>();
  model.n_vocab = reader_.read<std::uint32_t>();
  const auto tied_head = reader_.read<std::uint32_t>();
  model.weights_crc = reader_.read<std::uint32_t>();
  calibration_.context = reader_.read<std::uint32_t>();
  calibration_.n_rows = reader_.read<std::uint64_t>();
  calibration_.n_skip_rows = reader_.read<std::uint64_t>();
  calibration_.loss = reader_.read<double>();
  const auto size = reader_.read<std::uint64_t>();
  QSF_RETURN_IF_ERROR(check_range("layers", model.n_layers, kMaxLayers));
  QSF_RETURN_IF_ERROR(check_range("hidden size", model.hidden, kMaxHidden));
  QSF_RETURN_IF_ERROR(check_range("columns of queries", model.q_dim, kMaxQueryCols));
  QSF_RETURN_IF_ERROR(check_range("FFN size", model.ffn, kMaxFfn));
  QSF_RETURN_IF_ERROR(check_range("vocabulary", model.n_vocab, kMaxVocab));
  QSF_RETURN_IF_ERROR(check_range("context", calibration_.context, kMaxContext));
  if (tied_head > 1) return corrupt("tied head: %u, expected 0 or 1", tied_head);
  model.tied_head = tied_head == 1;
  if (calibration_.n_rows == 0) return corrupt("rows: 0, expected at least 1");
  if (!is_loss(calibration_.loss))
    return corrupt("loss: %g, expected a finite f32", calibration_.loss);
  if (version_ >= kExpertsVersion) QSF_RETURN_IF_ERROR(read_mixture());
  return check_size(size);
}

Status CalibrationDecoder::read_mixture() {
  CalibratedModel& model = calibration_.model;
  if (bytes_.size() < kShapeBytes + mixture_bytes(model, version_)) {
    return corrupt("%zu bytes, too short for the list of %u layers", bytes_.size(), model.n_layers);
  }
  model.n_experts = reader_.read<std::uint32_t>();
  model.expert_ffn = reader_.read<std::uint32_t>();
  model.shared_ffn = reader_.read<std::uint32_t>();
  const bool dense = version_ >= kPlacesVersion && model.n_experts == 0;
  if (dense && (model.expert_ffn != 0 || model.shared_ffn != 0)) {
    return corrupt("FFN sizes of experts: %u and %u, but there are none", model.expert_ffn,
                   model.shared_ffn);
  }
  if (!dense) {
    QSF_RETURN_IF_ERROR(check_range("experts", model.n_experts, kMaxExperts));
    QSF_RETURN_IF_ERROR(check_range("FFN size of experts", model.expert_ffn, kMaxFfn));
  }
  if (model.shared_ffn > kMaxFfn) {
    return corrupt("FFN size of the shared expert: %u, expected at most %u", model.shared_ffn,
                   kMaxFfn);
  }
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    const auto has_experts = reader_.read<std::uint32_t>();
    if (has_experts > (dense ? 0 : 1)) {
      return corrupt("layer %u: whether it has experts: %u, expected 0%s", layer, has_experts,
                     dense ? "" : " or 1");
    }
    if (!dense) model.expert_layers.push_back(has_experts);
  }
  if (version_ >= kHitsVersion) QSF_RETURN_IF_ERROR(read_hits());
  return version_ >= kPlacesVersion ? read_places() : ok_status();
}

Status CalibrationDecoder::read_hits() {
  std::vector<float> hits;
  for (std::uint32_t i = 0; i < kExpertHitSizes; ++i) hits.push_back(reader_.read<float>());
  const Status valid = check_expert_hits(hits);
  if (!valid.ok()) return {StatusCode::kCorrupt, valid.message()};
  if (calibration_.model.n_experts != 0) {
    calibration_.expert_hits = std::move(hits);
    return ok_status();
  }
  const ByteSpan bytes = std::as_bytes(std::span(hits));
  if (ranges::count(bytes, std::byte{0}) == std::ssize(bytes)) return ok_status();
  return corrupt("hits of experts, but there are none");
}

Status CalibrationDecoder::read_places() {
  CalibratedModel& model = calibration_.model;
  for (std::size_t i = 0; i < model.n_layers * kInputsPerLayer; ++i) {
    model.place_cols.push_back(reader_.read<std::uint32_t>());
    if (model.place_cols.back() <= kMaxFfn) continue;
    return corrupt("layer %zu: %u columns of an input, expected at most %u", i / kInputsPerLayer,
                   model.place_cols.back(), kMaxFfn);
  }
  if (has_default_cols(model)) {
    return corrupt("columns of inputs are those of earlier versions, expected others in version %u",
                   kPlacesVersion);
  }
  return ok_status();
}

Status CalibrationDecoder::check_size(std::uint64_t stated) {
  const CalibratedModel& model = calibration_.model;
  const std::uint64_t without = file_bytes(model, version_, 0);
  if (version_ != kVersion && bytes_.size() > without) {
    const std::uint64_t n = (bytes_.size() - without) / kProbeBytes;
    n_probes_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(n, kMaxProbes));
  }
  const std::uint32_t least = version_ == kProbesVersion ? 1 : 0;
  const std::uint64_t expected = file_bytes(model, version_, std::max(n_probes_, least));
  if (stated == bytes_.size() && stated == expected) return ok_status();
  return corrupt("%zu bytes with a stated size of %llu, expected %llu for its shape", bytes_.size(),
                 static_cast<unsigned long long>(stated),
                 static_cast<unsigned long long>(expected));
}

Result<std::vector<float>> CalibrationDecoder::read_means(const std::string& where,
                                                          std::uint32_t n_cols) {
  const ByteSpan bytes = reader_.read_bytes(std::uint64_t{n_cols} * sizeof(float));
  std::vector<float> means(n_cols);
  if (!bytes.empty()) std::memcpy(means.data(), bytes.data(), bytes.size());
  for (const float mean : means) {
    if (std::isfinite(mean) && mean >= 0.0F) continue;
    return corrupt("%s: mean square %g, expected a finite number >= 0", where.c_str(),
                   static_cast<double>(mean));
  }
  return means;
}

Status CalibrationDecoder::read_layer(std::uint32_t layer) {
  const std::string where = "layer " + std::to_string(layer);
  LayerCalibration read;
  read.cosine = reader_.read<double>();
  read.skip_loss = reader_.read<double>();
  if (!(std::fabs(read.cosine) <= kMaxCosine)) {
    return corrupt("%s: cosine %g, expected -1 to 1", where.c_str(), read.cosine);
  }
  if (!is_loss(read.skip_loss)) {
    return corrupt("%s: loss when skipped: %g, expected a finite f32", where.c_str(),
                   read.skip_loss);
  }
  for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
    const InputPlace place = {static_cast<ProductInput>(i), layer};
    QSF_ASSIGN_OR_RETURN(read.mean_squares[i],
                         read_means(where, input_cols(calibration_.model, place)));
  }
  const bool mixture = calibration_.model.has_experts(layer);
  for (std::uint32_t e = 0; mixture && e < calibration_.model.n_experts; ++e) {
    QSF_ASSIGN_OR_RETURN(ExpertCalibration expert,
                         read_expert(where + ", expert " + std::to_string(e)));
    read.experts.push_back(std::move(expert));
  }
  calibration_.layers.push_back(std::move(read));
  return ok_status();
}

Result<ExpertCalibration> CalibrationDecoder::read_expert(const std::string& where) {
  ExpertCalibration expert;
  expert.n_rows = reader_.read<std::uint64_t>();
  expert.largest = reader_.read<float>();
  if (expert.n_rows > calibration_.n_rows) {
    return corrupt("%s: %llu rows, expected at most %llu", where.c_str(),
                   static_cast<unsigned long long>(expert.n_rows),
                   static_cast<unsigned long long>(calibration_.n_rows));
  }
  if (!(std::isfinite(expert.largest) && expert.largest >= 0.0F)) {
    return corrupt("%s: largest magnitude %g, expected a finite number >= 0", where.c_str(),
                   static_cast<double>(expert.largest));
  }
  QSF_ASSIGN_OR_RETURN(expert.gate_up_mean_squares, read_means(where, calibration_.model.hidden));
  QSF_ASSIGN_OR_RETURN(expert.down_mean_squares, read_means(where, calibration_.model.expert_ffn));
  return expert;
}

Status CalibrationDecoder::read_head() {
  QSF_ASSIGN_OR_RETURN(calibration_.head_mean_squares,
                       read_means("head", calibration_.model.hidden));
  return ok_status();
}

Result<Probe> CalibrationDecoder::read_probe(std::uint32_t index) {
  Probe probe;
  const auto kind = reader_.read<std::uint32_t>();
  probe.first_layer = reader_.read<std::uint32_t>();
  probe.n_layers = reader_.read<std::uint32_t>();
  const auto type = reader_.read<std::uint32_t>();
  probe.format.block = reader_.read<std::uint32_t>();
  probe.divergence = reader_.read<double>();
  if (!is_tensor_kind(kind))
    return corrupt("sensitivity entry %u: unknown tensor kind %u", index, kind);
  probe.kind = static_cast<TensorKind>(kind);
  const std::uint32_t n_layers = calibration_.model.n_layers;
  if (probe.n_layers == 0 || probe.n_layers > n_layers ||
      probe.first_layer > n_layers - probe.n_layers) {
    return corrupt("sensitivity entry %u: %u layers from %u, but the model has %u", index,
                   probe.n_layers, probe.first_layer, n_layers);
  }
  const bool is_type = type <= 0xFF && is_quant_type(static_cast<std::uint8_t>(type));
  if (is_type) probe.format.type = static_cast<QuantType>(type);
  if (!is_type || !is_valid(probe.format)) {
    return corrupt("sensitivity entry %u: no weight type %u in blocks of %u", index, type,
                   probe.format.block);
  }
  if (is_loss(probe.divergence) && probe.divergence >= 0.0) return probe;
  return corrupt("sensitivity entry %u: divergence %g, expected a finite number >= 0", index,
                 probe.divergence);
}

Status CalibrationDecoder::read_probes() {
  if (version_ == kVersion) return ok_status();
  calibration_.n_probe_rows = reader_.read<std::uint64_t>();
  const auto n = reader_.read<std::uint32_t>();
  if (n != n_probes_)
    return corrupt("sensitivity entries: %u, expected %u for the size of the file", n, n_probes_);
  if (n != 0 && calibration_.n_probe_rows == 0)
    return corrupt("rows of the sensitivity measurement: 0, expected at least 1");
  for (std::uint32_t i = 0; i < n; ++i) {
    QSF_ASSIGN_OR_RETURN(const Probe probe, read_probe(i));
    calibration_.probes.push_back(probe);
  }
  return ok_status();
}

void write_probes(ByteWriter& to, const Calibration& calibration) {
  to.write(calibration.n_probe_rows);
  to.write(static_cast<std::uint32_t>(calibration.probes.size()));
  for (const Probe& probe : calibration.probes) {
    to.write(static_cast<std::uint32_t>(probe.kind));
    to.write(probe.first_layer);
    to.write(probe.n_layers);
    to.write(static_cast<std::uint32_t>(probe.format.type));
    to.write(probe.format.block);
    to.write(probe.divergence);
  }
}

}  // namespace

Result<bool> is_calibration_file(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, ops));
  std::byte start[kMagic.size()];
  if (file.size_bytes() < sizeof start) return false;
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, start));
  return as_text(start) == kMagic;
}

std::vector<std::byte> encode_calibration(const Calibration& calibration) {
  const CalibratedModel& model = calibration.model;
  QSF_CHECK(model.architecture.size() <= kArchitectureBytes);
  QSF_CHECK(calibration.layers.size() == model.n_layers);
  ByteWriter to;
  to.write_text(kMagic);
  const std::uint32_t version = version_of(calibration);
  to.write(version);
  to.write_text(model.architecture);
  to.write_text(std::string(kArchitectureBytes - model.architecture.size(), '\0'));
  for (const std::uint32_t value :
       {model.n_layers, model.hidden, model.q_dim, model.ffn, model.n_vocab,
        std::uint32_t{model.tied_head ? 1U : 0U}, model.weights_crc, calibration.context}) {
    to.write(value);
  }
  to.write(calibration.n_rows);
  to.write(calibration.n_skip_rows);
  to.write(calibration.loss);
  to.write(file_bytes(model, version, calibration.probes.size()));
  QSF_CHECK(to.size() == kShapeBytes);
  if (version >= kExpertsVersion) {
    to.write(model.n_experts);
    to.write(model.expert_ffn);
    to.write(model.shared_ffn);
    std::vector<std::uint32_t> expert_layers = model.expert_layers;
    expert_layers.resize(model.n_layers);
    to.write_bytes(std::as_bytes(std::span(expert_layers)));
    std::vector<float> hits = calibration.expert_hits;
    QSF_CHECK(hits.empty() || hits.size() == kExpertHitSizes);
    if (version >= kHitsVersion) hits.resize(kExpertHitSizes);
    to.write_bytes(std::as_bytes(std::span(hits)));
    to.write_bytes(std::as_bytes(std::span(model.place_cols)));
  }
  for (const LayerCalibration& layer : calibration.layers) {
    to.write(layer.cosine);
    to.write(layer.skip_loss);
    for (const std::vector<float>& means : layer.mean_squares) write_means(to, means);
    for (const ExpertCalibration& expert : layer.experts) {
      to.write(expert.n_rows);
      to.write(expert.largest);
      write_means(to, expert.gate_up_mean_squares);
      write_means(to, expert.down_mean_squares);
    }
  }
  write_means(to, calibration.head_mean_squares);
  if (version != kVersion) write_probes(to, calibration);
  to.write(crc32(to.view()));
  QSF_CHECK(to.size() == file_bytes(model, version, calibration.probes.size()));
  return std::move(to.bytes());
}

Result<Calibration> decode_calibration(ByteSpan bytes, CalibrationReadOptions options) {
  CalibrationDecoder decoder(bytes);
  QSF_RETURN_IF_ERROR(decoder.read_start(options));
  QSF_RETURN_IF_ERROR(decoder.read_header());
  for (std::uint32_t layer = 0; layer < decoder.n_layers(); ++layer) {
    QSF_RETURN_IF_ERROR(decoder.read_layer(layer));
  }
  QSF_RETURN_IF_ERROR(decoder.read_head());
  QSF_RETURN_IF_ERROR(decoder.read_probes());
  return decoder.take();
}

Status write_calibration_file(const std::string& path, const Calibration& calibration,
                              FileOps& ops) {
  return write_file(path, encode_calibration(calibration), ops);
}

Result<Calibration> read_calibration_file(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, file.read_all(kMaxFileBytes));
  auto calibration = decode_calibration(bytes);
  if (!calibration) return std::move(calibration).error().with_context(path);
  return calibration;
}

}  // namespace qsf
