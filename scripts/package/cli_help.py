# SPDX-License-Identifier: MIT
"""Reads the --help text of a tool, for man pages and completions.

The text has the layout of CLI11: a description, a Usage line, and sections of entries. An entry is a name with
its argument, choices and default, followed by two spaces or a line break and its description. Any
other line is an error, so that nothing is lost when the layout changes.
"""

import dataclasses
import os
import re
import subprocess

SECTION = re.compile(r"^(\S.*):$")
ENTRY = re.compile(r"^ {1,3}(\S.*)$")
CONTINUATION = re.compile(r"^ {4,}(\S.*)$")
SPEC = re.compile(
    r"^(?P<names>-[^\s]+|[A-Za-z][\w-]*)"                   # --name, -n,--name or POSITIONAL
    r"(?:\s(?!REQUIRED|\.\.\.)(?P<argument>[A-Za-z|]+(?:=[A-Z]+(?![^\s]))?))?"
    r"(?::\{(?P<choices>[^}]*)\})?"
    r"(?:=(?P<default>\S+)|\s\[(?P<bracketed>[^\]]*)\])?"
    r"(?P<required>\sREQUIRED)?"
    r"(?P<repeated>\s\.\.\.)?$")


@dataclasses.dataclass
class Entry:
    """An option or, when its name has no dash, a positional argument."""
    names: list
    argument: str = ""
    choices: list = dataclasses.field(default_factory=list)
    default: str = ""
    required: bool = False
    repeated: bool = False
    text: str = ""

    def is_option(self):
        return self.names[0].startswith("-")

    def takes_value(self):
        return bool(self.argument or self.choices)

    def kind(self):
        """Returns the kind of value that a shell can offer: choice, model, model_or_gguf, folder, file or text."""
        if self.choices:
            return "choice"
        if re.search(r"(?<![\w])\.qsf\b", self.text):
            return "model_or_gguf" if ".gguf" in self.text else "model"
        return {"FOLDER": "folder", "FILE": "file"}.get(self.argument, "text")


@dataclasses.dataclass
class Help:
    tool: str
    version: str
    description: list  # of paragraphs
    usage: str
    entries: list
    commands: list = dataclasses.field(default_factory=list)  # of a program that is several

    def options(self):
        return [entry for entry in self.entries if entry.is_option()]

    def positionals(self):
        return [entry for entry in self.entries if not entry.is_option()]


def parse_entry(spec):
    """Returns the Entry that a line begins, without its text."""
    match = SPEC.match(spec)
    if not match:
        raise ValueError(f"help: '{spec}', expected a name, its argument, choices and default")
    return Entry(names=match["names"].split(","), argument=match["argument"] or "",
                 choices=match["choices"].split(",") if match["choices"] else [],
                 default=match["default"] or match["bracketed"] or "",
                 required=bool(match["required"]), repeated=bool(match["repeated"]))


def parse_help(tool, version, text):
    """Returns the Help that `text` holds."""
    lines = text.rstrip().split("\n")
    start = next((i for i, line in enumerate(lines) if line.startswith("Usage:")), None)
    if start is None:
        raise ValueError(f"help of {tool}: no line begins with Usage:")
    usage = lines[start][len("Usage:"):].strip()
    description = [line.strip() for line in lines[:start] if line.strip()]
    entries = []
    commands = []
    section = None
    for line in lines[start + 1:]:
        entry, more = ENTRY.match(line), CONTINUATION.match(line)
        if not line.strip():
            continue
        if SECTION.match(line):
            section = commands if line == "Commands:" else entries
        elif entry and section is not None:
            # Some versions align the long names: "-h,     --help".
            spec, _, what = re.sub(r"^(-\w),\s+--", r"\1,--", entry.group(1)).partition("  ")
            section.append(parse_entry(spec))
            section[-1].text = what.strip()
        elif more and section:
            section[-1].text = (section[-1].text + " " + more.group(1)).strip()
        else:
            raise ValueError(f"help of {tool}: '{line}', expected a section or an entry of one")
    if not description or not any(entry.is_option() for entry in entries):
        raise ValueError(f"help of {tool}: no description or no option")
    return Help(tool, version, description, usage, entries, commands)


def read_help(program):
    """Returns the Help of a program, which is run; a program for another machine by the command in
    the environment's QSF_EMULATOR."""
    emulator = os.environ.get("QSF_EMULATOR", "").split()

    def output(option):
        return subprocess.run([*emulator, program, option], check=True, capture_output=True, text=True).stdout
    tool, version = output("--version").split()
    return parse_help(tool, version, output("--help"))
