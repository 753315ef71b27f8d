// SPDX-License-Identifier: MIT

#include "tools/run/run_output.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "tools/common/console.h"
#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

const char* reason_text(qsf_stop_reason reason) {
  switch (reason) {
    case QSF_STOP_MAX_TOKENS: return "token limit reached";
    case QSF_STOP_END_OF_TEXT: return "end of text";
    case QSF_STOP_STRING: return "stop text found";
    case QSF_STOP_CONTEXT_FULL: return "context full";
    case QSF_STOP_CANCELLED: return "interrupted";
    case QSF_STOP_CALLBACK: return "ended by the program";
  }
  return "unknown reason";
}

qsf_engine_stats stats_of(QSFEngine* engine) {
  qsf_engine_stats stats = {};
  stats.struct_size = sizeof stats;
  qsf_engine_get_stats(engine, &stats, nullptr);
  return stats;
}

qsf_plan_info plan_of(QSFEngine* engine) {
  qsf_plan_info info = {};
  info.struct_size = sizeof info;
  qsf_plan_get_info(qsf_engine_plan(engine), &info, nullptr);
  return info;
}

void print_time(const char* what, std::uint64_t ns) {
  std::fprintf(stderr, "%12.1f ms  %s\n", static_cast<double>(ns) / 1e6, what);
}

}  // namespace

bool TextOutput::write(std::string_view text) {
  if (failed()) return false;
  if (!text.empty()) last_ = text.back();
  while (!text.empty()) {
    const std::ptrdiff_t n_written = write_output(text);
    if (n_written == -EINTR) continue;
    if (n_written < 0) {
      error_ = static_cast<int>(-n_written);
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(n_written));
  }
  return true;
}

bool TextOutput::end_line() {
  return last_ == '\n' ? !failed() : write("\n");
}

bool TextOutput::end_interrupted_line() {
  return is_terminal(StandardStream::kOutput) ? write("\n") : end_line();
}

bool TextOutput::reader_left() const {
  return error_ == EPIPE;
}

const char* TextOutput::reason() const {
  return std::strerror(error_);
}

void print_plan(QSFEngine* engine) {
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  qsf_engine_model_info(engine, &info, nullptr);
  const qsf_engine_stats stats = stats_of(engine);
  std::fprintf(stderr,
               "model: %s, %s, %" PRIu64
               " parameters, %d layers, hidden %d, vocabulary %d, file "
               "%s\n",
               info.architecture, info.quant_type, info.n_parameters, info.n_layers,
               info.hidden_size, info.n_vocab, megabytes(info.file_bytes).c_str());
  std::fprintf(stderr, "context: %d tokens of %d trained\n", info.context, info.trained_context);
  std::fprintf(stderr, "kernels: %s, %d threads\n", stats.instruction_set, stats.n_threads);
  std::fprintf(stderr, "memory plan:\n");
  const int n_regions = qsf_engine_memory_region_count(engine);
  for (int i = 0; i < n_regions; ++i) {
    qsf_memory_region region = {};
    region.struct_size = sizeof region;
    if (qsf_engine_memory_region(engine, i, &region, nullptr) != QSF_OK) continue;
    std::fprintf(stderr, "%15" PRIu64 "  %s: %s\n", region.bytes, region.name, region.reason);
  }
  std::fprintf(stderr, "%15" PRIu64 "  in all\n", stats.planned_bytes);
}

void print_memory(QSFEngine* engine) {
  const qsf_engine_stats stats = stats_of(engine);
  const qsf_plan_info plan = plan_of(engine);
  const std::string budget = plan.budget_named != 0 ? " of " + megabytes(plan.budget_bytes) : "";
  std::fprintf(stderr,
               "%s: memory %s planned%s, %s peak; read %s, prompts in %" PRIu64
               " pass%s of up to %d rows; %d threads, %s\n",
               program_name().c_str(), megabytes(stats.planned_bytes).c_str(), budget.c_str(),
               megabytes(stats.peak_resident_bytes).c_str(),
               megabytes(stats.weight_bytes_read).c_str(), stats.prompt_passes,
               stats.prompt_passes == 1 ? "" : "es", plan.rows_per_pass, stats.n_threads,
               stats.instruction_set);
  std::fprintf(stderr, "%s: mode: %s\n", program_name().c_str(), plan.reading_mode);
}

