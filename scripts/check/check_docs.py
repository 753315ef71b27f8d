#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the documents against the tree and the built programs.

    check_docs.py [--run] [--build DIR] [ROOT]

Checks every Markdown file: links and their anchors resolve, files named in `code` exist, headings
have text under them, pages keep to their limits of words and lines, and options of `qsf COMMAND`
and of `qsf-*` tools are options that the built program has (its --help). With --run it also
executes the fenced blocks whose info string ends in `run`, from the root of the repository, with
the built programs on PATH and an empty folder in $SCRATCH.
Prints one line per violation: file:line: what is wrong. Prints a note for every check that could
not be made.
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
               "cmake", "python", "packaging", ".ci")
TREE_PATH = re.compile(r"^(\./)?(%s)/[\w./*-]*$" % "|".join(re.escape(top) for top in TOP_FOLDERS))
HEADER_PATH = re.compile(r"^[a-z_]+(/[a-z_0-9]+)*/[a-z_0-9]+\.(h|cc)$")
COMMANDS = ("run", "chat", "convert", "inspect", "perplexity", "bench", "parity", "cache", "serve")
TOOL = re.compile(r"(?:^|[\s/(])(qsf-[a-z]+|qsf +(?:%s))(?![\w-])" % "|".join(COMMANDS))
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z0-9-]*)")
TIMEOUT_S = 600

URL = re.compile(r"https?://[^\s)>\]]+")
GENERATED = re.compile(r"<!-- generated: \w+ -->\n.*?<!-- end -->\n", re.DOTALL)
MAX_PAGE_WORDS = 2000
MAX_ALL_WORDS = 62000
MAX_LINE = 100  # characters; an address cannot be broken and does not count
MAX_LINES = {"README.md": 70}
MAX_ENTRIES = {"docs/glossary.md": 70}  # rows of tables


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
    """Every heading needs text before the next heading of its depth or above."""
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


def table_rows(lines):
    """Returns the number of rows in tables, heads and the lines below them left out."""
    count, head = 0, True
    for line in lines:
        if not line.startswith("|"):
            head = True
        elif head:
            head = False
        elif not re.match(r"^\|[\s|:-]+$", line):
            count += 1
    return count


def check_limits(path, text):
    """Returns where a page exceeds the limits of words, lines and characters."""
    violations = []
    lines = text.rstrip("\n").split("\n")
    for number, line in enumerate(lines, 1):
        length = len(URL.sub("", line))
        if length > MAX_LINE:
            violations.append(f"{path}:{number}: line of {length} characters, limit {MAX_LINE}")
    n_words = len(text.split())
    if n_words > MAX_PAGE_WORDS:
        violations.append(f"{path}:1: {n_words} words, limit {MAX_PAGE_WORDS}; split the page")
    if len(lines) > MAX_LINES.get(path, len(lines)):
        violations.append(f"{path}:1: {len(lines)} lines, limit {MAX_LINES[path]}")
    n_rows = table_rows(lines)
    if n_rows > MAX_ENTRIES.get(path, n_rows):
        violations.append(f"{path}:1: {n_rows} entries, limit {MAX_ENTRIES[path]}")
    return violations


def check_all_words(texts):
    """Returns a violation when all documents together have too many words.

    Generated tables do not count: they grow with the code, no one writes them, and no one could
    shorten them.
    """
    texts = {path: GENERATED.sub("", text) for path, text in texts.items()}
    n_words = sum(len(text.split()) for text in texts.values())
    if n_words <= MAX_ALL_WORDS:
        return []
    largest = max(texts, key=lambda path: len(texts[path].split()))
    return [f"{largest}:1: all Markdown together has {n_words} words, limit {MAX_ALL_WORDS}; this page has most"]


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
    """Checks the options in commands. help_of("qsf run") or help_of("qsf-run") gives the help text,
    or None where the program is not built."""
    violations, unchecked = [], set()
    for number, command in commands_of(document):
        for part in re.split(r"[|;&]", command):
            tool = TOOL.search(part)
            options = OPTION.findall(part[tool.end():]) if tool else []
            if not options:
                continue
            name = " ".join(tool.group(1).split())
            text = help_of(name)
            # A command of a command, such as `qsf parity diff`, has options of its own.
            word = re.match(r"\s+([a-z]+)\b", part[tool.end():])
            if text and word and f"{name} {word.group(1)} " in text:
                name += " " + word.group(1)
                text = help_of(name)
            if text is None:
                unchecked.add(name)
                continue
            known = set(re.findall(r"--[a-z][a-z0-9-]*", text)) | {"--help", "--version"}
            for option in options:
                if option not in known:
                    violations.append(f"{document.path}:{number}: {name} has no {option}")
    return violations, unchecked


def bin_folders(root, build):
    if build:
        return [os.path.join(os.path.abspath(build), "bin")]
    return [os.path.join(root, "build", preset, "bin") for preset in ("release", "dev", "asan")]


def make_help_of(folders):
    """Returns a function from a program and its command to the --help text, None where the program
    is not built."""
    cache = {}

    def help_of(name):
        if name not in cache:
            program, *command = name.split()
            binary = next((os.path.join(folder, program) for folder in folders
                           if os.access(os.path.join(folder, program), os.X_OK)), None)
            cache[name] = None if binary is None else subprocess.run(
                [binary, *command, "--help"], capture_output=True, text=True, timeout=30).stdout
        return cache[name]

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
    texts = {path: repo_files.read_text(root, path) for path in paths}
    documents = {path: Document(path, text) for path, text in texts.items()}
    folders = bin_folders(root, build)
    help_of = make_help_of(folders)
    violations, unchecked, executed = check_all_words(texts), set(), 0
    for document in documents.values():
        violations += document.violations
        violations += check_limits(document.path, texts[document.path])
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
