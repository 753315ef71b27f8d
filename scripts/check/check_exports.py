#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when libqsf.so does not export what the releases of its C interface promised.

    check_exports.py LIBQSF_SO ABI_FOLDER HEADERS

ABI_FOLDER holds VERSION.symbols for each node QSF_VERSION of the library, one name a line, and for
a version that was released its headers, VERSION/qsf/*.h. Every node exports the names of its list
and no others, the lists of released versions hold what their headers declare, and all lists
together what the headers of the folder HEADERS declare.

Prints one line per violation. Exit status: 0 without a violation, 1 with one, 2 when there was
nothing to check.
"""

import os
import re
import subprocess
import sys

DECLARED = re.compile(r"^QSF_API\s[^;(]*?\b(qsf_\w+)\(", re.MULTILINE)
# Absolute symbols ("A") are the nodes themselves.
EXPORTED = re.compile(r"^[0-9a-f]+ [B-Zb-z] ([^@\s]+)(?:@{1,2}(\S+))?$", re.MULTILINE)


def declared_names(headers):
    """Returns the functions that the headers of a folder declare."""
    names = set()
    for name in os.listdir(headers):
        if name.endswith(".h"):
            with open(os.path.join(headers, name), encoding="utf-8") as file:
                names.update(DECLARED.findall(file.read()))
    return names


def exported_names(output):
    """Returns {node: names} of what `nm -D --defined-only --with-symbol-versions` printed."""
    nodes = {}
    for name, node in EXPORTED.findall(output):
        nodes.setdefault(node, set()).add(name)
    return nodes


def differences(what, found, expected):
    return ([f"{what}: lacks {name}" for name in sorted(expected - found)]
            + [f"{what}: has {name}, which is not expected" for name in sorted(found - expected)])


def violations(output, folder, headers):
    lists = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".symbols"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lists[name.removesuffix(".symbols")] = set(file.read().split())
    exported = exported_names(output)
    found = [f"node {node or '(none)'}: no list in {folder}"
             for node in sorted(set(exported) - {f"QSF_{version}" for version in lists})]
    for version, names in lists.items():
        found += differences(f"node QSF_{version}", exported.get(f"QSF_{version}", set()), names)
        released = os.path.join(folder, version, "qsf")
        if os.path.isdir(released):
            found += differences(f"{version}.symbols", names, declared_names(released))
    found += differences("the lists", set().union(*lists.values()), declared_names(headers))
    return found


def main(arguments):
    if len(arguments) != 3 or not os.path.isfile(arguments[0]):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    library, folder, headers = arguments
    output = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                            capture_output=True, text=True, check=True).stdout
    found = violations(output, folder, headers)
    print("".join(line + "\n" for line in found) + f"exports: {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
