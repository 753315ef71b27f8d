// SPDX-License-Identifier: MIT

#include "tools/convert/convert_adapter.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "format/adapter_reader.h"
#include "format/adapter_spec.h"
#include "format/adapter_writer.h"
#include "format/model_fingerprint.h"
#include "format/qsf_reader.h"
#include "import/adapter_source.h"
#include "tools/common/file_path.h"
#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"
#include "tools/convert/convert_checks.h"

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

qsf::Status check_adapter_files(const ConvertOptions& options) {
  if (options.base.empty()) {
    return qsf::invalid_argument(
        "%s: an adapter; expected the converted model that it was trained for: qsf convert %s %s "
        "--base MODEL.qsf",
        options.input.c_str(), options.input.c_str(), options.output.c_str());
  }
  if (!options.model_options.empty()) {
    return qsf::invalid_argument("%s: an adapter; %s is for models, and adapters have no use of it",
                                 options.input.c_str(), options.model_options.front().c_str());
  }
  QSF_RETURN_IF_ERROR(check_output(options.input, options.output));
  if (!is_same_file(options.output, options.base)) return qsf::ok_status();
  return qsf::invalid_argument("%s: this is the --base; choose another output",
                               options.output.c_str());
}

// "rank 8", or "ranks 4 to 16".
std::string rank_text(const qsf::AdapterSpec& spec) {
  const auto [least, most] = std::minmax_element(
      spec.pairs.begin(), spec.pairs.end(),
      [](const qsf::AdapterPair& a, const qsf::AdapterPair& b) { return a.rank < b.rank; });
  if (least->rank == most->rank) return "rank " + std::to_string(most->rank);
  return "ranks " + std::to_string(least->rank) + " to " + std::to_string(most->rank);
}

void print_adapter_summary(const ConvertOptions& options, const qsf::AdapterSpec& spec) {
  std::error_code ignored;
  std::printf("%s: %s, adapter of %zu matrices, %s; for %s\n", options.output.c_str(),
              megabytes(fs::file_size(file_path(options.output), ignored)).c_str(),
              spec.pairs.size(), rank_text(spec).c_str(),
              options.any_base
                  ? ("every " + spec.architecture + " with matrices of these shapes").c_str()
                  : (options.base + " alone").c_str());
}

}  // namespace

bool is_adapter_input(const ConvertOptions& options) {
  const qsf::AdapterFormat format = qsf::find_adapter_format(options.input);
  if (format != qsf::AdapterFormat::kPeft) return format != qsf::AdapterFormat::kNone;
  std::error_code ignored;
  return !options.base.empty() || !fs::exists(file_path(options.input + "/config.json"), ignored);
}

qsf::Status convert_adapter(const ConvertOptions& options) {
  QSF_RETURN_IF_ERROR(check_adapter_files(options));
  auto base = qsf::QsfReader::open(options.base);
  if (!base) return std::move(base).error().with_context("--base");
  QSF_ASSIGN_OR_RETURN(qsf::AdapterSource adapter, qsf::open_adapter(options.input, base->spec()));
  for (const std::string& warning : adapter.warnings) {
    print_error(program_name(), "warning: " + warning);
  }
  adapter.spec.base_fingerprint = options.any_base ? 0 : qsf::model_fingerprint(*base);
  QSF_RETURN_IF_ERROR(qsf::check_adapter_fits(adapter.spec, *base).with_context(options.base));
  QSF_RETURN_IF_ERROR(qsf::write_adapter_file(options.output, adapter.spec, *adapter.values));
  if (!options.quiet) print_adapter_summary(options, adapter.spec);
  return qsf::ok_status();
}

qsf::Result<std::unique_ptr<qsf::MergedModel>> merge_adapters(
    const ConvertOptions& options, bool keeps, std::unique_ptr<qsf::ModelSource> model) {
  if (keeps && !options.preset && options.target_bytes == 0) {
    return qsf::invalid_argument(
        "%s: --merge-lora changes the weights, so they cannot be kept; give a --quant-type",
        options.input.c_str());
  }
  auto merged = std::make_unique<qsf::MergedModel>(std::move(model));
  for (const MergedAdapter& adapter : options.merge) {
    for (const std::string& output : {options.output, options.calibration_out, options.report}) {
      QSF_RETURN_IF_ERROR(check_output(adapter.path, output).with_context("--merge-lora"));
    }
    auto opened = qsf::open_adapter(adapter.path, merged->spec());
    if (!opened) return std::move(opened).error().with_context("--merge-lora");
    for (const std::string& warning : opened->warnings) {
      print_error(program_name(), "warning: " + warning);
    }
    QSF_RETURN_IF_ERROR(
        merged->add(std::move(*opened), adapter.scale).with_context("--merge-lora"));
  }
  return merged;
}

}  // namespace qsf_tools
