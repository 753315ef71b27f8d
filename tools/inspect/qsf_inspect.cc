// SPDX-License-Identifier: MIT
//
// qsf inspect: prints the content of a .qsf file, a model or an adapter, and checks every byte of
// it; prints the content of a GGUF file and what a conversion would use of it.

#include <cinttypes>
#include <cstdio>
#include <string>

#include "format/adapter_reader.h"
#include "format/tensor_values.h"
#include "tools/common/engine_options.h"
#include "tools/common/model_cache.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"
#include "tools/inspect/qsf_inspect_adapter.h"
#include "tools/inspect/qsf_inspect_gguf.h"
#include "tools/inspect/qsf_inspect_plan.h"
#include "tools/inspect/qsf_inspect_report.h"
#include "tools/inspect/qsf_inspect_verify.h"

namespace qsf_tools {
namespace {

struct InspectOptions {
  std::string path;
  bool verify = false;
  bool json = false;
  bool tensors = false;
  std::string dump_tensor;
  bool plan = false;
  EngineOptions engine;
};

int fail(const qsf::Status& status) {
  print_error(program_name(), status.message());
  return kFailure;
}

// Prints text on stdout; a full disk or a closed pipe there is a failure.
int print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return kSuccess;
  print_error(program_name(), "standard output: cannot be written");
  return kFailure;
}

int verify(const qsf::QsfReader& reader, bool json) {
  // Tiles are read once for themselves and once with their section.
  const std::uint64_t total = 2 * reader.file().size_bytes();
  ProgressLine progress(program_name(), true);
  const qsf::Status status = verify_file(reader, [&](std::uint64_t read_bytes) {
    if (progress.due()) {
      progress.show("verified " + std::to_string(read_bytes * 100 / total) + " %");
    }
  });
  progress.clear();
  if (!status.ok()) return fail(status);
  return json ? kSuccess : print("\nverified: every checksum and every weight is good\n");
}

// `name` is SECTION/KIND or SECTION/KIND/EXPERT, with layer.N for layers.
int dump_tensor(const qsf::QsfReader& reader, const std::string& name) {
  for (const qsf::SectionDirectory& d : reader.directories()) {
    const std::string section = d.kind == qsf::SectionKind::kLayer
                                    ? "layer." + std::to_string(d.layer)
                                    : qsf::section_label(d.kind, d.layer);
    for (std::uint32_t i = 0; i < d.tensors.size(); ++i) {
      const qsf::TensorInfo& t = d.tensors[i];
      const std::string full = section + "/" + std::string(qsf::tensor_kind_name(t.kind));
      if (name != full + "/" + std::to_string(t.expert) && (name != full || t.expert != 0)) {
        continue;
      }
      const auto values = qsf::read_tensor_values(reader, d, i);
      if (!values) return fail(values.error());
      std::string text;
      for (std::size_t k = 0; k < values->size(); ++k) {
        char number[32];
        std::snprintf(number, sizeof number, "%.9g%c", static_cast<double>((*values)[k]),
                      (k + 1) % t.cols == 0 ? '\n' : ' ');
        text += number;
      }
      return print(text);
    }
  }
  print_error(program_name(),
              reader.file().path() + ": there is no tensor " + name + "; --tensors lists them");
  return kFailure;
}

int plan(const InspectOptions& options) {
  std::string problem;
  const auto text = plan_report(options.path, options.engine, options.json, problem);
  if (text) return print(*text);
  print_error(program_name(), problem);
  return kFailure;
}

int inspect_gguf(const InspectOptions& options) {
  if (options.verify || options.plan || !options.dump_tensor.empty()) {
    print_error(program_name(), options.path +
                                    ": a GGUF file, expected a .qsf file for --verify, --plan and "
                                    "--dump-tensor; convert it: qsf convert MODEL.gguf MODEL.qsf");
    return kUsage;
  }
  const auto text = options.json ? gguf_json_report(options.path)
                                 : gguf_text_report(options.path, options.tensors);
  return text ? print(*text) : fail(text.error());
}

int inspect_adapter(const InspectOptions& options) {
  if (options.plan || !options.dump_tensor.empty()) {
    print_error(program_name(),
                options.path + ": an adapter file, expected a model for --plan and --dump-tensor");
    return kUsage;
  }
  const auto reader = qsf::AdapterReader::open(options.path);
  if (!reader) return fail(reader.error());
  const int printed = print(options.json ? adapter_json_report(*reader, options.tensors)
                                         : adapter_text_report(*reader, options.tensors));
  if (printed != kSuccess || !options.verify) return printed;
  if (const qsf::Status status = verify_adapter(*reader); !status.ok()) return fail(status);
  return options.json ? kSuccess : print("\nverified: every checksum and every value is good\n");
}

int inspect(const InspectOptions& options) {
  if (const std::string problem = check_model_path(options.path); !problem.empty()) {
    print_error(program_name(), problem);
    return kFailure;
  }
  if (is_gguf_file(options.path)) return inspect_gguf(options);
  const auto is_adapter = qsf::is_adapter_file(options.path);
  if (is_adapter && *is_adapter) return inspect_adapter(options);
  if (options.plan) return plan(options);
  const auto reader = qsf::QsfReader::open(options.path);
  if (!reader) return fail(reader.error());
  if (!options.dump_tensor.empty()) return dump_tensor(*reader, options.dump_tensor);
  const ReportOptions report{.tensors = options.tensors};
  const int printed =
      print(options.json ? json_report(*reader, report) : text_report(*reader, report));
  if (printed != kSuccess || !options.verify) return printed;
  return verify(*reader, options.json);
}

constexpr const char* kPlanGroup = "Options of --plan, as qsf run has them";

}  // namespace

int inspect_main(int argc, char** argv) {
  InspectOptions options;
  OptionParser parser("Prints the content of a .qsf file, a model or an adapter, or a GGUF file.");
  parser.value("FILE", options.path, "The .qsf or .gguf file").type_name("").required();
  parser.flag("--verify", options.verify,
              "Read every tile and check all checksums and weights; exit code 1 on damage");
  parser.flag("--json", options.json, "Print JSON");
  parser.flag("--tensors", options.tensors, "List every tensor");
  parser
      .value("--dump-tensor", options.dump_tensor,
             "Print the weights of one tensor, one line for each row: layer.0/attn_q, final/head, "
             "layer.1/expert_up/3")
      .type_name("NAME");
  parser.flag("--plan", options.plan,
              "Print the memory that qsf run would take and the bytes that it would read, and "
              "measure the disk for the speed that follows");
  add_sequence_options(parser, options.engine, kPlanGroup);
  add_engine_options(parser, options.engine, kPlanGroup);
  if (const std::optional<int> code = parser.parse(argc, argv)) return *code;
  std::string problem = check_engine_options(options.engine);
  if (!options.plan && !options.engine.is_default()) {
    problem =
        "--ram-budget, --max-seq-len, --threads and the other options of an engine need --plan";
  }
  if (!problem.empty()) {
    print_error(program_name(), problem);
    return kUsage;
  }
  return inspect(options);
}

}  // namespace qsf_tools
