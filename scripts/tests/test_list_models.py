# SPDX-License-Identifier: MIT
"""Tests of list_models.py on a small tree, and on the page of the repository."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "models"))
import list_models  # noqa: E402  (the path has to be there first)

FILES = {
    "src/import/hf/hf_config.cc":
        'constexpr Family kFamilies[] = {\n    {"OptForCausalLM", parse_a},\n'
        '    {"PairForCausalLM", parse_b, true},\n};\n',
    "src/import/hf/hf_families.cc":
        'Status parse_a(ConfigFields& fields, HfConfig& config) {\n'
        '  config.spec.architecture = "a";\n}\n\n'
        'Status parse_b(ConfigFields& fields, HfConfig& config) {\n'
        '  if (wide) spec.architecture = "c";\n  return parse_a(fields, config);\n}\n',
    "src/import/gguf/gguf_families.cc":
        'constexpr GgufArchitecture kGgufArchitectures[] = {\n    {.name = "x",\n'
        '     .family = "a",\n     .paired_rope = true},\n    {.name = "y", .family = "a"},\n};\n',
    "src/model/architecture.cc":
        'constexpr Architecture kArchitectures[] = {\n    {.name = "a"},\n'
        '    {.name = "c", .head_norms = true,\n     .some_more = true},\n};\n',
    "tests/model/golden_logits_test.cc": '"one", "two"',
    "tests/model/rotated_logits_test.cc": '{"two", nullptr}',
    "src/import/gguf/gguf_model_test.cc": '"one"',
    "src/engine/golden_embeddings_test.cc": '"embeds"',
    "src/import/gguf/gguf_embedding_test.cc": '"embeds"',
    "testdata/embedding/embeds/config.json":
        json.dumps({"architectures": ["PairForCausalLM"], "model_type": "pair"}),
    "testdata/golden/one/config.json":
        json.dumps({"architectures": ["OptForCausalLM"], "model_type": "opt"}),
    "testdata/golden/two/config.json":
        json.dumps({"architectures": ["OptForCausalLM"], "model_type": "opt"}),
    "docs/models.md":
        "# M\n\n<!-- generated: families -->\n<!-- end -->\n\n"
        "<!-- generated: tests -->\nstale\n<!-- end -->\n",
}


class ListModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for path, text in FILES.items():
            self.write(path, text)
        published = mock.patch.dict(list_models.PUBLISHED, {
            "OptForCausalLM": "Opt 1B", "PairForCausalLM": "Pair 2B"}, clear=True)
        published.start()
        self.addCleanup(published.stop)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def run_main(self, *args):
        """Returns exit status and output; a status that is a text is an error."""
        out = io.StringIO()
        with mock.patch.object(sys, "argv", ["list_models.py", *args, self.root]), \
                contextlib.redirect_stdout(out):
            try:
                return list_models.main(), out.getvalue()
            except SystemExit as exit:
                return exit.code, out.getvalue()

    def page(self):
        return list_models.read(self.root, "docs", "models.md")

    def test_tables_follow_from_code_and_tests(self):
        self.assertEqual(self.run_main(), (0, ""))
        page = self.page()
        self.assertIn("| Opt 1B | `OptForCausalLM` | opt | x, y |\n", page)
        self.assertIn("| Pair 2B | `PairForCausalLM` | pair |  |\n", page)
        self.assertIn("| `OptForCausalLM` |  | 2 | 1 | 1 |\n", page)
        self.assertIn("| `PairForCausalLM` | norms of heads, some more | 1 |  | 1 |\n", page)
        self.assertNotIn("stale", page)
        self.assertEqual(self.run_main("--check"), (0, ""))

    def test_a_stale_page_is_told_and_kept(self):
        status, out = self.run_main("--check")
        self.assertEqual(status, 1)
        self.assertIn("docs/models.md:4: stale", out)
        self.assertEqual(self.page(), FILES["docs/models.md"])
        self.run_main()
        self.write("tests/model/golden_logits_test.cc", '"one"')
        self.assertEqual(self.run_main("--check")[0], 1)

    def test_what_cannot_be_listed_is_an_error(self):
        del list_models.PUBLISHED["PairForCausalLM"]
        self.assertIn("PairForCausalLM: say in PUBLISHED", self.run_main()[0])
        list_models.PUBLISHED["PairForCausalLM"] = "Pair" * 20
        self.assertIn("more than 100 characters", self.run_main()[0])
        list_models.PUBLISHED["PairForCausalLM"] = "Pair"
        self.write("src/model/architecture.cc",
                   'constexpr Architecture kArchitectures[] = {\n    {.name = "a"},\n};\n')
        self.assertIn("no row c", self.run_main()[0])
        self.write("src/import/hf/hf_families.cc", "")
        self.assertIn("parse_a sets no architecture", self.run_main()[0])


class ThePage(unittest.TestCase):
    def test_is_not_stale(self):
        page = list_models.read(ROOT, list_models.PAGE)
        self.assertEqual(list_models.rendered(ROOT, page), page,
                         "run scripts/models/list_models.py")


if __name__ == "__main__":
    unittest.main()
