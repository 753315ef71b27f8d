#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the documents to the tree and to the built tools.

    check_docs.py [--run] [--build DIR] [ROOT]

Checks every Markdown file: links and their anchors resolve, files named in `code` exist, headings
have text under them, and options of qsf tools in commands are options the built tool knows (its
--help). With --run it also executes the fenced blocks whose info string ends in `run`, from the
root of the repository with the built tools on PATH and an empty folder in $SCRATCH.
One line a violation: file:line: what is wrong. What could not be checked is said, never assumed.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

import repo_files

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(.*)$")
HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
TOP_FOLDERS = ("src", "include", "tools", "examples", "fuzz", "testdata", "models", "docs", "scripts",
               "cmake", "bindings", "packaging", ".ci")
TREE_PATH = re.compile(r"^(\./)?(%s)/[\w./*-]*$" % "|".join(re.escape(top) for top in TOP_FOLDERS))
HEADER_PATH = re.compile(r"^[a-z_]+(/[a-z_0-9]+)*/[a-z_0-9]+\.(h|cc)$")
TOOL = re.compile(r"(?:^|[\s/(])(qsf-[a-z]+)\b")
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z0-9-]*)")
TIMEOUT_S = 600


class Document:
    """A Markdown file taken apart: prose lines, fenced blocks, headings."""

    def __init__(self, path, text):
        self.path = path
        self.prose = []      # (line number, text)
        self.blocks = []     # (line number, info string, text)
        self.headings = []   # (line number, depth, title)
        self.violations = []
        fence, start, info, body = None, 0, "", []
        for number, line in enumerate(text.split("\n"), 1):
            match = FENCE.match(line)
            if fence is None and match:
                fence, start, info, body = match.group(1), number, match.group(2), []
            elif fence is not None and match and match.group(1).startswith(fence) and not match.group(2):
                self.blocks.append((start, info.strip(), "\n".join(body)))
                fence = None
            elif fence is not None:
                body.append(line)
            else:
                self.prose.append((number, line))
                heading = HEADING.match(line)
                if heading:
                    self.headings.append((number, len(heading.group(1)), heading.group(2)))
        if fence is not None:
            self.violations.append(f"{path}:{start}: code block is not closed")
        self.last_line = text.count("\n") + 1

    def anchors(self):
        """Returns the anchors of the headings, as code hosts make them."""
        seen, anchors = {}, set()
        for _, _, title in self.headings:
            slug = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).lower()).replace(" ", "-")
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            anchors.add(slug if count == 0 else f"{slug}-{count}")
        return anchors


def check_headings(document):
    """A heading with nothing before the next heading of its depth or above says nothing."""
    filled = {number for number, line in document.prose if line.strip() and not HEADING.match(line)}
    filled |= {number for number, _, _ in document.blocks}
    violations = []
    for index, (number, depth, title) in enumerate(document.headings):
        end = document.last_line + 1
        for later, later_depth, _ in document.headings[index + 1:]:
            if later_depth <= depth:
                end = later
                break
        if not any(number < line < end for line in filled):
            violations.append(f"{document.path}:{number}: heading \"{title}\" without text")
    return violations


def check_links(root, document, documents):
    violations = []
    for number, line in document.prose:
        for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = match.group(1) or match.group(2)
            if re.match(r"^[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            full = document.path if not path else os.path.normpath(
                os.path.join(os.path.dirname(document.path), path))
            where = f"{document.path}:{number}"
            if not os.path.exists(os.path.join(root, full)):
                violations.append(f"{where}: link to {target}: no such file {full}")
            elif anchor and full in documents and anchor not in documents[full].anchors():
                violations.append(f"{where}: link to {target}: no heading gives #{anchor}")
    return violations


def names_existing_file(root, document_path, name):
    """True when `name`, read from the root, from src/ or include/, or beside the page, exists."""
    name = name[2:] if name.startswith("./") else name
    folders = ("", "src", "include", os.path.dirname(document_path))
    return any(glob.glob(os.path.join(glob.escape(root), folder, name)) for folder in folders)


def check_named_files(root, document):
    violations = []
    for number, line in document.prose:
        for span in CODE_SPAN.findall(line):
            span = span.strip()
            if not (TREE_PATH.match(span) or HEADER_PATH.match(span)):
                continue
            if not names_existing_file(root, document.path, span.rstrip("/")):
                violations.append(f"{document.path}:{number}: names {span}, which does not exist")
    return violations


