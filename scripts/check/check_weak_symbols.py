#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when an object of a per-ISA source defines a weak symbol.

    check_weak_symbols.py [--sources LIST] PATH...

PATH is an object, or a folder searched for objects. Objects of sources named *_<isa>.cc are
checked. LIST is a file that CMake writes (isa_sources.txt in the build folder), with the path of
such a source on each line; each must have its object among those found. An inline function of a
shared header becomes a weak definition in such an object, compiled with the tier's instructions.
The linker may choose that definition for the whole program, which then fails on older CPUs.

Prints one line per violation: object: symbol. Exit status: 0 without a violation, 1 with one, 2 when
something could not be checked: no object, no object of a listed source, or an object in which nm
sees no definition (as with link-time optimisation).
"""

import argparse
import os
import re
import subprocess
import sys

ISA_OBJECT = re.compile(
    r"_(scalar|sse42|avx2|avxvnni|avx512|avx512vnni|avx512vbmi|amx|neon|neondot|neoni8mm|sve|wasm)\.(cc\.)?o(bj)?$")
SYMBOL = re.compile(r"^[0-9a-fA-F]*\s*([A-Za-z])\s+(.+)$")
WEAK_TYPES = "WwVvu"
# Pointers to the exception personality, data that is the same in every object.
HARMLESS = re.compile(r"^DW\.ref\.")


def find_objects(paths):
    """Returns the per-ISA objects among `paths` and below those that are folders, sorted."""
    found = set()
    for path in paths:
        if os.path.isdir(path):
            for folder, _, names in os.walk(path):
                found.update(os.path.join(folder, n) for n in names if ISA_OBJECT.search(n))
        elif ISA_OBJECT.search(os.path.basename(path)):
            found.add(path)
    return sorted(found)


def defined_symbols(path):
    """Returns (type, name) of every symbol that the object defines."""
    text = subprocess.run([os.environ.get("NM", "nm"), "--defined-only", "-C", path], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [m.groups() for m in map(SYMBOL.match, text.splitlines()) if m]


def weak_definitions(symbols):
    return [name for kind, name in symbols if kind in WEAK_TYPES and not HARMLESS.match(name)]


def sources_without_object(sources, objects):
    """Returns the sources, relative to their folder, that none of the objects was made from."""
    made = [re.sub(r"(\.cc)?\.o(bj)?$", ".cc", path) for path in objects]
    return [source for source in sources
            if not any(("/" + path).endswith("/" + source) for path in made)]


def main(arguments):
    parser = argparse.ArgumentParser(prog="check_weak_symbols.py", description=__doc__.split("\n")[0])
    parser.add_argument("--sources", metavar="LIST", help="file that lists the per-ISA sources")
    parser.add_argument("paths", metavar="PATH", nargs="+", help="an object, or a folder of objects")
    options = parser.parse_args(arguments)
    objects = find_objects(options.paths)
    if not objects:
        print("check_weak_symbols: no per-ISA object under", *options.paths, file=sys.stderr)
        return 2
    if options.sources:
        with open(options.sources, encoding="utf-8") as file:
            sources = file.read().split()
        missing = sources_without_object(sources, objects)
        if missing or not sources:
            for source in missing or [f"{options.sources} lists no source"]:
                print(f"check_weak_symbols: no object: {source}", file=sys.stderr)
            return 2
    status = 0
    for path in objects:
        symbols = defined_symbols(path)
        if not any(kind in "TtWwVvu" for kind, _ in symbols):
            print(f"{path}: nm sees no definition; check objects built without link-time optimisation",
                  file=sys.stderr)
            return 2
        for name in weak_definitions(symbols):
            print(f"{path}: weak definition: {name}")
            status = 1
    if status == 0:
        print(f"check_weak_symbols: {len(objects)} objects, no weak definition")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
