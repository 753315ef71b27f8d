#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that every #include "..." is allowed by src/layers.txt, and that basenames are unique.

    check_layers.py [ROOT]

The table of docs/architecture.md must say the same as src/layers.txt.
Prints one line per violation: file:line: what is wrong; what is allowed. Exit status 0 when there
is none. The public header may also be included with <>, as its users do.
Conditional compilation is ignored: an include counts in every configuration.
"""

import os
import re
import sys

import repo_files

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
TABLE_LINE = re.compile(r"^(\d+|extra|tests)\s+(\S+)\s*:\s*(.*)$")
PAGE_ROW = re.compile(r"^\| (\d+) \| `src/(\w+)/` \| .* \|\s*([\w ]*?)\s*\|$")
TEST_FILE = re.compile(r"_test\.(cc|c)$|(^|/)testing/")
BELOW = re.compile(r"^levels (\d+) to (\d+) except ([\w ]+)$")  # the short form of a long list
ISA_FILE = re.compile(r"_(sse42|avx2|avxvnni|avx512|avx512vnni|avx512vbmi|amx|neon|neondot|neoni8mm|sve|wasm)\.cc$")
OUTSIDE_SRC = ("tools", "tests", "examples", "fuzz")
# Many folders have one of these, and no source includes them by name.
SHARED_BASENAMES = {"CMakeLists.txt", "README.md", "__init__.py", ".gitignore"}


class Layers:
    """The table: level and allowed folders by folder, and the two kinds of additions."""

    def __init__(self):
        self.level = {}
        self.allowed = {}
        self.extra = {}
        self.tests = {}
        self.violations = []

    def allowed_for(self, path, folder):
        allowed = set(self.allowed.get(folder, ())) | {folder}
        for prefix, folders in self.extra.items():
            if path.startswith(prefix):
                allowed |= folders
        if TEST_FILE.search(path):
            allowed |= self.tests.get(folder, set())
        return allowed


def read_layers(text, name="src/layers.txt"):
    """Parses the table and checks that it is acyclic: includes point down, or up the page."""
    layers = Layers()
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = TABLE_LINE.match(line)
        if not match:
            layers.violations.append(f"{name}:{number}: not LEVEL FOLDER : FOLDERS, nor extra, nor tests")
            continue
        kind, subject, folders = match.group(1), match.group(2), set(match.group(3).split())
        for folder in sorted(folders - set(layers.level)):
            layers.violations.append(
                f"{name}:{number}: {subject} names {folder}, which no line above defines")
        if kind == "extra":
            layers.extra[subject] = folders
        elif kind == "tests":
            layers.tests[subject] = folders
        elif subject in layers.level:
            layers.violations.append(f"{name}:{number}: {subject} is defined twice")
        else:
            level = int(kind)
            for folder in sorted(folders & set(layers.level)):
                if layers.level[folder] > level or (layers.level[folder] == level and level != 0):
                    layers.violations.append(
                        f"{name}:{number}: {subject} (level {level}) may not name {folder} "
                        f"(level {layers.level[folder]}): only lower levels")
            layers.level[subject] = level
            layers.allowed[subject] = folders
    return layers


def folder_of(path):
    """Returns the folder of the table that a source file belongs to, or None."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[0] == "include" and len(parts) > 2:
        return parts[1]
    if parts[0] in OUTSIDE_SRC and len(parts) > 1:
        return parts[0]
    return None


def resolve(included, path, files):
    """Returns the repository path that an include names, or None."""
    beside = "/".join(path.split("/")[:-1] + [included])
    candidates = ["src/" + included, "include/" + included]
    if not path.startswith("src/"):
        candidates.insert(0, beside)
        candidates.append(included)
    return next((candidate for candidate in candidates if candidate in files), None)


