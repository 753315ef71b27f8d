// SPDX-License-Identifier: MIT
//
// JSON from outside, parsed with limits: no exception, no deep nesting, no repeated key.

#ifndef QSF_IMPORT_JSON_TEXT_H_
#define QSF_IMPORT_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace qsf {

// Parses one JSON object. Memory is at most about 40 times the text, which callers bound.
// Fails  kCorrupt, with the byte at which it went wrong: on anything that is not JSON, is not an
//        object, nests deeper than 32 levels or repeats a key of one object
Result<nlohmann::json> parse_json_object(std::string_view text);

}  // namespace qsf

#endif  // QSF_IMPORT_JSON_TEXT_H_
