#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when a released tool needs a shared library that a machine may lack.

    check_linkage.py [--static] PROGRAM...

Only the C library and its loader may be needed. With --static the program may need no interpreter
and no shared library at all.

Prints one line per violation. Exit status: 0 without a violation, 1 with one, 2 when there was
nothing to check.
"""

import os
import re
import subprocess
import sys

C_LIBRARY = re.compile(r"^(libc\.so\.6|libm\.so\.6|ld-linux[\w-]*\.so\.\d+)$")
NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[([^\]]*)\]")
INTERPRETER = re.compile(r"^\s+INTERP\s", re.MULTILINE)


def violations(program, output, static):
    """Returns what is wrong with a program of which readelf -l -d printed `output`."""
    found = [f"{program}: needs {library}" for library in NEEDED.findall(output)
             if static or not C_LIBRARY.match(library)]
    has_interpreter = bool(INTERPRETER.search(output))
    if static and has_interpreter:
        found.append(f"{program}: is started by an interpreter, expected a static program")
    if not static and not has_interpreter:
        found.append(f"{program}: has no interpreter, expected a program that shares the C library")
    return found


def main(arguments):
    static = "--static" in arguments
    programs = [argument for argument in arguments if argument != "--static"]
    if not programs:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    found = []
    for program in programs:
        done = subprocess.run([os.environ.get("READELF", "readelf"), "-W", "-l", "-d", program],
                              capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"), check=False)
        if done.returncode != 0 or "Program Headers:" not in done.stdout:
            print(f"{program}: readelf sees no program: {done.stderr.strip()}", file=sys.stderr)
            return 2
        found += violations(program, done.stdout, static)
    for line in found:
        print(line)
    if not found:
        print(f"check_linkage: {len(programs)} programs, {'static' if static else 'the C library alone'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
