// SPDX-License-Identifier: MIT

#include "tools/inspect/qsf_inspect_plan.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "qsf/qsf.h"
#include "tools/common/handles.h"
#include "tools/common/tool_support.h"
#include "tools/inspect/qsf_inspect_report.h"

namespace qsf_tools {
namespace {

using Json = nlohmann::ordered_json;

qsf_plan_info info_of(const QSFPlan* plan) {
  qsf_plan_info info = {};
  info.struct_size = sizeof info;
  qsf_plan_get_info(plan, &info, nullptr);
  return info;
}

qsf_memory_region region_of(const QSFPlan* plan, int index) {
  qsf_memory_region region = {};
  region.struct_size = sizeof region;
  qsf_plan_region(plan, index, &region, nullptr);
  return region;
}

std::string rate(double bytes_per_second) {
  if (bytes_per_second <= 0) return "not measured";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GB/s", bytes_per_second / 1e9);
  return text;
}

std::string text_plan(const QSFPlan* plan, const KvTypeChoice& kv_types) {
  const qsf_plan_info info = info_of(plan);
  std::string text;
  add_line(text, "budget            %s%s",
           info.budget_bytes == 0 ? "no bound is known" : megabytes(info.budget_bytes).c_str(),
           info.budget_named != 0 ? "" : ", what the machine has to spare");
  add_line(text, "planned           %s, %" PRIu64 " bytes", megabytes(info.planned_bytes).c_str(),
           info.planned_bytes);
  add_line(text, "context           %d positions, %d rows per pass", info.context,
           info.rows_per_pass);
  add_line(text, "sequences         %d, %d KV pages of %d positions for all", info.sequences,
           info.kv_pages, info.kv_page_positions);
  if (info.sequences > 1) {
    add_line(text, "delay             %d passes at most, of a generated token by prompts of others",
             info.max_row_delay);
  }
  add_line(text, "keys and values   %s", kv_types.text().c_str());
  add_line(text, "mode              %s", info.reading_mode);
  add_line(text, "read per pass     %s of %s of weights", megabytes(info.pass_read_bytes).c_str(),
           megabytes(info.weight_bytes).c_str());
  if (info.experts > 0) {
    add_line(text, "experts           %d of %d in memory at once; a token uses %s of them",
             info.experts_kept, info.experts, megabytes(info.expert_pass_bytes).c_str());
    add_line(text, "                  and reads %s", megabytes(info.expert_read_bytes).c_str());
  }
  add_line(text, "disk, memory      %s, %s", rate(info.disk_bytes_per_second).c_str(),
           rate(info.memory_bytes_per_second).c_str());
  if (info.tokens_per_second > 0) {
    add_line(text, "tokens            at most %.2f a second", info.tokens_per_second);
  }
  for (int i = 0; const char* step = qsf_plan_step(plan, i); ++i) {
    add_line(text, "note              %s", step);
  }
  add_line(text, "%s", "");
  add_line(text, "%15s  %-18s %s", "bytes", "region", "why");
  for (int i = 0; i < qsf_plan_region_count(plan); ++i) {
    const qsf_memory_region region = region_of(plan, i);
    add_line(text, "%15" PRIu64 "  %-18s %s", region.bytes, region.name, region.reason);
  }
  add_line(text, "%15" PRIu64 "  in all", info.planned_bytes);
  return text;
}

std::string json_plan(const QSFPlan* plan, const KvTypeChoice& kv_types) {
  const qsf_plan_info info = info_of(plan);
  const auto known = [](double value) { return value > 0 ? Json(value) : Json(); };
  Json report = {{"budget_bytes", info.budget_bytes == 0 ? Json() : Json(info.budget_bytes)},
                 {"budget_named", info.budget_named != 0},
                 {"planned_bytes", info.planned_bytes},
                 {"context", info.context},
                 {"rows_per_pass", info.rows_per_pass},
                 {"sequences", info.sequences},
                 {"kv_pages", info.kv_pages},
                 {"kv_page_positions", info.kv_page_positions},
                 {"max_row_delay", info.max_row_delay},
                 {"kv_type_k", kv_types.keys()},
                 {"kv_type_v", kv_types.values()},
                 {"mode", info.reading_mode},
                 {"everything_resident", info.everything_resident != 0},
                 {"resident_share", info.resident_share},
                 {"weight_bytes", info.weight_bytes},
                 {"pass_read_bytes", info.pass_read_bytes},
                 {"experts", info.experts},
                 {"experts_kept", info.experts_kept},
                 {"expert_pass_bytes", info.expert_pass_bytes},
                 {"expert_read_bytes", info.expert_read_bytes},
                 {"disk_bytes_per_second", known(info.disk_bytes_per_second)},
                 {"memory_bytes_per_second", known(info.memory_bytes_per_second)},
                 {"tokens_per_second", known(info.tokens_per_second)},
                 {"notes", Json::array()},
                 {"regions", Json::array()}};
  for (int i = 0; const char* step = qsf_plan_step(plan, i); ++i) {
    report["notes"].push_back(step);
  }
  for (int i = 0; i < qsf_plan_region_count(plan); ++i) {
    const qsf_memory_region region = region_of(plan, i);
    report["regions"].push_back(
        {{"name", region.name}, {"bytes", region.bytes}, {"reason", region.reason}});
  }
  return report.dump(2) + "\n";
}

}  // namespace

std::optional<std::string> plan_report(const std::string& path, const EngineOptions& options,
                                       bool json, std::string& problem) {
  const ConfigPtr config(qsf_config_default());
  set_engine_options(config.get(), options);
  qsf_error error = {};
  QSFPlan* made = nullptr;
  if (qsf_plan_create(path.c_str(), config.get(), &made, &error) != QSF_OK) {
    problem = error.message;
    return std::nullopt;
  }
  const PlanPtr plan(made);
  return json ? json_plan(plan.get(), options.kv_types) : text_plan(plan.get(), options.kv_types);
}

}  // namespace qsf_tools
