# SPDX-License-Identifier: MIT
"""What compare_families.py writes, and the shapes that it compares."""

import json
import pathlib
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import compare_families
import random_families
import render_results


def row(family, of, error):
    return [family, of, "1.0", error, *[""] * (len(compare_families.COLUMNS) - 4)]


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.path = self.root / "docs" / "results" / "families.json"
        self.path.parent.mkdir(parents=True)

    def test_rows_of_other_families_stay(self):
        compare_families.write_results(str(self.path), [row("a", "folder", "1"), row("a", "GGUF", "2")], "a machine")
        compare_families.write_results(str(self.path), [row("b", "folder", "3")], "")
        compare_families.write_results(str(self.path), [row("a", "folder", "4")], "")
        stored = json.loads(self.path.read_text(encoding="utf-8"))
        self.assertEqual([(line[0], line[3]) for line in stored["rows"]], [("b", "3"), ("a", "4")])
        self.assertEqual(stored["machine"], "a machine")

    def test_the_file_is_one_of_results(self):
        compare_families.write_results(str(self.path), [row("a", "folder", "1")], "a machine")
        self.assertEqual(render_results.read_results(str(self.root), "families")["columns"], compare_families.COLUMNS)


class OutputTest(unittest.TestCase):
    def test_the_perplexity_of_all_windows_is_taken(self):
        printed = "2 windows\nPPL = 12.5000 +/- 0.2500\nqsf perplexity: window 2 of 2: PPL = 13.0000, 0 s left\n"
        self.assertEqual(compare_families.own_perplexity(printed), 12.5)


class ShapesTest(unittest.TestCase):
    def test_layers_have_kinds(self):
        for name, config in random_families.FAMILIES.items():
            kinds = config.get("layer_types")
            self.assertTrue(kinds is None or len(kinds) == config["num_hidden_layers"], name)

    def test_scales_of_embeddings(self):
        self.assertEqual(random_families.embedding_scale(random_families.FAMILIES["granite4-h-350m"]), 12)
        self.assertAlmostEqual(random_families.embedding_scale(random_families.FAMILIES["gemma3-270m"]), 640 ** 0.5)
        self.assertEqual(random_families.embedding_scale(random_families.FAMILIES["lfm2-350m"]), 1)


if __name__ == "__main__":
    unittest.main()
