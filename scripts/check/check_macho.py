#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when a program or library for macOS is not what docs/decisions/064-macos.md says.

    check_macho.py [--exports MAP] FILE

It is for AArch64 and macOS 13.0, loads libraries of the system alone, and, with --exports, defines
every function that MAP (a version script of GNU ld) lists. Prints one line per violation. Exit
status: 0 without a violation, 1 with one, 2 for a file that is none of macOS.

Based on: mach-o/loader.h and mach-o/nlist.h of Apple.
"""

import argparse
import re
import struct
import sys

MAGIC, ARM64, MACOS = 0xFEEDFACF, 0x0100000C, 1
LC_SYMTAB, LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB, LC_REEXPORT_DYLIB, LC_BUILD_VERSION = 2, 0xC, 0x80000018, 0x8000001F, 0x32
SYSTEM = {"/usr/lib/libSystem.B.dylib", "/usr/lib/libedit.3.dylib"}
MINIMUM = (13, 0)
EXTERNAL, TYPE, UNDEFINED = 0x01, 0x0E, 0x00


class NotMacos(Exception):
    """What is wrong with the file, in words."""


def commands_of(data):
    """Yields (kind, bytes) of every load command."""
    if len(data) < 32 or struct.unpack_from("<I", data)[0] != MAGIC:
        raise NotMacos("no 64-bit Mach-O file")
    n_commands = struct.unpack_from("<I", data, 16)[0]
    at = 32
    for _ in range(n_commands):
        if at + 8 > len(data):
            raise NotMacos("ends within its load commands")
        kind, size = struct.unpack_from("<II", data, at)
        if size < 8 or at + size > len(data):
            raise NotMacos(f"a load command of {size} bytes")
        yield kind, data[at:at + size]
        at += size


def text_at(data, at):
    return data[at:data.index(b"\0", at)].decode("utf-8")


def defined_names(data, command):
    """Returns the names of external symbols that the file defines."""
    at, n_symbols, strings = struct.unpack_from("<III", command, 8)
    names = set()
    for i in range(n_symbols):
        name, kind = struct.unpack_from("<IB", data, at + 16 * i)
        if kind & EXTERNAL and kind & TYPE != UNDEFINED:
            names.add(text_at(data, strings + name))
    return names


def violations(data, exports):
    """Returns what is wrong with a file, a text each; `exports` are names of C."""
    found = []
    libraries, builds, names = [], [], set()
    for kind, command in commands_of(data):
        if kind in (LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB, LC_REEXPORT_DYLIB):
            libraries.append(text_at(command, struct.unpack_from("<I", command, 8)[0]))
        elif kind == LC_BUILD_VERSION:
            builds.append(struct.unpack_from("<II", command, 8))
        elif kind == LC_SYMTAB:
            names = defined_names(data, command)
    if struct.unpack_from("<I", data, 4)[0] != ARM64:
        found.append("is not for AArch64")
    if [(platform, version >> 16, version >> 8 & 0xFF) for platform, version in builds] != [(MACOS, *MINIMUM)]:
        found.append(f"is not for macOS {MINIMUM[0]}.{MINIMUM[1]}: {builds}")
    if "/usr/lib/libSystem.B.dylib" not in libraries:
        found.append("does not load libSystem")
    found += [f"loads {name}, which is not of the system" for name in libraries if name not in SYSTEM]
    found += [f"does not define {name}" for name in sorted(exports) if "_" + name not in names]
    return found


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exports", metavar="MAP")
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    exports = set()
    if options.exports:
        with open(options.exports, encoding="ascii") as file:
            exports = set(re.findall(r"^ +(qsf_[a-z0-9_]+);$", file.read(), re.MULTILINE))
        if not exports:
            parser.error(f"{options.exports} lists no function")
    with open(options.file, "rb") as file:
        data = file.read()
    try:
        found = violations(data, exports)
    except (NotMacos, struct.error, ValueError) as error:
        print(f"{options.file}: {error}")
        return 2
    for violation in found:
        print(f"{options.file}: {violation}")
    if not found:
        print(f"check_macho: {options.file}: {len(data)} bytes, {len(exports)} functions, as it should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
