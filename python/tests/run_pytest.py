#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the tests of the Python package with a library and a tool that were built.

    run_pytest.py LIBQSF_SO QSF [pytest arguments]

The interpreter is the first with pytest and NumPy: $QSF_TEST_PYTHON, this one, the system's.
Exit status: that of pytest; 1 also where there is no such interpreter.

A library of the preset asan gets the runtimes of its sanitizers loaded before it. Then the status is
1 also where one of them reported an error, or memory that the engine left behind: what the
interpreter and NumPy never free does not count.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
SYSTEM_PYTHON = "/usr/bin/python3"


def has_packages(python):
    done = subprocess.run([python, "-c", "import numpy, pytest"], capture_output=True, check=False)
    return done.returncode == 0


def sanitizer_runtimes():
    """Returns the paths of gcc's runtimes."""
    names = ("libasan.so", "libubsan.so")
    return [subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True,
                           check=True).stdout.strip() for name in names]


def errors_of(report):
    """Returns the parts of a process's report by its sanitizers that are the engine's."""
    if "detected memory leaks" not in report:
        return [report] if report.strip() else []
    return [part for part in report.split("\n\n")
            if re.search(r" in qsf_| in qsf::|/libqsf\.so", part)]


def run_sanitized(command, environment):
    """Runs a command with the runtimes loaded. Returns its exit status, 1 where they reported an error."""
    with tempfile.TemporaryDirectory() as reports:
        options = f"log_path={reports}/report"
        status = subprocess.run(command, check=False, env={
            **environment, "LD_PRELOAD": " ".join(sanitizer_runtimes()), "PYTHONMALLOC": "malloc",
            # Precise stacks: interpreters have no frame pointers, and leaks are told apart by them.
            "ASAN_OPTIONS": f"detect_leaks=1:fast_unwind_on_malloc=0:{options}",
            "LSAN_OPTIONS": "exitcode=0", "UBSAN_OPTIONS": f"print_stacktrace=1:{options}"}).returncode
        errors = [error for path in pathlib.Path(reports).iterdir() for error in errors_of(path.read_text())]
    for error in errors:
        print(error, file=sys.stderr)
    return status or int(bool(errors))


def main(arguments):
    if len(arguments) < 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    library, tool, *options = arguments
    named = os.environ.get("QSF_TEST_PYTHON")
    for python in [named] if named else [sys.executable, SYSTEM_PYTHON]:
        if os.path.exists(python) and has_packages(python):
            break
    else:
        print(f"run_pytest.py: no pytest and NumPy in {named or sys.executable}; "
              "install python3-pytest and python3-numpy", file=sys.stderr)
        return 1
    environment = {**os.environ, "QSF_LIBRARY": os.path.abspath(library),
                   "QSF_TOOL": os.path.abspath(tool)}
    command = [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", FOLDER, *options]
    if b"__asan_init" in pathlib.Path(library).read_bytes():
        return run_sanitized(command, environment)
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
