// SPDX-License-Identifier: MIT
//
// Adapters of the C API; the contract is include/qsf/adapters.h.

#include <cstdint>
#include <limits>
#include <string>

#include "capi/capi_handles.h"

namespace qsf::capi {

namespace {

Status set_session_adapter(Session& session, int adapter, float scale) {
  QSF_ASSIGN_OR_RETURN(const AdapterUse use, adapter_use_of(adapter, scale));
  return session.set_adapter(use);
}

}  // namespace

Result<AdapterUse> adapter_use_of(int adapter, float scale) {
  constexpr int kMost = std::numeric_limits<std::uint16_t>::max();
  if (adapter < 0 || adapter > kMost) {
    return invalid_argument("adapter: %d, expected 0 (none) or the number of one", adapter);
  }
  return AdapterUse{.number = static_cast<std::uint16_t>(adapter), .scale = scale};
}

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void qsf_config_add_adapter(QSFConfig* config, const char* path, const char* name) {
  if (config == nullptr) return;
  const qsf_code code = guarded(nullptr, [&] {
    config->adapters.push_back(
        {.path = path == nullptr ? "" : path, .name = name == nullptr ? "" : name});
    return qsf::ok_status();
  });
  config->adapters_lost = config->adapters_lost || code != QSF_OK;
}

void qsf_config_set_adapter(QSFConfig* config, int adapter, float scale) {
  if (config == nullptr) return;
  config->adapter = adapter;
  config->adapter_scale = scale;
}

int qsf_engine_adapter_count(const QSFEngine* engine) {
  return engine == nullptr ? 0 : static_cast<int>(engine->engine->adapters().size());
}

const char* qsf_engine_adapter_name(const QSFEngine* engine, int adapter) {
  if (adapter < 1 || adapter > qsf_engine_adapter_count(engine)) return nullptr;
  return engine->engine->adapters()[static_cast<std::size_t>(adapter) - 1].name.c_str();
}

qsf_code qsf_session_set_adapter(QSFSession* session, int adapter, float scale, qsf_error* error) {
  return session_call(session, error,
                      [&] { return set_session_adapter(*session->session, adapter, scale); });
}
