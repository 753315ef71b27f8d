#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when an object of a tier without AVX-512 holds an instruction of AVX-512.

    check_encodings.py [--objdump PROGRAM] FOLDER...

Objects below FOLDER of sources named *_sse42.cc, *_avx2.cc and *_avxvnni.cc are disassembled. An
instruction whose first byte is 0x62 has the prefix of AVX-512 (EVEX), and ends the program on a CPU
without it. Builds for tests have products of avxvnni that hold such on purpose
(src/kernels/dot_bytes_avxvnni.h); those are passed over where another folder has the object that is
shipped.

Prints one line per object with such an instruction. Exit status: 0 without one, 1 with one, 2 when
an object could not be checked, or no object of avxvnni has a dot product.
"""

import argparse
import os
import re
import subprocess
import sys

OBJECT = re.compile(r"_(sse42|avx2|avxvnni)\.cc\.o(bj)?$")
INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t([0-9a-f]{2}) [0-9a-f ]*\t(.*)$")
DOT = re.compile(r"\bvpdpbusd\b")


def objects_below(folders):
    """Returns the objects to look at: of two with one name the one in the last folder."""
    found = {}
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                if OBJECT.search(name):
                    found[name] = os.path.join(path, name)
    return [found[name] for name in sorted(found)]


def look_at(text):
    """Returns (instructions, those of AVX-512, dot products in the prefix of AVX) of what objdump -d
    printed."""
    n_all = n_dots = 0
    evex = []
    for match in map(INSTRUCTION.match, text.splitlines()):
        if not match:
            continue
        n_all += 1
        if match.group(1) == "62":
            evex.append(match.group(2))
        elif DOT.search(match.group(2)):
            n_dots += 1
    return n_all, evex, n_dots


def main(arguments):
    parser = argparse.ArgumentParser(prog="check_encodings.py", description=__doc__.split("\n")[0])
    parser.add_argument("--objdump", default="objdump", help="default: %(default)s")
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="searched for objects")
    options = parser.parse_args(arguments)
    status = n_dots = 0
    objects = objects_below(options.folders)
    for path in objects:
        text = subprocess.run([options.objdump, "-d", "--insn-width=16", path], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        n_all, evex, dots = look_at(text)
        n_dots += dots
        if n_all == 0:
            print(f"check_encodings: no instruction in {path}", file=sys.stderr)
            return 2
        if evex:
            print(f"{path}: {len(evex)} instructions of AVX-512, the first: {evex[0]}")
            status = 1
    if status == 0 and n_dots == 0:
        print("check_encodings: no object of avxvnni with a dot product", file=sys.stderr)
        return 2
    if status == 0:
        print(f"check_encodings: {len(objects)} objects, {n_dots} dot products, no AVX-512")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
