#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes libraries to link with, in place of the C library's, so that what is linked runs with an older one.

    make_glibc_stubs.py --max VERSION --compiler GCC --to FOLDER

A symbol of the GNU C library has a version for each time that its meaning changed or that it moved
between libraries, and a new library keeps the old ones. A linker takes the newest. The libraries
made here hold, of each symbol of the compiler's own C library, the newest version that is not
above VERSION (as 2.28), and nothing else: a symbol that is younger cannot be linked at all, which
the linker says by name. They have no code and are for linking alone.

Until 2.33 threads were a library of their own. Their symbols go into a stub of that, so that a
system of that time loads it.

FOLDER gets libc.so, libm.so and libpthread.so for -lc, -lm and -lpthread, and the stubs that these
name. Exit status: 0, or 1 with a line that says what is wrong.
"""

import argparse
import os
import re
import subprocess
import sys

# Number, address, size, type, binding, visibility, section, name@version; "@@" marks the newest.
DEFINED = re.compile(r"^\s*\d+: [0-9a-f]+\s+(\w+) (\w+)\s+\w+\s+\w+\s+(?!UND)\S+ (\w+)@@?(GLIBC_[\d.]+)\s*$", re.MULTILINE)
LIBRARIES = ("libc.so.6", "libm.so.6")
# What has moved into libc.so.6 since, by the beginnings of names.
MOVED = {"libpthread.so.0": ("pthread_", "__pthread_", "sem_"),
         "libdl.so.2": ("dl",),
         "librt.so.1": ("aio_", "lio_", "mq_", "shm_", "timer_")}


def version_key(text):
    """Returns 'GLIBC_2.28' or '2.28' as numbers that compare: (2, 28)."""
    return tuple(int(part) for part in text.removeprefix("GLIBC_").split("."))


def parse_symbols(output):
    """Returns {name: {version: (kind, size)}} of what readelf -W --dyn-syms printed."""
    symbols = {}
    for size, kind, name, version in DEFINED.findall(output):
        if kind in ("FUNC", "IFUNC", "OBJECT", "NOTYPE"):
            symbols.setdefault(name, {})[version] = ("OBJECT" if kind == "OBJECT" else "FUNC", int(size, 0))
    return symbols


def choose(symbols, library, limit):
    """Returns {library: [(name, version, kind, size)]} of what a library of version `limit` had."""
    chosen = {}
    for name, versions in sorted(symbols.items()):
        old = [version for version in versions if version_key(version) <= limit]
        if not old:
            continue
        newest = max(old, key=version_key)
        home = library
        if len(old) < len(versions) and library == "libc.so.6":
            home = next((other for other, starts in MOVED.items() if name.startswith(starts)), library)
        chosen.setdefault(home, []).append((name, newest, *versions[newest]))
    return chosen


def assembly(entries):
    """Returns (assembler source, version script) of a stub."""
    lines, nodes = [".data"], {}
    for name, version, kind, size in entries:
        nodes.setdefault(version, []).append(name)
        bytes_held = size if kind == "OBJECT" else 0
        lines += [f".globl {name}", f".type {name}, %{kind.lower().replace('func', 'function')}",
                  f".size {name}, {bytes_held}", f"{name}: .zero {max(bytes_held, 1)}"]
    script = "".join(f"{version} {{ global: {'; '.join(names)}; local: *; }};\n"
                     for version, names in sorted(nodes.items(), key=lambda node: version_key(node[0])))
    return "\n".join(lines) + "\n", script


def run(arguments, **options):
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def file_of(compiler, name):
    """Returns where the compiler finds a library or program."""
    found = run([compiler, "-print-file-name=" + name]).strip()
    if not os.path.isabs(found):
        raise RuntimeError(f"{compiler} finds no {name}; install the C library's development package")
    return os.path.realpath(found)


def make_stub(compiler, folder, library, entries):
    source, script = assembly(entries)
    paths = {ending: os.path.join(folder, library + ending) for ending in (".s", ".map")}
    for ending, text in ((".s", source), (".map", script)):
        with open(paths[ending], "w", encoding="ascii") as file:
            file.write(text)
    run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library}", "-Wl,--build-id=none",
         f"-Wl,--version-script={paths['.map']}", "-o", os.path.join(folder, library), paths[".s"]])
    for path in paths.values():
        os.remove(path)


def main(arguments):
    parser = argparse.ArgumentParser(description="Make stubs of an older C library.")
    parser.add_argument("--max", required=True, help="version of the C library, as 2.28")
    parser.add_argument("--compiler", required=True, help="gcc that links with the stubs")
    parser.add_argument("--to", required=True, help="folder for the stubs; made if missing")
    options = parser.parse_args(arguments)
    limit = version_key(options.max)
    os.makedirs(options.to, exist_ok=True)
    try:
        compiler = options.compiler
        machine = run([compiler, "-dumpmachine"]).split("-", maxsplit=1)[0]
        loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[machine]
        stubs = {}
        for library in (*LIBRARIES, loader):
            output = run(["readelf", "-W", "--dyn-syms", file_of(compiler, library)], env=dict(os.environ, LC_ALL="C"))
            for home, entries in choose(parse_symbols(output), library, limit).items():
                stubs.setdefault(home, []).extend(entries)
        missing = [library for library in (*LIBRARIES, loader, "libpthread.so.0") if not stubs.get(library)]
        if missing:
            raise RuntimeError(f"no symbol of version {options.max} or older in {missing[0]}")
        for library, entries in stubs.items():
            make_stub(compiler, options.to, library, entries)
        names = {"libc.so": ["libc.so.6", file_of(compiler, "libc_nonshared.a"), "AS_NEEDED(libpthread.so.0)",
                             *(f"AS_NEEDED({other})" for other in ("libdl.so.2", "librt.so.1") if other in stubs),
                             f"AS_NEEDED({loader})"],
                 "libm.so": ["libm.so.6"], "libpthread.so": ["libpthread.so.0"]}
        for name, members in names.items():
            with open(os.path.join(options.to, name), "w", encoding="ascii") as file:
                file.write(f"GROUP ( {' '.join(members)} )\n")
    except (RuntimeError, KeyError, OSError) as failure:
        print(f"make_glibc_stubs: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
