# SPDX-License-Identifier: MIT
"""Tests for tabulate_benchmarks: what was measured gets into the page, and nothing else changes."""

import json
import os
import sys
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import tabulate_benchmarks

NAMES = ("machine", "speed", "plots", "peers", "sizes", "targets")


def page():
    return "head\n" + "".join(f"<!-- begin {name} -->\nold {name}\n<!-- end {name} -->\n" for name in NAMES)


def spread(median):
    return {"median": median, "min": median - 1, "max": median + 1}


def run(shape="1b", layer_type="4bit/64", **more):
    return {"run": "r", "shape": shape, "version": "0.1.0",
            "machine": {"cpu": "CPU", "threads": 2, "instruction_set": "avx2", "memory_bytes": 8e9,
                        "system": "Linux"},
            "limits": {"read_bytes_per_second": 20e9, "int8_operations_per_second": 1e12,
                       "f32_operations_per_second": 2e11},
            "model": {"layer_type": layer_type, "head_type": "8bit/64", "file_bytes": 600e6,
                      "planned_bytes": 700e6},
            "tests": [{"kind": "prompt", "tokens": 512, "depth": 0, "tokens_per_second": spread(100.0),
                       "operations_per_second": 5e11},
                      {"kind": "generate", "tokens": 32, "depth": 0, "tokens_per_second": spread(40.0),
                       "operations_per_second": 1e11, "bytes_per_second": 18e9,
                       "read_share": {"median": 0.9, "min": 0.8, "max": 1.0}}], **more}


class Tabulate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.document = os.path.join(self.folder.name, "page.md")

    def tearDown(self):
        self.folder.cleanup()

    def tabulate(self, text=None, **files):
        """Writes the files as JSON and the page, and returns the page as it is then."""
        for name, content in files.items():
            with open(os.path.join(self.folder.name, name + ".json"), "w", encoding="utf-8") as file:
                json.dump(content, file)
        with open(self.document, "w", encoding="utf-8") as file:
            file.write(page() if text is None else text)
        saved, sys.argv = sys.argv, ["tabulate_benchmarks.py", self.folder.name, self.document]
        try:
            self.assertEqual(tabulate_benchmarks.main(), 0)
        finally:
            sys.argv = saved
        with open(self.document, encoding="utf-8") as file:
            return file.read()

    def test_without_runs_the_page_stays(self):
        self.assertEqual(self.tabulate(), page())

    def test_shares_of_the_limits(self):
        text = self.tabulate(a=run())
        self.assertIn("| prompt 512 | 100.0 (99.0 to 101.0) | 50 % of arithmetic |", text)
        self.assertIn("| generate 32 | 40.0 (39.0 to 41.0) | 90 % of memory |", text)
        self.assertNotIn("old speed", text)
        self.assertIn("old peers", text)

    def test_the_machine_is_that_of_the_fastest_arithmetic(self):
        slower, faster = run(), run()
        faster["machine"]["instruction_set"] = "avx512"
        faster["limits"] = {"read_bytes_per_second": 30e9, "int8_operations_per_second": 2e12}
        text = self.tabulate(a=slower, b=faster)
        self.assertIn("avx512", text.split("<!-- end machine -->", maxsplit=1)[0])
        self.assertIn("memory 20.0 to 30.0 GB/s, by run; int8 2.00 TOPS.", text)

    def test_models_of_floats_have_the_limit_of_floats(self):
        faster = run(layer_type="f16")
        faster["tests"][0]["operations_per_second"] = 1e11
        self.assertIn("50 % of arithmetic", self.tabulate(a=faster))

    def test_peers_stand_apart(self):
        beside = run(peer={"name": "other", "commit": "abc", "model": "m.gguf", "model_bytes": 654e6})
        for test in beside["tests"]:
            test["peer_tokens_per_second"] = spread(20.0)
            test["ratio"] = 2.0
        text = self.tabulate(a=beside)
        self.assertIn("other (abc), m.gguf, 654 MB", text)
        self.assertIn("| 20.0 (19.0 to 21.0) | 2.00 |", text)
        self.assertIn("old speed", text)

    def test_sizes_and_targets_of_the_plan(self):
        text = self.tabulate(a=run("gpt2", "2bit/64"),
                             sizes=[{"title": "GPT-2 Small", "shape": "gpt2", "2bit": 51e6, "2bit-super": 50e6,
                                     "4bit": 72e6}])
        self.assertIn("| GPT-2 Small | 500 MB | 40 MB | 51 MB | 50 MB | 75 MB | 72 MB | not measured | 45 MB "
                      "| 700 MB |", text)
        self.assertIn("| this machine, 2bit/64 | 40.0 | not measured | not measured |", text)

    def test_a_page_without_its_marks_is_refused(self):
        with self.assertRaises(SystemExit):
            self.tabulate(text="nothing to replace\n", a=run())


if __name__ == "__main__":
    unittest.main()
