# SPDX-License-Identifier: MIT
"""Tables in Markdown, and pages that keep them between marks."""

import re


class NoMark(Exception):
    """A page without the marks of a table; the message says which."""


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def percent(share, digits=2):
    return f"{100 * share:+.{digits}f} %"


def replace_tables(page, tables):
    """Replaces what stands between <!-- begin NAME --> and <!-- end NAME --> of a page, by name; a table that is None
    stays as it is. A page without the marks of all of them is left alone."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for name, content in tables.items():
        marked = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not marked.search(text):
            raise NoMark(f"{page}: no <!-- begin {name} --> ... <!-- end {name} -->: put these two lines where the table is to be")
        if content is not None:
            text = marked.sub(lambda match, content=content: f"{match.group(1)}{content}\n{match.group(2)}", text)
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)
