// SPDX-License-Identifier: MIT
//
// The part of JSON Schema that our published schemas use: type, const, enum, minimum, maximum,
// minLength, maxLength, required, properties, additionalProperties (false), items and local $ref.

#ifndef QSF_TOOLS_PARITY_JSON_SCHEMA_H_
#define QSF_TOOLS_PARITY_JSON_SCHEMA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace qsf_tools {

// Parses JSON from outside; returns a discarded value for text that is none, or that nests deeper
// than 32 levels, since whatever walks a value calls itself once a level.
nlohmann::json parse_json(std::string_view text);

// Returns what is wrong first, "rows/3/cosine: ..."; empty when the value follows the schema. A
// keyword of the schema that is not known is wrong as well, so that none is passed over in silence.
std::string check_schema(const nlohmann::json& value, const nlohmann::json& schema);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_JSON_SCHEMA_H_
