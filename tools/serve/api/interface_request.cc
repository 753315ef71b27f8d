// SPDX-License-Identifier: MIT
#include "tools/serve/api/interface_request.h"

#include <chrono>
#include <cstdio>
#include <utility>

namespace qsf_tools {

bool accept_request(const ApiRequest& request, const FieldReport& report,
                    HttpResponse (*error_response)(const ApiError& error)) {
  if (report.error) {
    request.exchange->respond(error_response(*report.error));
    return false;
  }
  request.settings->counters.ignored_fields += report.ignored.size();
  return true;
}

void report_invalid(FieldReport& report, std::string param, std::string message) {
  if (!report.error) report.error = invalid_field(std::move(param), std::move(message));
}

std::string indexed_path(std::string_view array, std::size_t index) {
  return std::string(array) + "[" + std::to_string(index) + "]";
}

JsonValue function_tool(std::string name, std::string description, JsonValue parameters) {
  JsonValue function{JsonObject()};
  function.set("name", JsonValue(std::move(name)));
  if (!description.empty()) function.set("description", JsonValue(std::move(description)));
  function.set("parameters", std::move(parameters));
  JsonValue tool{JsonObject()};
  tool.set("type", JsonValue(std::string("function")));
  tool.set("function", std::move(function));
  return tool;
}

JsonValue function_call(std::string id, std::string name, std::string arguments) {
  JsonValue function{JsonObject()};
  function.set("name", JsonValue(std::move(name)));
  function.set("arguments", JsonValue(std::move(arguments)));
  JsonValue call{JsonObject()};
  call.set("id", JsonValue(std::move(id)));
  call.set("type", JsonValue(std::string("function")));
  call.set("function", std::move(function));
  return call;
}

std::string utc_time(std::int64_t seconds) {
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss<std::chrono::seconds> clock(time - day);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text;
}

}  // namespace qsf_tools
