// SPDX-License-Identifier: MIT
//
// qsf-inspect: says what a .qsf file holds, and checks every byte of it; says what a GGUF file
// holds and what a conversion would keep of it.

#include <cinttypes>
#include <cstdio>
#include <string>

#include "format/tensor_values.h"
#include "tools/common/command_line.h"
#include "tools/common/tool_support.h"
#include "tools/inspect/qsf_inspect_gguf.h"
#include "tools/inspect/qsf_inspect_plan.h"
#include "tools/inspect/qsf_inspect_report.h"
#include "tools/inspect/qsf_inspect_verify.h"

namespace qsf_tools {
namespace {

constexpr const char* kTool = "qsf-inspect";

struct InspectOptions {
  std::string path;
  bool verify = false;
  bool json = false;
  bool tensors = false;
  std::string dump_tensor;
  bool plan = false;
  PlanOptions plan_options;
};

int fail(const qsf::Status& status) {
  print_error(kTool, status.message());
  return kFailure;
}

// Prints text on stdout; a full disk or a closed pipe there is a failure.
int print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return kSuccess;
  print_error(kTool, "standard output: cannot be written");
  return kFailure;
}

int verify(const qsf::QsfReader& reader, bool json) {
  // Tiles are read once for themselves and once with their section.
  const std::uint64_t total = 2 * reader.file().size_bytes();
  ProgressLine progress(kTool, true);
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
  print_error(kTool,
              reader.file().path() + ": there is no tensor " + name + "; --tensors lists them");
  return kFailure;
}

int plan(const InspectOptions& options) {
  std::string problem;
  const auto text = plan_report(options.path, options.plan_options, options.json, problem);
  if (text) return print(*text);
  print_error(kTool, problem);
  return kFailure;
}

int inspect_gguf(const InspectOptions& options) {
  if (options.verify || options.plan || !options.dump_tensor.empty()) {
    print_error(kTool, options.path +
                           ": a GGUF file, expected a .qsf file for --verify, --plan and "
                           "--dump-tensor; convert it: qsf-convert MODEL.gguf MODEL.qsf");
    return kUsage;
  }
  const auto text = options.json ? gguf_json_report(options.path)
                                 : gguf_text_report(options.path, options.tensors);
  return text ? print(*text) : fail(text.error());
}

int inspect(const InspectOptions& options) {
  if (is_gguf_file(options.path)) return inspect_gguf(options);
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

int run(int argc, const char* const* argv) {
  InspectOptions options;
  CLI::App app("Say what a .qsf file or a GGUF file holds.", kTool);
  app.set_version_flag("--version", "qsf-inspect " QSF_VERSION);
  app.add_option("FILE", options.path, "The .qsf or .gguf file")->type_name("")->required();
  app.add_flag("--verify", options.verify,
               "Read every tile and check all checksums and weights; exit code 1 on damage");
  app.add_flag("--json", options.json, "Print JSON");
  app.add_flag("--tensors", options.tensors, "List every tensor");
  app.add_option("--dump-tensor", options.dump_tensor,
                 "Print the weights of one tensor, a row a line: layer.0/attn_q, final/head, "
                 "layer.1/expert_up/3");
  app.add_flag("--plan", options.plan,
               "Say what memory qsf-run would take and what it would read, and measure the disk "
               "for how fast it could be");
  add_plan_options(app, options.plan_options);
  if (const std::optional<int> code = parse_command_line(app, argc, argv)) return *code;
  if (!options.plan && !options.plan_options.is_default()) {
    print_error(kTool,
                "--ram-budget, --max-seq-len, --threads, --rows-per-pass, --io, --kv-type, "
                "--kv-policy, --kv-window, --kv-sinks, --kv-heavy, --kv-spill, --rope-reindex, "
                "--attention and --h2o-... need --plan");
    return kUsage;
  }
  std::string problem = check_kv_policy(options.plan_options.kv_policy);
  if (problem.empty()) problem = check_attention(options.plan_options.attention);
  if (!problem.empty()) {
    print_error(kTool, problem);
    return kUsage;
  }
  return inspect(options);
}

}  // namespace
}  // namespace qsf_tools

int main(int argc, char** argv) {
  qsf_tools::open_standard_streams();
  return qsf_tools::run(argc, argv);
}
