#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when a wheel is not what its name and docs/decisions/060-wheels.md say.

    check_wheel.py [--foreign] WHEEL

It holds the engine, the program, the Python package, licences and a bill of materials, and nothing
else; is at most 10 MB; names no source by a path of the machine that built it; is for glibc of its name
(scripts/check/check_glibc.py) and its program for none. Unless --foreign (a wheel for another
machine), library and program are loaded and say the wheel's version. Prints one line per violation.
Exit status: 0 without a violation, 1 with one, 2 when there was nothing to check.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

import make_sbom

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHECKERS = os.path.join(ROOT, "scripts", "check")
MAX_BYTES = 10_000_000
NAME = re.compile(r"^qsf-(?P<version>[\d.]+)-py3-none-manylinux_2_(?P<glibc>\d+)_(?P<machine>x86_64|aarch64)\.whl$")
LIBRARY, PROGRAM = "qsf/lib/libqsf.so.0", "qsf/bin/qsf"
ALLOWED = re.compile(r"^(qsf/[\w/]+\.pyi?|qsf/py\.typed|qsf/lib/libqsf\.so\.0|qsf/bin/qsf|"
                     r"qsf-[\d.]+\.dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/.+|sboms/[\w.-]+\.json))$")
# Of a source, unless it is the system's own.
SOURCE_PATH = re.compile(rb"(?<![\w./+-])/(?!usr/)[\w./+-]+/[\w.+-]+\.(?:cc|cxx|c|h)\b")


def listing_violations(names, info):
    """Returns what is wrong with the names in a wheel whose dist-info folder is `info`."""
    found = [f"holds {name}, which no wheel should" for name in names if not ALLOWED.match(name)]
    wanted = [LIBRARY, PROGRAM, "qsf/__init__.py", "qsf/__main__.py", f"{info}/entry_points.txt",
              f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE", f"{info}/licenses/packaging/debian/copyright",
              f"{info}/sboms/qsf.cdx.json"]
    return found + [f"lacks {name}" for name in wanted if name not in names]


def bill_violations(text, libraries, names, info):
    """Returns what is wrong with a bill of materials that should list `libraries`."""
    listed = {entry["name"]: entry for entry in json.loads(text)["components"]}
    found = []
    for library in libraries:
        name = library["name"]
        if not listed.get(name, {}).get("version"):
            found.append(f"its bill of materials has no version of {name}")
        if not library.get("headers_alone") and f"{info}/licenses/libraries/{name}.txt" not in names:
            found.append(f"lacks the licence of {name}")
    return found


def checker_violations(name, *arguments):
    done = subprocess.run([sys.executable, os.path.join(CHECKERS, name), *arguments],
                          capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else (done.stdout + done.stderr).strip().split("\n")


def loading_violations(folder, version):
    """Loads the library and runs the program."""
    library, program = (os.path.join(folder, path) for path in (LIBRARY, PROGRAM))
    load = "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).qsf_version; f.restype = ctypes.c_char_p; print(f().decode())"
    found = []
    for what, command, expected in ((LIBRARY, [sys.executable, "-c", load, library], version),
                                    (PROGRAM, [program, "--version"], f"qsf {version}")):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stdout.strip() != expected:
            found.append(f"{what} says {(done.stdout + done.stderr).strip()!r}, expected {expected!r}")
    return found


def violations(path, foreign):
    match = NAME.match(os.path.basename(path))
    if not match:
        return [f"is named {os.path.basename(path)}, expected qsf-VERSION-py3-none-manylinux_2_N_MACHINE.whl"]
    size = os.path.getsize(path)
    found = [f"has {size} bytes, expected at most {MAX_BYTES}"] if size > MAX_BYTES else []
    info = f"qsf-{match['version']}.dist-info"
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        names = [name for name in wheel.namelist() if not name.endswith("/")]
        found += listing_violations(names, info)
        if any(line.startswith("lacks") for line in found):
            return found
        found += bill_violations(wheel.read(f"{info}/sboms/qsf.cdx.json"), make_sbom.libraries_of("linux"), names, info)
        for name in (LIBRARY, PROGRAM):
            os.chmod(wheel.extract(name, folder), 0o755)
            found += [f"{name} names {place.decode()}, which is a path of one machine" for place in SOURCE_PATH.findall(wheel.read(name))]
            if not wheel.getinfo(name).external_attr >> 16 & 0o100 and name == PROGRAM:
                found.append(f"{name} is not executable")
        found += checker_violations("check_glibc.py", "--max", f"2.{match['glibc']}", os.path.join(folder, LIBRARY))
        found += checker_violations("check_linkage.py", "--static", os.path.join(folder, PROGRAM))
        if not foreign:
            found += loading_violations(folder, match["version"])
    return found


def main(arguments):
    foreign = "--foreign" in arguments
    paths = [argument for argument in arguments if argument != "--foreign"]
    if len(paths) != 1 or not os.path.isfile(paths[0]):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    found = violations(paths[0], foreign)
    for line in found:
        print(f"{paths[0]}: {line}")
    if not found:
        print(f"check_wheel: {os.path.getsize(paths[0])} bytes, as it should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