def commands_of(document):
    """Yields (line, command) for every line of code that could call a qsf tool."""
    for start, _, body in document.blocks:
        for offset, command in enumerate(body.replace("\\\n", "  ").split("\n")):
            yield start + 1 + offset, command
    for number, line in document.prose:
        for span in CODE_SPAN.findall(line):
            yield number, span


def check_options(document, help_of):
    """Checks the options in commands; help_of(tool) gives its help text, or None if not built."""
    violations, unchecked = [], set()
    for number, command in commands_of(document):
        for part in re.split(r"[|;&]", command):
            tool = TOOL.search(part)
            options = OPTION.findall(part[tool.end():]) if tool else []
            if not options:
                continue
            text = help_of(tool.group(1))
            if text is None:
                unchecked.add(tool.group(1))
                continue
            known = set(re.findall(r"--[a-z][a-z0-9-]*", text)) | {"--help", "--version"}
            for option in options:
                if option not in known:
                    violations.append(f"{document.path}:{number}: {tool.group(1)} has no {option}")
    return violations, unchecked


def bin_folders(root, build):
    if build:
        return [os.path.join(os.path.abspath(build), "bin")]
    return [os.path.join(root, "build", preset, "bin") for preset in ("release", "dev", "asan")]


def make_help_of(folders):
    """Returns a function from a tool's name to its --help text, None where it is not built."""
    cache = {}

    def help_of(tool):
        if tool not in cache:
            binary = next((os.path.join(folder, tool) for folder in folders
                           if os.access(os.path.join(folder, tool), os.X_OK)), None)
            cache[tool] = None if binary is None else subprocess.run(
                [binary, "--help"], capture_output=True, text=True, timeout=30).stdout
        return cache[tool]

    return help_of


def run_blocks(root, document, folders):
    """Executes the blocks marked `run`. Returns (violations, number executed)."""
    violations, count = [], 0
    for number, info, body in document.blocks:
        if info.split()[-1:] != ["run"]:
            continue
        count += 1
        with tempfile.TemporaryDirectory() as scratch:
            environment = dict(os.environ, SCRATCH=scratch)
            environment["PATH"] = os.pathsep.join(folders + [environment.get("PATH", "")])
            try:
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", body], cwd=root,
                                      env=environment, capture_output=True, text=True,
                                      timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                violations.append(f"{document.path}:{number}: block ran longer than {TIMEOUT_S} s")
                continue
        if done.returncode != 0:
            last = (done.stderr or done.stdout).strip().split("\n")[-1]
            violations.append(f"{document.path}:{number}: block failed ({done.returncode}): {last}")
    return violations, count


def check(root, build=None, run=False):
    """Returns (violations, number of documents, notes)."""
    paths = [path for path in repo_files.repository_files(root) if path.endswith(".md")]
    documents = {path: Document(path, repo_files.read_text(root, path)) for path in paths}
    folders = bin_folders(root, build)
    help_of = make_help_of(folders)
    violations, unchecked, executed = [], set(), 0
    for document in documents.values():
        violations += document.violations
        violations += check_headings(document)
        violations += check_links(root, document, documents)
        violations += check_named_files(root, document)
        found, missing = check_options(document, help_of)
        violations += found
        unchecked |= missing
        if run:
            found, count = run_blocks(root, document, folders)
            violations += found
            executed += count
    notes = [f"docs: options of {tool} not checked: it is not built" for tool in sorted(unchecked)]
    if run:
        notes.append(f"docs: {executed} blocks executed")
    return violations, len(paths), notes


def main():
    parser = argparse.ArgumentParser(description="Check the documents.")
    parser.add_argument("--run", action="store_true", help="execute the blocks marked run")
    parser.add_argument("--build", help="take the tools from this build folder")
    parser.add_argument("root", nargs="?", default=repo_files.repository_root())
    arguments = parser.parse_args()
    violations, count, notes = check(arguments.root, arguments.build, arguments.run)
    for note in notes:
        print(note)
    return repo_files.report("docs", violations, count)


if __name__ == "__main__":
    sys.exit(main())
