// SPDX-License-Identifier: MIT
//
// Asks a running server for its health, for containers that hold no other program.

#ifndef QSF_TOOLS_SERVE_HEALTH_CHECK_H_
#define QSF_TOOLS_SERVE_HEALTH_CHECK_H_

#include <cstdint>
#include <string>

namespace qsf_tools {

// Sends GET /health to a port of `host`, or to a Unix socket where `socket_path` is not empty.
// Returns what is wrong, empty for a server that is ready. Takes at most five seconds.
std::string check_health(const std::string& host, std::uint16_t port,
                         const std::string& socket_path);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HEALTH_CHECK_H_
