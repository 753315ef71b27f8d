#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of render_results.py on pages and data files made here, and on those of the repository."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "measure"))
import render_results  # noqa: E402  (the path has to be there first)

DATA = {"title": "Types", "machine": "M", "date": "2026-01-01", "command": "measure", "notes": [],
        "columns": ["type", "how", "cost, %"],
        "rows": [["a", "one", "1.0"], ["a", "two", "0.5"], ["b", "", "2.0"]]}
HEAD = "| type | how | cost, % |\n|---|---|---|\n"
ALL = HEAD + "| a | one | 1.0 |\n| a | two | 0.5 |\n| b | | 2.0 |\n"


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.makedirs(os.path.join(self.root, "docs", "results"))
        self.write("docs/results/types.json", json.dumps(DATA))

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def run_main(self, *args):
        """Returns exit status, stdout, stderr."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["render_results.py", *args, self.root]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = render_results.main()
        return status, out.getvalue(), err.getvalue()

    def rendered(self, mark):
        """Returns what a page holds between a mark and its end after a run, and the run's status and output."""
        self.write("docs/page.md", f"# Page\n\n{mark}\nold\n<!-- end -->\nbehind\n")
        status, out, _ = self.run_main()
        text = self.read("docs/page.md")
        self.assertTrue(text.startswith(f"# Page\n\n{mark}\n") and text.endswith("<!-- end -->\nbehind\n"))
        return text[len(f"# Page\n\n{mark}\n"):-len("<!-- end -->\nbehind\n")], status, out

    def test_writes_all_of_a_table(self):
        self.assertEqual(self.rendered("<!-- results: types -->"), (ALL, 0, ""))

    def test_writes_chosen_columns_and_rows(self):
        table, status, _ = self.rendered('<!-- results: types\ncolumns="cost, %;\ntype" rows="b; a / two" -->')
        self.assertEqual((table, status), ("| cost, % | type |\n|---|---|\n| 2.0 | b |\n| 0.5 | a |\n", 0))
        table, _, _ = self.rendered('<!-- results: types rows="a" -->')
        self.assertEqual(table, HEAD + "| a | one | 1.0 |\n| a | two | 0.5 |\n")

    def test_check_names_what_differs_and_writes_nothing(self):
        page = f"# Page\n\n<!-- results: types -->\n{ALL}<!-- end -->\n"
        self.write("docs/page.md", page)
        self.assertEqual(self.run_main("--check"), (0, "", ""))
        self.write("docs/page.md", page.replace("0.5", "0.4"))
        status, out, _ = self.run_main("--check")
        self.assertEqual((status, out), (1, "docs/page.md:3: the table differs from docs/results/types.json\n"))
        self.assertIn("0.4", self.read("docs/page.md"))

    def test_names_marks_that_cannot_be_used(self):
        for mark, fault in (("<!-- results: other -->", "no data file docs/results/other.json"),
                            ('<!-- results: types columns="price" -->', 'types has no column "price"'),
                            ('<!-- results: types rows="b / one" -->', 'types has no row "b / one"'),
                            ("<!-- results: types column=type -->", 'cannot read "column=type"')):
            table, status, out = self.rendered(mark)
            self.assertEqual((table, status), ("old\n", 1))
            self.assertTrue(out.startswith(f"docs/page.md:3: {fault}"), out)

    def test_names_a_mark_without_end(self):
        for text, line in ((f"<!-- results: types -->\n{ALL}", 1),
                           (f"a\n<!-- results: types -->\n<!-- results: types -->\n{ALL}<!-- end -->\n", 2)):
            self.write("docs/page.md", text)
            status, out, _ = self.run_main()
            self.assertEqual((status, out), (1, f"docs/page.md:{line}: no <!-- end --> behind this mark\n"))
            self.assertEqual(self.read("docs/page.md"), text)

    def test_names_data_files_in_another_form(self):
        for name, data, fault in (("a", "{", "not JSON"), ("b", json.dumps({"rows": []}), "fields"),
                                  ("c", json.dumps({**DATA, "columns": ["x", "x", "y"]}), "occurs twice"),
                                  ("d", json.dumps({**DATA, "rows": [["1", "2"]]}), "row 1: expected 3 texts")):
            self.write(f"docs/results/{name}.json", data)
            status, out, _ = self.run_main("--check")
            self.assertEqual(status, 1)
            self.assertIn(fault, out)
            os.remove(os.path.join(self.root, "docs", "results", f"{name}.json"))

    def test_imports_what_scripts_print_or_put_into_a_page(self):
        self.write("docs/page.md", "<!-- results: types -->\n<!-- end -->\n")
        rows = "| c | six | 6.0 |\n"
        self.write("docs/results/more.json", json.dumps(DATA))
        self.write("tables.txt", f"f32: 4.0\ntypes\n\n{HEAD}{rows}\n<!-- begin more -->\n{HEAD}{rows}<!-- end more -->\n")
        status, out, _ = self.run_main("--import", os.path.join(self.root, "tables.txt"))
        self.assertEqual((status, out), (0, "rows replaced: types, more\n"))
        for name in ("types", "more"):
            self.assertEqual(json.loads(self.read(f"docs/results/{name}.json")), {**DATA, "rows": [["c", "six", "6.0"]]})
        self.assertIn(rows, self.read("docs/page.md"))

    def test_refuses_tables_of_another_width(self):
        before = self.read("docs/results/types.json")
        self.write("tables.txt", "types\n\n| type |\n|---|\n| c |\n")
        status, _, err = self.run_main("--import", os.path.join(self.root, "tables.txt"))
        self.assertEqual(status, 1)
        self.assertIn("table types: got another number of columns, expected 3", err)
        self.assertEqual(self.read("docs/results/types.json"), before)
        self.write("empty.txt", "nothing\n")
        status, _, err = self.run_main("--import", os.path.join(self.root, "empty.txt"))
        self.assertEqual(status, 1)
        self.assertIn("no table", err)


class Repository(unittest.TestCase):
    def test_pages_show_their_data(self):
        self.assertEqual(render_results.render_pages(ROOT, check=True), [])

    def test_files_are_written_as_they_are(self):
        """What write_results makes of a data file is that file, so that an import changes rows alone."""
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, render_results.FOLDER))
            for name in ("tales-perplexity", "kernel-index"):
                render_results.write_results(folder, name, render_results.read_results(ROOT, name))
                with open(render_results.path_of(folder, name), encoding="utf-8") as copy, \
                        open(render_results.path_of(ROOT, name), encoding="utf-8") as file:
                    self.assertEqual(copy.read(), file.read())


if __name__ == "__main__":
    unittest.main()
