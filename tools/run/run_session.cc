// SPDX-License-Identifier: MIT
//
// Sessions in files; see run_session.h.

#include "tools/run/run_session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

void tell(const RunOptions& options, std::size_t n_tokens, const char* what,
          const std::string& path, double seconds) {
  struct stat about = {};
  if (options.quiet || ::stat(path.c_str(), &about) != 0) return;
  char time[40];
  std::snprintf(time, sizeof time, ", in %.3f s", seconds);
  print_error(kRunTool, "session of " + std::to_string(n_tokens) + " tokens " + what + path + ": " +
                            megabytes(static_cast<std::uint64_t>(about.st_size)) + time);
}

}  // namespace

double Stopwatch::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string check_session_path(const RunOptions& options) {
  const std::string& path = options.session_save;
  if (path.empty()) return {};
  struct stat about = {};
  if (::stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    return "--session-save: " + path + ": is no regular file, so it is not replaced";
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return "--session-save: " + path + ": cannot be written: " + std::strerror(errno);
}

qsf_code open_session(const RunOptions& options, QSFEngine* engine, SessionPtr& session,
                      qsf_error& error) {
  QSFSession* created = nullptr;
  const qsf_code code = qsf_session_create(engine, &created, &error);
  session.reset(created);
  if (code != QSF_OK || options.session_load.empty()) return code;
  return qsf_session_load(created, options.session_load.c_str(), &error);
}

qsf_code save_session(const RunOptions& options, QSFSession* session, qsf_error& error) {
  if (options.session_save.empty()) return QSF_OK;
  if (qsf_session_length(session) == 0) {
    if (!options.quiet) print_error(kRunTool, "nothing was computed, so no session is saved");
    return QSF_OK;
  }
  const Stopwatch watch;
  const qsf_code code = qsf_session_save(session, options.session_save.c_str(), &error);
  if (code == QSF_OK) tell_saved(options, qsf_session_length(session), watch.seconds());
  return code;
}

void tell_loaded(const RunOptions& options, std::size_t n_tokens, double seconds) {
  tell(options, n_tokens, "loaded from ", options.session_load, seconds);
}

void tell_saved(const RunOptions& options, std::size_t n_tokens, double seconds) {
  tell(options, n_tokens, "saved in ", options.session_save, seconds);
}

}  // namespace qsf_tools
