#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when a library needs a newer C library, or another library, than a wheel may count on.

    check_glibc.py --max VERSION LIBRARY...

Every symbol that LIBRARY takes from the C library has to be of VERSION (as 2.28) or older, and what
it needs is the C library, its loader and libgcc_s, in versions that every gcc since 4.8 has. The
C++ library is inside and hidden: the library exports nothing but names that begin with qsf_.

Prints one line per violation. Exit status: 0 without a violation, 1 with one, 2 when there was
nothing to check.
"""

import argparse
import os
import re
import subprocess
import sys

NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[([^\]]*)\]")
ALLOWED = re.compile(r"^(lib(c|m)\.so\.6|lib(pthread|gcc_s|rt)\.so\.[01]|libdl\.so\.2|ld-linux[\w-]*\.so\.\d+)$")
# What readelf -W --dyn-syms prints: section, name and, of symbols with one, the version.
SYMBOL = re.compile(r"^\s*\d+: [0-9a-f]+\s+\w+ \w+\s+(\w+)\s+\w+\s+(\w+) (\w+)(?:@{1,2}([\w.]+))?", re.MULTILINE)
MAX_OF_OTHERS = {"GCC": (4, 8)}


def version_key(text):
    """Returns '2.28' as numbers that compare: (2, 28); None where it is no version, as PRIVATE is."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def too_new(version, limit):
    """Whether a symbol of `version`, as GLIBC_2.34, may be missing where the C library is `limit`."""
    family, _, number = version.partition("_")
    highest = {"GLIBC": limit, **MAX_OF_OTHERS}.get(family)
    key = version_key(number)
    return highest is None or key is None or key > highest


def violations(library, output, limit):
    """Returns what is wrong with a library of which readelf -W -d --dyn-syms printed `output`."""
    found = [f"{library}: needs {name}" for name in NEEDED.findall(output) if not ALLOWED.match(name)]
    for binding, section, name, version in SYMBOL.findall(output):
        if section == "UND" and version and too_new(version, limit):
            found.append(f"{library}: takes {name} of {version}, expected GLIBC {'.'.join(map(str, limit))} or older")
        elif section == "UND" and not version and binding == "GLOBAL":
            found.append(f"{library}: takes {name} from a library without versions")
        elif section.isdigit() and binding in ("GLOBAL", "WEAK", "UNIQUE") and not name.startswith("qsf_"):
            found.append(f"{library}: exports {name}, expected names that begin with qsf_ alone")
    return found


def main(arguments):
    parser = argparse.ArgumentParser(description="Check what a library needs.")
    parser.add_argument("--max", required=True, help="version of the C library, as 2.28")
    parser.add_argument("libraries", nargs="+")
    options = parser.parse_args(arguments)
    limit = version_key(options.max)
    if limit is None:
        parser.error(f"--max is '{options.max}', expected a version such as 2.28")
    found, n_symbols = [], 0
    for library in options.libraries:
        done = subprocess.run([os.environ.get("READELF", "readelf"), "-W", "-d", "--dyn-syms", library],
                              capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"), check=False)
        symbols = SYMBOL.findall(done.stdout)
        if done.returncode != 0 or not any(version for *_, version in symbols):
            print(f"{library}: readelf sees no symbol with a version: {done.stderr.strip()}", file=sys.stderr)
            return 2
        n_symbols += len(symbols)
        found += violations(library, done.stdout, limit)
    for line in found:
        print(line)
    if not found:
        print(f"check_glibc: {n_symbols} symbols, none newer than glibc {options.max}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
