# SPDX-License-Identifier: MIT
"""Tests of check_docs.py: each planted violation is found, and a good page gives none."""

import os
import stat
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_docs


class DocsCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = self.folder.name
        self.write("docs/other.md", "# Other page\n\ntext\n")

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        return full

    def found(self, text, **options):
        self.write("page.md", text)
        return check_docs.check(self.root, **options)[0]


class LinkTest(DocsCase):
    def test_good_links(self):
        self.assertEqual(self.found("# A\n\n[o](docs/other.md) [p](docs/other.md#other-page) [a](#a) "
                                    "[web](https://example.org/x) `[no](link.md)`\n"), [])

    def test_broken_links(self):
        for link in ("docs/gone.md", "docs/other.md#gone", "#gone", "../outside.md"):
            with self.subTest(link=link):
                found = self.found(f"# A\n\n[x]({link})\n")
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith("page.md:3: link to"), found)


class NameTest(DocsCase):
    def test_named_files(self):
        self.write("src/base/thing.h", "")
        self.assertEqual(self.found("`src/base/thing.h` `base/thing.h` `src/base/` `docs/*.md` "
                                    "`thing` `docs/NNN-<name>.md` `build/dev/x`\n"), [])
        for name in ("src/base/gone.h", "base/gone.h", "docs/gone/", "scripts/*.py"):
            with self.subTest(name=name):
                self.assertEqual(len(self.found(f"text `{name}`\n")), 1)


class ShapeTest(DocsCase):
    def test_heading_without_text(self):
        self.assertEqual(len(self.found("# A\n\ntext\n\n## B\n\n## C\n\ntext\n")), 1)
        self.assertEqual(self.found("# A\n\n## B\n\ntext\n"), [])

    def test_open_block(self):
        self.assertEqual(len(self.found("text\n```\ncode\n")), 1)


class LimitTest(DocsCase):
    def test_long_lines(self):
        self.assertEqual(self.found("word " * 19 + "abcde\n"), [])
        self.assertEqual(self.found("word " * 20 + "a\n"), ["page.md:1: line of 101 characters, limit 100"])
        self.assertEqual(len(self.found("| a |\n|---|\n| " + "b" * 100 + " |\n")), 1)
        self.assertEqual(len(self.found("```\n" + "b" * 101 + "\n```\n")), 1)
        self.assertEqual(self.found("[a](https://example.org/" + "b" * 100 + ")\n"), [])

    def test_words_of_a_page(self):
        self.assertEqual(self.found("a b c d\n" * 500), [])
        self.assertEqual(self.found("a b c d\n" * 500 + "e\n"), ["page.md:1: 2001 words, limit 2000; split the page"])

    def test_words_of_all_pages(self):
        for i in range(31):
            self.write(f"docs/{i}.md", "a b c d\n" * 500)
        found = self.found("a\n")
        self.assertEqual(len(found), 1)
        self.assertIn("all Markdown together has 62005 words, limit 62000", found[0])

    def test_generated_tables_do_not_count_among_all_words(self):
        for i in range(28):
            self.write(f"docs/{i}.md", "a b c d\n" * 500)
        for i in range(2):
            table = "a b c d\n" * 450
            self.write(f"docs/made{i}.md", f"<!-- generated: {i} -->\n{table}<!-- end -->\n")
        self.assertEqual(self.found("a\n"), [])

    def test_lines_of_the_readme(self):
        self.write("README.md", "a\n" * 70)
        self.assertEqual(self.found("a\n"), [])
        self.write("README.md", "a\n" * 71)
        self.assertEqual(self.found("a\n"), ["README.md:1: 71 lines, limit 70"])

    def test_entries_of_the_glossary(self):
        table = "| term | meaning |\n|---|:--|\n" + "| a | b |\n" * 35
        self.write("docs/glossary.md", f"text\n\n{table}\ntext\n\n{table}")
        self.assertEqual(self.found("a\n"), [])
        self.write("docs/glossary.md", f"text\n\n{table}\ntext\n\n{table}| a | b |\n")
        self.assertEqual(self.found("a\n"), ["docs/glossary.md:1: 71 entries, limit 70"])


class OptionTest(DocsCase):
    def tool(self):
        self.program("qsf-run", "echo '--prompt TEXT --seed N'")

    def program(self, name, script):
        path = self.write("build/dev/bin/" + name, f"#!/bin/sh\n{script}\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def test_options_of_commands(self):
        self.program("qsf", "case $1 in run) echo --seed N;; convert) echo --quant-type T;; *) echo --version;; esac")
        self.assertEqual(self.found("```sh\nbuild/dev/bin/qsf run m.qsf --seed 1 | qsf convert --quant-type 4bit\n```\n"), [])
        self.assertEqual(self.found("text `qsf  run --quant-type`\n"), ["page.md:1: qsf run has no --quant-type"])
        self.assertEqual(self.found("text `qsf convert --seed`\n"), ["page.md:1: qsf convert has no --seed"])
        self.assertEqual(self.found("text `qsf run-away --seed`, `myqsf run --nope`\n"), [])

    def test_options_against_help(self):
        self.tool()
        text = "```sh\ncmake --preset dev && bin/qsf-run --prompt x \\\n  --seed 1 | head\n```\n"
        self.assertEqual(self.found(text), [])
        self.assertEqual(len(self.found(text.replace("--seed", "--sead"))), 1)
        self.assertEqual(len(self.found("text `qsf-run --nope`\n")), 1)

    def test_a_missing_tool_is_said(self):
        self.write("page.md", "`qsf-run --nope`\n")
        violations, _, notes = check_docs.check(self.root)
        self.assertEqual(violations, [])
        self.assertEqual(notes, ["docs: options of qsf-run not checked: it is not built"])


class RunTest(DocsCase):
    def test_blocks_marked_run_execute(self):
        good = "```sh run\ntest -d \"$SCRATCH\" && test -f docs/other.md\n```\n"
        self.assertEqual(self.found(good, run=True), [])
        self.assertEqual(len(self.found("```sh run\nfalse\n```\n", run=True)), 1)
        self.assertEqual(self.found("```sh run\nfalse\n```\n"), [])
        self.assertEqual(self.found("```sh\nfalse\n```\n", run=True), [])


if __name__ == "__main__":
    unittest.main()