def check_include(layers, path, number, included, files):
    """Returns the violation of one quoted include, or None."""
    where = f"{path}:{number}"
    folder = folder_of(path)
    target = resolve(included, path, files)
    if target is None:
        return (f'{where}: "{included}" is no file of this repository; '
                'paths start at src/ or include/, and other libraries go in <>')
    target_folder = folder_of(target)
    allowed = layers.allowed_for(path, folder)
    names = " ".join(sorted(allowed))
    if target_folder not in allowed:
        return f'{where}: {folder} may not include "{included}"; allowed: {names}'
    is_test = TEST_FILE.search(path)
    if "/testing/" in target and not is_test and folder != "fuzz":
        return f'{where}: "{included}" is test support; only tests and fuzzers may include it'
    if ISA_FILE.search(path) and not is_test:
        beside = os.path.dirname(target) == os.path.dirname(path)
        if not (beside or target_folder == "quant" or os.path.dirname(target) == "src/kernels"):
            return (f'{where}: a file built for one instruction set may not include "{included}"; '
                    "allowed: headers beside it, kernels/*.h, quant/*.h (CONTRIBUTING.md says why)")
    return None


def check_file(layers, path, text, files):
    violations = []
    folder = folder_of(path)
    if folder not in layers.level:
        return [f"{path}:1: folder {folder} has no line in src/layers.txt"]
    for number, line in enumerate(repo_files.without_comments(text).splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        public = "include/" + match.group(2) in files
        if match.group(1) == '"' or public:
            violation = check_include(layers, path, number, match.group(2), files)
            if violation:
                violations.append(violation)
        elif match.group(2).startswith(("gtest/", "gmock/")) and not TEST_FILE.search(path):
            violations.append(f"{path}:{number}: <{match.group(2)}> outside a test")
        elif "src/" + match.group(2) in files:
            violations.append(f'{path}:{number}: <{match.group(2)}> is ours: write "{match.group(2)}"')
    return violations


def check_basenames(paths):
    """Returns one violation for every source file whose basename another file has."""
    first = {}
    violations = []
    for path in paths:
        name = os.path.basename(path)
        if name in SHARED_BASENAMES or repo_files.is_data(path):
            continue
        if name in first:
            violations.append(f"{path}:1: basename also used by {first[name]}; basenames are unique")
        first.setdefault(name, path)
    return violations


def folders_said(layers, text):
    """Returns the folders in a cell: a list, or "levels A to B except" some."""
    short = BELOW.match(text)
    if not short:
        return set(text.split())
    first, last = int(short.group(1)), int(short.group(2))
    return {name for name, level in layers.level.items() if first <= level <= last} - set(short.group(3).split())


def check_page(layers, text, name="docs/architecture.md"):
    """Compares the rows | level | `src/folder/` | what | may include | of the page to the table."""
    violations = []
    for number, line in enumerate(text.splitlines(), 1):
        match = PAGE_ROW.match(line)
        if not match:
            continue
        folder = match.group(2)
        said = (int(match.group(1)), folders_said(layers, match.group(3)))
        held = (layers.level.get(folder), layers.allowed.get(folder, set()))
        if said != held:
            violations.append(f"{name}:{number}: {folder} differs from src/layers.txt, which has: "
                              f"{held[0]} {folder} : {' '.join(sorted(held[1]))}")
    return violations


def check(root):
    """Returns (violations, number of files looked at)."""
    paths = repo_files.repository_files(root)
    files = set(paths)
    layers = read_layers(repo_files.read_text(root, "src/layers.txt"))
    violations = list(layers.violations)
    page = "docs/architecture.md"
    if page in files:
        violations += check_page(layers, repo_files.read_text(root, page), page)
    sources = [path for path in paths if repo_files.is_code(path) and folder_of(path)]
    for path in sources:
        violations += check_file(layers, path, repo_files.read_text(root, path), files)
    violations += check_basenames(paths)
    return violations, len(sources)


if __name__ == "__main__":
    ROOT = sys.argv[1] if len(sys.argv) > 1 else repo_files.repository_root()
    sys.exit(repo_files.report("layers", *check(ROOT)))
