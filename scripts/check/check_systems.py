#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that only files named for an operating system know one, by src/systems.txt.

    check_systems.py [ROOT]

Also that sources do not use the names whose results differ between C libraries, or that older
standard libraries lack, but this project's own. Prints one line per violation: file:line: what is
wrong; what to do. Exit status 0 when there is none. Conditional compilation is ignored.
"""

import os
import re
import sys

import repo_files

RULES = "src/systems.txt"
LINE = re.compile(r"^(system|anywhere|left|instead|except)\s*([^:]*?)\s*(?::\s*(.*))?$")
INCLUDE = re.compile(r'^\s*#\s*include\s*<([^>]+)>')
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
TEST_FILE = re.compile(r"_test\.(cc|c)$|(^|/)testing/")
LOOKED_AT = ("src/", "include/", "tools/", "examples/", "fuzz/")


class Systems:
    """The rules: what each system has, and what stands for names of the standard library."""

    def __init__(self):
        self.has = {}  # system: headers and paths
        self.may_use = {}  # system: systems
        self.anywhere = set()
        self.left = {}  # path: line
        self.instead = {}  # name: header
        self.allowed = {}  # path: names
        self.violations = []


def read_systems(text, name=RULES):
    systems = Systems()
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = LINE.match(line)
        words = (match.group(2) or "").split() if match else []
        values = (match.group(3) or "").split() if match else []
        kind = match.group(1) if match else None
        right = {"system": len(words) in (1, 2) and values, "anywhere": not words and values,
                 "left": len(words) == 1 and not values, "instead": len(words) == 1 and values,
                 "except": len(words) == 1 and values}.get(kind)
        if not right:
            systems.violations.append(f"{name}:{number}: no rule: its first lines say which there are")
        elif kind == "system":
            systems.has.setdefault(words[0], set()).update(values)
            systems.may_use.setdefault(words[0], set()).update(words)
        elif kind == "anywhere":
            systems.anywhere.update(values)
        elif kind == "left":
            systems.left[words[0]] = number
        elif kind == "instead":
            systems.instead.update({value: words[0] for value in values})
        else:
            systems.allowed[words[0]] = set(values)
    return systems


def systems_of_file(systems, path):
    """Returns the systems that a file may know by its name."""
    for system, may_use in systems.may_use.items():
        if path.endswith(f"_{system}.cc"):
            return may_use
    return set()


def system_of_header(systems, header):
    """Returns the system that has a header: the one that names it, before one that names its folder."""
    for system, names in systems.has.items():
        if header in names:
            return system
    folder = header.split("/")[0] + "/"
    return next((system for system, names in systems.has.items() if folder in names), None)


def system_of_literal(systems, literal):
    """Returns the system whose files a string literal names, or None."""
    for system, names in systems.has.items():
        for name in names:
            if name.startswith("/") and re.match(re.escape(name) + r"(/|$)", literal):
                return system
    return None


def uses_of_systems(systems, text):
    """Yields (line number, system, what) for what only a system has; None for an unknown header."""
    for number, line in enumerate(repo_files.without_comments(text).splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            header = match.group(1)
            system = system_of_header(systems, header)
            if system or (header.endswith(".h") and header not in systems.anywhere):
                yield number, system, f"<{header}>"
            continue
        for literal in LITERAL.findall(line):
            system = system_of_literal(systems, literal[1:-1])
            if system:
                yield number, system, literal


def check_file(systems, path, text, files):
    violations = []
    may_know = systems_of_file(systems, path)
    known = False
    for number, system, what in uses_of_systems(systems, text):
        if system is None:
            if "include/" + what[1:-1] in files:
                continue
            violations.append(f"{path}:{number}: {what} has no line in {RULES}: of a system, or for anywhere?")
        elif system not in may_know:
            known = True
            if path not in systems.left:
                violations.append(f"{path}:{number}: {what} is for files named *_{system}.cc: move what needs it "
                                  "there, behind a header without systems")
    if path in systems.left and not known:
        violations.append(f"{RULES}:{systems.left[path]}: {path} has no headers of systems any more: remove the line")
    if path.startswith("src/"):
        violations += check_names(systems, path, text)
    return violations


def check_names(systems, path, text):
    """Returns the violations of names that have a substitute."""
    violations = []
    allowed = systems.allowed.get(path, set())
    if not any(name in text for name in systems.instead):
        return violations
    code = repo_files.without_comments(text, keep_strings=False)
    for name, header in systems.instead.items():
        if name in allowed or os.path.splitext(path)[0] == "src/" + os.path.splitext(header)[0]:
            continue
        for match in re.finditer(re.escape(name) + r"\b", code):
            number = code.count("\n", 0, match.start()) + 1
            violations.append(f'{path}:{number}: {name}: use that of "{header}", which says why')
    return violations


def check(root):
    """Returns (violations, number of files looked at)."""
    paths = repo_files.repository_files(root)
    systems = read_systems(repo_files.read_text(root, RULES))
    violations = list(systems.violations)
    sources = [path for path in paths if path.startswith(LOOKED_AT) and repo_files.is_code(path)
               and not TEST_FILE.search(path)]
    for path in sources:
        violations += check_file(systems, path, repo_files.read_text(root, path), set(paths))
    for path in [*systems.left, *systems.allowed]:
        if path not in sources:
            violations.append(f"{RULES}:{systems.left.get(path, 1)}: {path} is no source: remove the line")
    return violations, len(sources)


if __name__ == "__main__":
    ROOT = sys.argv[1] if len(sys.argv) > 1 else repo_files.repository_root()
    sys.exit(repo_files.report("systems", *check(ROOT)))
