#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the man page of a tool, made from its --help.

    make_man_page.py PROGRAM OUT_FILE [OTHER_TOOL...]

The page refers to the other tools at its end. Its date comes from SOURCE_DATE_EPOCH, which must be
set, so that the same source always gives the same page.
"""

import datetime
import os
import re
import sys
import textwrap

import cli_help

LINE_BYTES = 76
EXIT_STATUS = [("0", "The work was done."), ("1", "It failed; standard error says why."),
               ("2", "The command line is wrong.")]


def escape(text):
    """Returns text as roff prints it as written, within a line."""
    return text.replace("\\", "\\e").replace("-", "\\-")


def filled(text):
    """Returns text as lines of roff, which joins them again; none begins like a request."""
    lines = textwrap.wrap(escape(text), LINE_BYTES, break_long_words=False, break_on_hyphens=False)
    return "\n".join(re.sub(r"^([.'])", r"\\&\1", line) for line in lines)


def name_line(description):
    """Returns what the tool does, as apropos shows it: the first sentence in lower case."""
    sentence = re.split(r"\.(?:\s|$)", description[0])[0]
    sentence = sentence.split(":")[0]
    return sentence[0].lower() + sentence[1:]


def usage(help_page):
    """Returns the usage with the tool bold and what the user fills in in italics."""
    words = help_page.usage.split()
    if words and words[0] == help_page.tool:
        words = words[1:]
    marked = [re.sub(r"[A-Za-z]+", lambda match: f"\\fI{match.group(0)}\\fR", escape(word))
              for word in words]
    return [f".B {escape(help_page.tool)}", " ".join(marked)]


def entry_lines(entry):
    names = ", ".join(f"\\fB{escape(name)}\\fR" for name in entry.names)
    argument = entry.argument or ("VALUE" if entry.choices else "")
    if not entry.is_option():
        names = f"\\fI{escape(entry.names[0])}\\fR"
    elif argument:
        names += f" \\fI{escape(argument)}\\fR"
    text = entry.text
    if not all(re.search(rf"\b{re.escape(choice)}\b", text) for choice in entry.choices):
        text = text.rstrip(".") + ". One of: " + ", ".join(entry.choices) + "."
    if entry.default:
        text = text.rstrip(".") + f". Default: {entry.default}."
    if entry.required and entry.is_option():
        text = text.rstrip(".") + ". Required."
    return [".TP", names, filled(text)]


def man_page(help_page, others, epoch):
    """Returns the text of the page."""
    date = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%d")
    tool, version = help_page.tool, help_page.version
    lines = [f'.TH {escape(tool.upper())} 1 "{date}" "qsf {version}" "User Commands"',
             ".SH NAME", filled(f"{tool} - {name_line(help_page.description)}"),
             ".SH SYNOPSIS", *usage(help_page), ".SH DESCRIPTION"]
    for index, paragraph in enumerate(help_page.description):
        lines += ([".PP"] if index else []) + [filled(paragraph)]
    for title, entries in (("COMMANDS", help_page.commands), ("ARGUMENTS", help_page.positionals()), ("OPTIONS", help_page.options())):
        if entries:
            lines.append(f".SH {title}")
            for entry in entries:
                lines += entry_lines(entry)
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUS:
        lines += [".TP", f".B {status}", filled(meaning)]
    others = sorted(set(others) - {tool})
    if others:
        lines.append(".SH SEE ALSO")
        lines += [f".BR {escape(other)} (1)" + ("," if other != others[-1] else "") for other in others]
    return "\n".join(lines) + "\n"


def main(arguments):
    if len(arguments) < 2 or "SOURCE_DATE_EPOCH" not in os.environ:
        print(__doc__.split("\n\n")[1].strip() + "   with SOURCE_DATE_EPOCH set", file=sys.stderr)
        return 2
    page = man_page(cli_help.read_help(arguments[0]), arguments[2:],
                    int(os.environ["SOURCE_DATE_EPOCH"]))
    with open(arguments[1], "w", encoding="utf-8") as file:
        file.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
