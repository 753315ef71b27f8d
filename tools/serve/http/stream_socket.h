// SPDX-License-Identifier: MIT
//
// How the POSIX systems make sockets that no child process gets, each in its own way.

#ifndef QSF_TOOLS_SERVE_HTTP_STREAM_SOCKET_H_
#define QSF_TOOLS_SERVE_HTTP_STREAM_SOCKET_H_

namespace qsf_tools {

// Returns a new socket of a family of addresses, or -1, and errno says why.
int new_stream_socket(int family, bool blocks);

// Returns the next connection of a socket that listens, which does not block, or -1, and errno says
// why.
int accept_stream_socket(int listener);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_STREAM_SOCKET_H_
