// SPDX-License-Identifier: MIT
//
// The C API's plans, of engines that are open and of files that are not.

#include "capi/capi_handles.h"

namespace qsf::capi {

namespace {

Status create_plan(const char* model_path, const QSFConfig* config, QSFPlan** out) {
  if (out == nullptr) return null_argument("plan");
  *out = nullptr;
  if (model_path == nullptr) return null_argument("model_path");
  QSFConfig settings = config == nullptr ? QSFConfig() : *config;
  QSF_ASSIGN_OR_RETURN(EngineOptions options, read_config(settings));
  set_hooks(settings, options);
  QSF_ASSIGN_OR_RETURN(EnginePlan plan, Engine::plan_file(model_path, options));
  *out = new QSFPlan{std::move(plan)};
  return ok_status();
}

qsf_plan_info plan_info(const EnginePlan& plan) {
  qsf_plan_info info = {};
  info.budget_bytes = plan.budget_bytes == kNoMemoryLimit ? 0 : plan.budget_bytes;
  info.budget_named = plan.budget_named ? 1 : 0;
  info.planned_bytes = plan.memory.total_bytes();
  info.context = static_cast<int>(plan.max_context);
  info.rows_per_pass = static_cast<int>(plan.rows_per_pass);
  info.everything_resident = plan.residency.everything_resident ? 1 : 0;
  info.resident_share = plan.residency.resident_share;
  info.weight_bytes = plan.residency.weight_bytes;
  info.pass_read_bytes = plan.residency.streamed_bytes + plan.residency.expert_read_bytes();
  info.disk_bytes_per_second = plan.disk_bytes_per_second;
  info.memory_bytes_per_second = plan.memory_bytes_per_second;
  info.tokens_per_second = predicted_tokens_per_second(plan);
  info.reading_mode = plan.reading_mode.c_str();
  info.sequences = static_cast<int>(plan.n_sequences);
  info.kv_pages = static_cast<int>(plan.n_kv_pages);
  info.kv_page_positions = static_cast<int>(kKvPageSlots);
  info.max_row_delay = static_cast<int>(plan.max_row_delay);
  info.experts = static_cast<int>(plan.residency.n_experts);
  info.experts_kept = static_cast<int>(plan.residency.n_expert_slots);
  info.expert_pass_bytes = plan.residency.expert_pass_bytes;
  info.expert_read_bytes = plan.residency.expert_read_bytes();
  return info;
}

Status region_of(const MemoryPlan& plan, int index, qsf_memory_region* region) {
  const std::span<const Region> regions = plan.regions();
  if (index < 0 || static_cast<std::size_t>(index) >= regions.size()) {
    return invalid_argument("index: %d, expected 0 to %zu", index, regions.size() - 1);
  }
  const Region& planned = regions[static_cast<std::size_t>(index)];
  qsf_memory_region out = {};
  out.name = planned.name.c_str();
  out.reason = planned.reason.c_str();
  out.bytes = planned.bytes;
  return write_struct(out, "region", region);
}

}  // namespace

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

qsf_code qsf_plan_create(const char* model_path, const QSFConfig* config, QSFPlan** plan,
                         qsf_error* error) {
  return guarded(error, [&] { return create_plan(model_path, config, plan); });
}

void qsf_plan_free(QSFPlan* plan) {
  delete plan;
}

const QSFPlan* qsf_engine_plan(const QSFEngine* engine) {
  return engine == nullptr ? nullptr : &engine->plan;
}

qsf_code qsf_plan_get_info(const QSFPlan* plan, qsf_plan_info* info, qsf_error* error) {
  return guarded(error, [&] {
    if (plan == nullptr) return null_argument("plan");
    return write_struct(plan_info(plan->plan), "info", info);
  });
}

int qsf_plan_region_count(const QSFPlan* plan) {
  return plan == nullptr ? 0 : static_cast<int>(plan->plan.memory.regions().size());
}

qsf_code qsf_plan_region(const QSFPlan* plan, int index, qsf_memory_region* region,
                         qsf_error* error) {
  return guarded(error, [&] {
    if (plan == nullptr) return null_argument("plan");
    return region_of(plan->plan.memory, index, region);
  });
}

const char* qsf_plan_step(const QSFPlan* plan, int index) {
  if (plan == nullptr || index < 0) return nullptr;
  const std::vector<std::string>& steps = plan->plan.steps;
  const auto i = static_cast<std::size_t>(index);
  return i < steps.size() ? steps[i].c_str() : nullptr;
}

int qsf_engine_memory_region_count(const QSFEngine* engine) {
  return engine == nullptr ? 0 : qsf_plan_region_count(&engine->plan);
}

qsf_code qsf_engine_memory_region(const QSFEngine* engine, int index, qsf_memory_region* region,
                                  qsf_error* error) {
  return guarded(error, [&] {
    if (engine == nullptr) return null_argument("engine");
    return region_of(engine->plan.plan.memory, index, region);
  });
}
