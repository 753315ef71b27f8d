#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""LoRA adapters of qsf run and of the programs beside it: --lora and --lora-scale.

Usage: qsf_run_adapters_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Converts the model of SOURCE_DIR/models with BIN_DIR/qsf-convert first.
"""

import os
import re
import sys
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "testing"), os.path.join(HERE, "../testing")]
from tales_model import TalesModel  # noqa: E402
from write_adapter import write_adapter  # noqa: E402

PROMPT = ["--prompt", "There was a king who had", "--max-tokens", "24", "--seed", "3"]


def setUpModule():
    global tales, model, call, text, red, blue
    tales = TalesModel(BIN_DIR, SOURCE_DIR)
    model, call, text = tales.path, tales.call, tales.text
    red, blue = tales.file("red.adapter.qsf"), tales.file("blue.adapter.qsf")
    write_adapter(red, model, "red", seed=1)
    write_adapter(blue, model, "blue", seed=2)


def tearDownModule():
    tales.close()


class Texts(unittest.TestCase):
    def test_an_adapter_changes_the_text(self):
        texts = [text(*PROMPT), text(*PROMPT, "--lora", red), text(*PROMPT, "--lora", blue),
                 text(*PROMPT, "--lora", red, "--lora-scale", "0.5")]
        self.assertEqual(len(set(texts)), 4)
        self.assertEqual(text(*PROMPT, "--lora", red, "--lora-scale", "0"), texts[0])
        self.assertEqual(text(*PROMPT, "--lora", "name=" + red), texts[1])
        self.assertEqual(text("--lora", red, *PROMPT[1:2], *PROMPT[2:]), texts[1])

    def test_threads_rows_and_budget_change_nothing(self):
        expected = text(*PROMPT, "--lora", red)
        for options in (["--threads", "1"], ["--rows-per-pass", "2"], ["--speculate", "off"]):
            self.assertEqual(text(*PROMPT, "--lora", red, *options), expected, options)
        # Whether the least budget in whole MB streams so small a model depends on the build; texts
        # that do are compared in src/engine/adapters_test.cc.
        least = tales.least_budget(*PROMPT, "--lora", red)
        code, out, err = call(model, *PROMPT, "--lora", red, "--ram-budget", least)
        self.assertEqual((code, out), (0, expected), err)

    def test_a_saved_session_needs_its_adapter(self):
        session = tales.file("red.session")
        text(*PROMPT, "--lora", red, "--session-save", session)
        more = ["--session-load", session, "--prompt", " and", "--max-tokens", "8", "--temperature", "0"]
        text(*more, "--lora", red)
        for adapter in ([], ["--lora", blue], ["--lora", red, "--lora-scale", "2"]):
            code, out, err = call(model, *more, *adapter)
            self.assertEqual((code, out), (2, b""), adapter)
            self.assertIn(b"section adapter: saved with the adapter", err)

    def test_perplexity_and_plan(self):
        tale = os.path.join(SOURCE_DIR, "testdata", "tale.txt")

        def perplexity(*options):
            code, out, err = call(model, "--file", tale, "--context", "64", "--chunks", "2", *options,
                                  tool=os.path.join(BIN_DIR, "qsf-perplexity"))
            self.assertEqual(code, 0, err)
            return float(re.search(rb"PPL = ([0-9.]+)", out).group(1))

        base = perplexity()
        self.assertEqual(perplexity("--lora", red, "--lora-scale", "0"), base)
        self.assertGreater(perplexity("--lora", red), 1.1 * base)
        code, out, err = call("--plan", model, "--lora", red, tool=os.path.join(BIN_DIR, "qsf-inspect"))
        self.assertEqual(code, 0, err)
        self.assertRegex(out, rb"adapters +1 adapters of 18 matrices")


class Refusals(unittest.TestCase):
    def refusal(self, code, *options):
        got, out, err = call(model, *PROMPT, *options)
        self.assertEqual((got, out), (code, b""), options)
        return err.decode()

    def test_wrong_options(self):
        self.assertIn("--lora: 2 adapters, expected one", self.refusal(2, "--lora", red, "--lora", blue))
        self.assertIn("--lora-scale: needs --lora", self.refusal(2, "--lora-scale", "2"))
        self.assertIn("--lora-scale", self.refusal(2, "--lora", red, "--lora-scale", "much"))

    def test_wrong_files(self):
        self.assertIn("no such file", self.refusal(1, "--lora", tales.file("none.qsf")))
        self.assertIn("not an adapter file", self.refusal(1, "--lora", model))
        folder = os.path.join(SOURCE_DIR, "testdata", "adapters", "llama_all")
        for path in (folder, os.path.join(folder, "adapter_model.safetensors")):
            self.assertIn("make an adapter file of it first: qsf convert ADAPTER OUT --base MODEL",
                          self.refusal(2, "--lora", path))
        with open(red, "rb") as file:
            data = bytearray(file.read())
        data[-300] ^= 4
        damaged = tales.file("damaged.adapter.qsf")
        with open(damaged, "wb") as file:
            file.write(data)
        self.assertIn("checksum", self.refusal(1, "--lora", damaged))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
