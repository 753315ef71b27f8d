#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--quality as a user takes it: in qsf-run, qsf-perplexity, qsf-bench and qsf-inspect.

Usage: qsf_run_quality_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Converts the model of SOURCE_DIR/models with the importance of its six layers first, and without.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
TIMEOUT_S = 120


def setUpModule():
    global scratch, model, plain, source
    scratch = tempfile.TemporaryDirectory()
    model, plain, source = path("model.qsf"), path("plain.qsf"), path("text")
    with open(source, "w", encoding="utf-8") as file:
        file.write("Once upon a time there was a king who had three sons and one daughter. " * 20)
    convert(model, "--calibration", source, "--calibration-tokens", "256", "--calibration-context", "64")
    convert(plain)


def tearDownModule():
    scratch.cleanup()


def path(name):
    return os.path.join(scratch.name, name)


def convert(to, *options):
    subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "4bit", *options,
                    os.path.join(SOURCE_DIR, "models", "tales-5M"), to], check=True, stderr=subprocess.DEVNULL)


class Case(unittest.TestCase):
    def call(self, tool, *arguments, code=0):
        done = subprocess.run([os.path.join(BIN_DIR, tool), *arguments], capture_output=True, timeout=TIMEOUT_S,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, code, (arguments, done.stderr))
        return done.stdout.decode(), done.stderr.decode()

    def story(self, *options):
        return self.call("qsf-run", model, "--prompt", "The king", "--temperature", "0", "--max-tokens", "12",
                         "--max-seq-len", "64", *options)


class Quality(Case):
    def test_a_text_passes_fewer_layers(self):
        whole, err = self.story("--verbose")
        self.assertNotIn("quality", err)
        self.assertEqual(self.story("--quality", "1")[0], whole)
        # At least 80 % of six layers are five; the first two and the last two stay.
        less, err = self.story("--quality", "0.8", "--verbose")
        self.assertRegex(err, "quality 0.8: 5 of 6 layers, without [23]\n")
        self.assertNotEqual(less, whole)
        _, err = self.story("--quality", "0.66", "--verbose")
        self.assertIn("quality 0.66: 4 of 6 layers, without 2 3\n", err)

    def test_perplexity_rises(self):
        def perplexity(*options):
            out, _ = self.call("qsf-perplexity", model, "--file", source, "--context", "64", *options)
            return float(re.search(r"^PPL = (\S+)", out, re.M).group(1)), out
        whole, _ = perplexity()
        self.assertEqual(perplexity("--quality", "1")[0], whole)
        self.assertGreater(perplexity("--quality", "0.66")[0], 1.1 * whole)
        # The reference keeps all of its layers. Losses have the divergences beside them.
        losses = path("losses")
        out = perplexity("--quality", "0.66", "--reference", model, "--losses", losses)[1]
        divergence = float(re.search(r"mean KLD = (\S+)", out).group(1))
        self.assertGreater(divergence, 0.1)
        with open(losses, encoding="ascii") as file:
            windows = [json.loads(line) for line in file]
        self.assertTrue(all(len(w["losses"]) == len(w["divergences"]) == 31 for w in windows))
        mean = sum(sum(w["divergences"]) for w in windows) / (31 * len(windows))
        self.assertAlmostEqual(mean, divergence, delta=2e-6)

    def test_the_plan_and_the_benchmark_have_fewer_layers(self):
        def bytes_of(*options):
            return json.loads(self.call("qsf-inspect", model, "--plan", "--json", *options)[0])
        def kv(plan):
            return next(r["bytes"] for r in plan["regions"] if r["name"] == "kv_cache")
        self.assertEqual(kv(bytes_of("--quality", "0.66")) * 6, kv(bytes_of()) * 4)
        bench = ["qsf-bench", model, "-p", "0", "-n", "4", "-r", "1", "--no-probe", "--json"]
        whole = json.loads(self.call(*bench)[0])
        less = json.loads(self.call(*bench, "--quality", "0.66")[0])
        self.assertLess(less["model"]["weight_bytes_per_token"], whole["model"]["weight_bytes_per_token"])

    def test_a_session_is_of_its_quality(self):
        saved = path("saved.session")
        self.story("--session-save", saved)
        _, err = self.call("qsf-run", model, "--prompt", "a", "--max-seq-len", "64", "--session-load", saved,
                           "--quality", "0.8", code=2)
        self.assertIn("another model", err)

    def test_refusals(self):
        for value in ("-1", "0", "1.01", "nan", "half", ""):
            _, err = self.call("qsf-run", model, "--prompt", "a", "--quality", value, code=2)
            self.assertIn("--quality", err)
        for tool, options in (("qsf-run", ["--prompt", "a"]), ("qsf-perplexity", ["--file", source]),
                              ("qsf-bench", ["-p", "0", "-n", "4", "--no-probe"]), ("qsf-serve", ["--port", "0"])):
            done = subprocess.run([os.path.join(BIN_DIR, tool), plain, *options, "--quality", "0.8"],
                                  capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
            self.assertIn(done.returncode, (1, 2), tool)
            self.assertIn(b"--calibration", done.stderr, tool)
        _, err = self.call("qsf-perplexity", model, "--file", source, "--quality", "0.5", code=2)
        self.assertIn("use at least 0.667", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
