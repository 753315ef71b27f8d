#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when the zip for Windows is not what docs/decisions/062-windows.md says.

    check_windows_zip.py ZIP

It holds program, library, header, bundled model, licences and a bill of materials that names a version
of each library inside, and nothing else; its programs name no source by a path of the machine that
built them, and need no library but those of Windows. Prints one line per violation. Exit status: 0
without a violation, 1 with one.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

import check_wheel
import make_sbom

NAME = re.compile(r"^qsf-(?P<version>[\d.]+)-windows-x64\.zip$")
PROGRAMS = ("bin/qsf.exe", "bin/qsf.dll")
DOC = "share/doc/qsf/"
WANTED = (*PROGRAMS, "lib/qsf.def", "include/qsf/qsf.h", "share/qsf/models/tales-5M-4bit.qsf", DOC + "LICENSE",
          DOC + "NOTICE", DOC + "README.md", DOC + "copyright", DOC + "installing.md", DOC + "sboms/qsf.cdx.json")
ALSO = re.compile(rf"^(include/qsf/\w+\.h|{DOC}libraries/[\w.+-]+\.txt)$")
OBJDUMP = "x86_64-w64-mingw32-objdump"
# What every Windows has.
SYSTEM_LIBRARIES = {"advapi32.dll", "kernel32.dll", "msvcrt.dll", "ntdll.dll", "psapi.dll", "shell32.dll", "ws2_32.dll",
                    "mswsock.dll", "bcrypt.dll", "user32.dll"}


def listing_violations(names):
    """Returns what is wrong with the names in a zip, below its one folder."""
    found = [f"holds {name}, which it should not" for name in names if name not in WANTED and not ALSO.match(name)]
    return found + [f"lacks {name}" for name in WANTED if name not in names]


def bill_violations(text, libraries, names):
    """Returns what is wrong with a bill of materials that should list `libraries` and no others."""
    listed = {entry["name"]: entry for entry in json.loads(text)["components"]}
    expected = {library["name"] for library in libraries}
    found = [f"its bill of materials lists {name}, which is not inside" for name in listed if name not in expected]
    for library in libraries:
        name = library["name"]
        if not listed.get(name, {}).get("version"):
            found.append(f"its bill of materials has no version of {name}")
        if not library.get("headers_alone") and f"{DOC}libraries/{name}.txt" not in names:
            found.append(f"lacks the licence of {name}")
    return found


def imports(path):
    """Returns the names of the libraries that a program of Windows loads."""
    text = subprocess.run([OBJDUMP, "-p", path], capture_output=True, text=True, check=True).stdout
    return {name.lower() for name in re.findall(r"^\s*DLL Name: (\S+)", text, re.MULTILINE)}


def violations(path):
    match = NAME.match(os.path.basename(path))
    if not match:
        return [f"is named {os.path.basename(path)}, expected qsf-VERSION-windows-x64.zip"]
    folder = os.path.basename(path)[:-len(".zip")] + "/"
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as scratch:
        files = [name for name in archive.namelist() if not name.endswith("/")]
        found = [f"holds {name} outside {folder}" for name in files if not name.startswith(folder)]
        names = [name[len(folder):] for name in files if name.startswith(folder)]
        found += listing_violations(names)
        if any(line.startswith("lacks") for line in found):
            return found
        found += bill_violations(archive.read(folder + DOC + "sboms/qsf.cdx.json"), make_sbom.libraries_of("windows"),
                                 names)
        for name in PROGRAMS:
            program = archive.extract(folder + name, scratch)
            found += [f"{name} names {place.decode()}, which is a path of one machine"
                      for place in check_wheel.SOURCE_PATH.findall(archive.read(folder + name))]
            found += [f"{name} needs {library}, which is no part of Windows"
                      for library in sorted(imports(program) - SYSTEM_LIBRARIES)]
    return found


def main(arguments):
    if len(arguments) != 1:
        print("usage: check_windows_zip.py ZIP", file=sys.stderr)
        return 1
    found = violations(arguments[0])
    for line in found:
        print(f"{arguments[0]}: {line}")
    print(f"windows zip: {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
