// SPDX-License-Identifier: MIT
//
// The part of JSON Schema that our published schemas use: type, const, enum, minimum, maximum,
// minLength, maxLength, required, properties, additionalProperties (false), items and local $ref.

#ifndef QSF_TOOLS_JSON_SCHEMA_H_
#define QSF_TOOLS_JSON_SCHEMA_H_

#include <nlohmann/json.hpp>
#include <string>

namespace qsf_tools {

// Returns what is wrong first, "rows/3/cosine: ..."; empty when the value follows the schema. A
// keyword of the schema that is not known is wrong as well, so that none is passed over in silence.
std::string check_schema(const nlohmann::json& value, const nlohmann::json& schema);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_JSON_SCHEMA_H_
