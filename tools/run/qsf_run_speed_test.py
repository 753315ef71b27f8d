#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speed of qsf-run as a user sets and measures it: drafts, and --bench.

Usage: qsf_run_speed_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Converts the model of SOURCE_DIR/models with BIN_DIR/qsf-convert first.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
from tales_model import TalesModel  # noqa: E402


def setUpModule():
    global tales, model, call, text
    tales = TalesModel(BIN_DIR, SOURCE_DIR)
    model, call, text = tales.path, tales.call, tales.text


def tearDownModule():
    tales.close()


class Drafts(unittest.TestCase):
    def test_values_out_of_range(self):
        for option, values in {"--speculate": ["", "draft", "on"], "--max-drafts": ["0", "65", "few"]}.items():
            for value in values:
                code, out, err = call(model, "--prompt", "a", option, value)
                self.assertEqual((code, out), (2, b""), (option, value))
                self.assertIn(option.encode(), err)

    def test_drafts_change_no_text(self):
        prompt = "There was a king who had three sons. " * 4
        for drawn in (["--temperature", "0"], ["--temperature", "0.6", "--seed", "3"]):
            arguments = ["--prompt", prompt, "--max-tokens", "60", *drawn]
            full = text(*arguments, "--speculate", "off")
            self.assertEqual(text(*arguments), full)
            code, out, err = call(model, *arguments, "--speculate", "lookup", "--max-drafts", "4")
            self.assertEqual((code, out), (0, full))
            drafted, accepted = map(int, re.search(rb"drafted (\d+) tokens, (\d+) of them accepted", err).groups())
            self.assertTrue(0 <= accepted <= drafted and drafted > 0, (accepted, drafted))
        self.assertNotIn(b"drafted", call(model, *arguments, "--speculate", "off")[2])
        code, out, err = call(model, *arguments, "--speculate", "lookup", "--kv-policy", "h2o")
        self.assertEqual((code, out), (1, b""))
        self.assertIn(b"speculation: kv policy h2o", err)


class DraftModel(unittest.TestCase):
    def test_drafts_change_no_text(self):
        arguments = ["--prompt", "Once there was a fox who", "--max-tokens", "40", "--temperature", "0.7", "--seed", "5"]
        full = text(*arguments, "--speculate", "off")
        self.assertEqual(text(*arguments, "--draft", model), full)
        code, out, err = call(model, *arguments, "--draft", model, "--speculate", "draft", "--max-drafts", "4")
        self.assertEqual((code, out), (0, full))
        drafted, accepted = map(int, re.search(rb"these (\d+) by the draft model, (\d+) of them accepted", err).groups())
        self.assertTrue(0 < accepted == drafted, (accepted, drafted))
        self.assertIn(b"draft_model_weights", call(model, *arguments, "--draft", model, "--verbose")[2])

    def test_refusals(self):
        for arguments, reason in (
            (["--speculate", "draft"], b"needs --draft MODEL"),
            (["--speculate", "lookup", "--draft", model], b"needs --speculate auto or draft"),
        ):
            code, out, err = call(model, "--prompt", "a", *arguments)
            self.assertEqual((code, out), (2, b""), arguments)
            self.assertIn(reason, err)
        code, out, err = call(model, "--prompt", "a", "--draft", tales.file("none.qsf"))
        self.assertEqual((code, out), (1, b""))
        self.assertIn(b"none.qsf", err)


class Heads(unittest.TestCase):
    def test_sketches(self):
        """A file with a sketch gives the text of one without; heads of few bits get none."""
        folder = os.path.join(SOURCE_DIR, "models", "tales-5M")
        tale = os.path.join(SOURCE_DIR, "testdata", "tale.txt")
        with tempfile.TemporaryDirectory() as made:
            path = os.path.join(made, "sketch.qsf")
            convert = [os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--head-sketch", tale, folder, path]
            refused = subprocess.run(convert, capture_output=True, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(b"less than 8 bits a weight", refused.stderr)
            subprocess.run([*convert, "--head-type", "8bit"], check=True)
            arguments = ["--prompt", "There was a king", "--max-tokens", "60", "--temperature", "0.5", "--seed", "6"]
            texts = [call(path, *arguments, "--head", head)[:2] for head in ("full", "certified")]
            self.assertEqual(texts[0], texts[1])
            self.assertEqual(call(path, *arguments, "--head", "approx")[0], 0)
        code, out, err = call(model, "--prompt", "a", "--head", "approx")
        self.assertEqual((code, out), (1, b""))
        self.assertIn(b"the file has no sketch of it", err)


class Bench(unittest.TestCase):
    def test_bench(self):
        code, out, err = call(model, "--bench", "--max-seq-len", "300", "--threads", "1")
        self.assertEqual(code, 0, err)
        lines = out.decode().splitlines()
        self.assertTrue(lines[0].startswith("llama, 4bit, "), lines)
        for line, work in zip(lines[1:], ("prompt     268 tokens", "generate    32 tokens"), strict=True):
            self.assertRegex(line, rf"\A{work} +[\d.]+ tokens/s \([\d.]+ to [\d.]+\)\Z")
        self.assertIn(b"planned", err)
        self.assertNotIn(b"drafted", err)
        for arguments in (["--prompt", "a"], ["--interactive"], ["--session-save", tales.file("none")], ["--draft", model]):
            code, out, err = call(model, "--bench", *arguments)
            self.assertEqual((code, out), (2, b""), arguments)
            self.assertIn(b"--bench excludes", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
