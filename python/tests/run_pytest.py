#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the tests of the Python package with a library and a tool that were built.

    run_pytest.py LIBQSF_SO QSF [pytest arguments]

The interpreter is the first with pytest and NumPy: $QSF_TEST_PYTHON, this one, the system's.
Exit status: that of pytest; 1 also where there is no such interpreter.
"""

import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
SYSTEM_PYTHON = "/usr/bin/python3"


def has_packages(python):
    done = subprocess.run([python, "-c", "import numpy, pytest"], capture_output=True, check=False)
    return done.returncode == 0


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
    return subprocess.run([python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", FOLDER,
                           *options], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
