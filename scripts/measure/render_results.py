#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of Markdown pages from the data files in docs/results.

    render_results.py [--check] [--import FILE] [ROOT]

A page asks for a table by a comment, which may be broken into lines; the table stands between it and the end mark:

    <!-- results: NAME columns="type; bits" rows="q6_k; 4bit/64" -->
    <!-- end -->

NAME is a data file, docs/results/NAME.json. Without `columns` or `rows` the table has all of them. A row is chosen by
its first cell, or by its first cells with " / " between them; a choice that several rows match takes all of these.
--check writes nothing: it prints file:line of every table that differs from its data, and exits 1 if there is one.
--import FILE first replaces the rows of data files by the tables in FILE, the output of a measuring script: a line NAME
or <!-- begin NAME -->, then a table with as many columns as the data file has.
Files decision-*.json, which hold several tables each, are not rendered.
"""

import argparse
import glob
import json
import os
import re
import sys

FOLDER = os.path.join("docs", "results")
NOT_RENDERED = "decision-"
FIELDS = ("title", "machine", "date", "command", "notes", "columns", "rows")
MARK = re.compile(r"<!-- results:\s*([\w-]+)([^>]*?)\s*-->\n(.*?)<!-- end -->\n", re.DOTALL)
OPEN_MARK = re.compile(r"<!-- results:")
CHOICE = re.compile(r'\s*(columns|rows)="([^"]*)"')
NAME_LINE = re.compile(r"^(?:<!-- begin )?([\w-]+)(?: -->)?$")


class Fault(Exception):
    """A data file, or a mark in a page, that cannot be used; the message says why."""


def path_of(root, name):
    return os.path.join(root, FOLDER, name + ".json")


def read_results(root, name):
    """Returns the content of docs/results/NAME.json. Fails with Fault where it is not in the form of one."""
    file_name = os.path.join(FOLDER, name + ".json")
    try:
        with open(path_of(root, name), encoding="utf-8") as file:
            data = json.load(file)
    except OSError:
        raise Fault(f"no data file {file_name}") from None
    except ValueError as error:
        raise Fault(f"{file_name}: not JSON: {error}") from None
    if not isinstance(data, dict) or tuple(data) != FIELDS:
        raise Fault(f"{file_name}: fields: expected {', '.join(FIELDS)}")
    columns = data["columns"]
    if len(set(columns)) != len(columns) or not all(columns):
        raise Fault(f"{file_name}: columns: a name is empty or occurs twice")
    for number, row in enumerate(data["rows"], 1):
        if len(row) != len(columns) or not all(isinstance(cell, str) and "|" not in cell for cell in row):
            raise Fault(f"{file_name}: row {number}: expected {len(columns)} texts without |")
    return data


def write_results(root, name, data):
    """Writes a data file with one row a line, so that a change shows as the rows that it concerns."""
    lines = []
    for field in FIELDS:
        if field in ("notes", "rows") and data[field]:
            items = ",\n".join("    " + json.dumps(item) for item in data[field])
            lines.append(f"  {json.dumps(field)}: [\n{items}\n  ]")
        else:
            lines.append(f"  {json.dumps(field)}: {json.dumps(data[field])}")
    with open(path_of(root, name), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def choices_in(text):
    """Returns what a mark chooses, e.g. {"columns": ["type", "bits"]}; a choice that is left out is None."""
    chosen = {"columns": None, "rows": None}
    for key, value in CHOICE.findall(text):
        chosen[key] = [" ".join(item.split()) for item in value.split(";")]
    if CHOICE.sub("", text).strip():
        raise Fault(f'cannot read "{CHOICE.sub("", text).strip()}": expected columns="..." and rows="..."')
    return chosen


def chosen_rows(name, rows, choices):
    if choices is None:
        return rows
    found = []
    for choice in choices:
        cells = choice.split(" / ")
        matching = [row for row in rows if row[:len(cells)] == cells]
        if not matching:
            raise Fault(f'{name} has no row "{choice}"')
        found += matching
    return found


def table(data, name, choices):
    """Returns the chosen part of a data file as a Markdown table, a newline behind each line."""
    columns = choices["columns"] or data["columns"]
    for column in columns:
        if column not in data["columns"]:
            raise Fault(f'{name} has no column "{column}"')
    places = [data["columns"].index(column) for column in columns]
    rows = [[row[place] for place in places] for row in chosen_rows(name, data["rows"], choices["rows"])]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "".join(re.sub(r" +", " ", line) + "\n" for line in lines)


def render(root, text):
    """Returns (text with its tables rewritten, [(line, what is wrong or differs)])."""
    faults, parts, position = [], [], 0
    for match in MARK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        name, choices, old = match.groups()
        parts.append(text[position:match.start(3)])
        try:
            if OPEN_MARK.search(old):
                raise Fault("no <!-- end --> behind this mark")
            new = table(read_results(root, name), name, choices_in(choices))
            if new != old:
                faults.append((line, f"the table differs from {os.path.join(FOLDER, name + '.json')}"))
        except Fault as fault:
            faults.append((line, str(fault)))
            new = old
        parts.append(new)
        position = match.end(3)
    rest = text[position:]
    for match in OPEN_MARK.finditer(rest):
        faults.append((text.count("\n", 0, position + match.start()) + 1, "no <!-- end --> behind this mark"))
    return "".join(parts) + rest, faults


def pages_of(root):
    found = [path for pattern in ("*.md", "docs/**/*.md", "models/**/*.md")
             for path in glob.glob(os.path.join(glob.escape(root), pattern), recursive=True)]
    return sorted(set(found))


def faulty_files(root):
    faults = []
    for path in sorted(glob.glob(os.path.join(glob.escape(root), FOLDER, "*.json"))):
        name = os.path.basename(path)[:-len(".json")]
        if name.startswith(NOT_RENDERED):
            continue
        try:
            read_results(root, name)
        except Fault as fault:
            faults.append(str(fault))
    return faults


def render_pages(root, check):
    """Rewrites the tables of all pages, or only compares them. Returns the lines to print for what is wrong."""
    wrong = faulty_files(root)
    for path in pages_of(root):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        new, faults = render(root, text)
        if not check and new != text:
            with open(path, "w", encoding="utf-8") as file:
                file.write(new)
            faults = render(root, new)[1]
        wrong += [f"{os.path.relpath(path, root)}:{line}: {fault}" for line, fault in faults]
    return wrong


def tables_in(text):
    """Yields (name, rows) of the tables that follow a line with a name."""
    name, rows = None, []
    for line in text.split("\n") + [""]:
        cells = [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.startswith("|") else None
        if cells is not None:
            rows.append(cells)
        elif rows:
            if name:
                yield name, rows[2:]
            name, rows = None, []
        match = NAME_LINE.match(line)
        if match:
            name = match.group(1)


def import_tables(root, path):
    """Replaces the rows of data files by the tables of a text. Returns the names of the files written."""
    with open(path, encoding="utf-8") as file:
        found = list(tables_in(file.read()))
    names = []
    for name, rows in found:
        data = read_results(root, name)
        if any(len(row) != len(data["columns"]) for row in rows):
            raise Fault(f"{path}: table {name}: got another number of columns, expected {len(data['columns'])}")
        write_results(root, name, {**data, "rows": rows})
        names.append(name)
    if not names:
        raise Fault(f"{path}: no table behind a line with its name")
    return names


def main():
    parser = argparse.ArgumentParser(description="Write the tables of Markdown pages from docs/results.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a table differs from its data")
    parser.add_argument("--import", dest="source", metavar="FILE", help="take the rows of data files from this text first")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("root", nargs="?", default=os.path.dirname(os.path.dirname(here)), help="the repository")
    args = parser.parse_args()
    if args.check and args.source:
        parser.error("--check writes nothing: leave out --import")
    try:
        if args.source:
            print(f"rows replaced: {', '.join(import_tables(args.root, args.source))}")
    except (Fault, OSError) as error:
        print(f"render_results.py: {error}", file=sys.stderr)
        return 1
    wrong = render_pages(args.root, args.check)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
