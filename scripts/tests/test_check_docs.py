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


class OptionTest(DocsCase):
    def tool(self):
        path = self.write("build/dev/bin/qsf-run", "#!/bin/sh\necho '--prompt TEXT --seed N'\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

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