void print_drafts(QSFEngine* engine) {
  const qsf_engine_stats stats = stats_of(engine);
  if (stats.drafted_tokens == 0) return;
  const std::uint64_t n_passes = stats.generated_tokens - stats.accepted_tokens;
  std::fprintf(stderr,
               "%s: drafted %" PRIu64 " tokens, %" PRIu64 " of them accepted; %.2f tokens a pass\n",
               program_name().c_str(), stats.drafted_tokens, stats.accepted_tokens,
               static_cast<double>(stats.generated_tokens) /
                   static_cast<double>(std::max(n_passes, std::uint64_t{1})));
  if (stats.model_drafted_tokens == 0) return;
  std::fprintf(stderr,
               "%s: of these %" PRIu64 " by the draft model, %" PRIu64
               " of them accepted, in %.1f %% of the time\n",
               program_name().c_str(), stats.model_drafted_tokens, stats.model_accepted_tokens,
               100.0 * static_cast<double>(stats.draft_ns) /
                   static_cast<double>(std::max(stats.generate_ns, std::uint64_t{1})));
}

std::string memory_now(QSFEngine* engine) {
  return ", " + megabytes(stats_of(engine).resident_bytes) + " in memory";
}

static std::string rate_text(int n_tokens, std::uint64_t ns) {
  const double rate = per_second(static_cast<std::uint64_t>(n_tokens), ns);
  char text[32];
  std::snprintf(text, sizeof text, rate < 10.0 ? "%.2f" : "%.1f", rate);
  return text;
}

void print_answer(const qsf_chat_result& result) {
  const int n_steps = result.generated_tokens > 0 ? result.generated_tokens - 1 : 0;
  std::fprintf(stderr,
               "%s: computed %d tokens, %s tokens/s, kept %d; generated %d tokens, %s "
               "tokens/s; first after %.3f s; %s; context %d tokens\n",
               program_name().c_str(), result.prompt_tokens,
               rate_text(result.prompt_tokens, result.prompt_ns).c_str(), result.reused_tokens,
               result.generated_tokens, rate_text(n_steps, result.generate_ns).c_str(),
               seconds(result.first_token_ns), reason_text(result.reason), result.context_tokens);
}

void print_summary(QSFEngine* engine, const qsf_generate_result& result, std::uint64_t seed) {
  // Speed is that of the steps between tokens: the first token came with the prompt.
  const int n_steps = result.generated_tokens > 0 ? result.generated_tokens - 1 : 0;
  std::fprintf(stderr,
               "%s: prompt %d tokens, %s tokens/s; generated %d tokens, %s tokens/s; first "
               "after %.3f s; %s; seed %" PRIu64 "\n",
               program_name().c_str(), result.prompt_tokens,
               rate_text(result.prompt_tokens, result.prompt_ns).c_str(), result.generated_tokens,
               rate_text(n_steps, result.generate_ns).c_str(), seconds(result.first_token_ns),
               reason_text(result.reason), seed);
  print_drafts(engine);
  print_memory(engine);
}

void print_times(QSFEngine* engine, const qsf_generate_result& result) {
  const qsf_engine_stats stats = stats_of(engine);
  std::fprintf(stderr, "where the time went:\n");
  print_time("opening", stats.load_ns);
  print_time("prompt", result.prompt_ns);
  print_time("generation", result.generate_ns);
  // Products wait for the tiles they multiply before they begin.
  print_time("of these two: waiting for the disk", stats.read_wait_ns);
  print_time("of these two: matrix products", stats.matmul_ns);
  print_time("of these two: attention", stats.attention_ns);
  print_time("of these two: the rest of the layers",
             stats.other_ns - std::min(stats.other_ns, stats.read_wait_ns));
  print_time("sampling, on top of these two", stats.sample_ns);
  print_time("meanwhile: reading", stats.read_ns);
  print_time("meanwhile: unpacking, over all readers", stats.unpack_ns);
  const qsf_plan_info plan = plan_of(engine);
  std::fprintf(stderr, "disk: %s read at %.2f GB/s", megabytes(stats.weight_bytes_read).c_str(),
               per_second(stats.weight_bytes_read, stats.read_ns) / 1e9);
  if (plan.disk_bytes_per_second > 0) {
    std::fprintf(stderr, " of %.2f GB/s that it gave when it was probed",
                 plan.disk_bytes_per_second / 1e9);
  }
  std::fputc('\n', stderr);
}

}  // namespace qsf_tools
