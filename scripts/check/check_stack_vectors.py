#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when code for Windows keeps wide vectors on the stack by moves that need an alignment.

    check_stack_vectors.py [--objdump PROGRAM] OBJECT...

Windows promises 16 bytes of alignment on the stack, and gcc keeps vectors of 32 and 64 bytes there
by vmovaps and the like (GCC bug 54412), which end the program where the stack lies otherwise. Wine's
stacks hide it. OBJECT is what objdump takes: a program, an object or an archive.

Prints one line per function with such a move. Exit status: 0 without one, 1 with one, 2 when there
was no code with wide vectors to look at.
"""

import argparse
import re
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
ALIGNED = re.compile(r"\bvmov(?:a[ps][sd]|dqa(?:32|64)?|ntdqa?|ntp[sd])\b\s+(.*)$")
STACK = re.compile(r"\((?:%r[sb]p)\b|\(,?%r[sb]p")
WIDE = re.compile(r"%[yz]mm\d")


def is_violation(line):
    """Whether a line of AT&T assembly is an aligned move of a wide vector from or to the stack."""
    match = ALIGNED.search(line)
    return bool(match and WIDE.search(match.group(1)) and STACK.search(match.group(1)))


def violations(text, name):
    """Returns (violations, number of lines with wide vectors) of what objdump -d printed."""
    function = "?"
    found = {}
    n_wide = 0
    for line in text.splitlines():
        match = FUNCTION.match(line)
        if match:
            function = match.group(1)
            continue
        n_wide += bool(WIDE.search(line))
        if is_violation(line):
            found.setdefault(function, line.split("\t")[-1].strip())
    return [f"{name}: {function}: {move}: needs a stack aligned beyond 16 bytes; assemble with "
            "-Wa,-muse-unaligned-vector-move" for function, move in found.items()], n_wide


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objdump", default="x86_64-w64-mingw32-objdump", help="default: %(default)s")
    parser.add_argument("objects", nargs="+", metavar="OBJECT")
    arguments = parser.parse_args()
    found = []
    n_wide = 0
    for name in arguments.objects:
        text = subprocess.run([arguments.objdump, "-d", "--no-show-raw-insn", name], check=True,
                              capture_output=True, text=True).stdout
        some, n = violations(text, name)
        found += some
        n_wide += n
    for line in found:
        print(line)
    if n_wide == 0:
        print("stack vectors: nothing with wide vectors was looked at", file=sys.stderr)
        return 2
    print(f"stack vectors: {n_wide} lines with wide vectors, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
