#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The sampling of qsf-run and qsf-chat as a user sets it: seeds, steps, penalties, stop texts and log
probabilities.

Usage: qsf_run_sampling_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Converts the model of SOURCE_DIR/models with BIN_DIR/qsf-convert first.
"""

import math
import os
import sys
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


class Options(unittest.TestCase):
    def test_values_out_of_range(self):
        bad = {
            "--temperature": ["-1", "nan", "inf", "warm"],
            "--top-p": ["0", "1.5", "-0.1", "nan"],
            "--top-k": ["-1", "many"],
            "--min-p": ["-0.1", "1.1"],
            "--typical-p": ["0", "1.1"],
            "--repeat-penalty": ["0", "-1", "inf"],
            "--frequency-penalty": ["nan", "inf"],
            "--presence-penalty": ["nan", "x"],
            "--dry-multiplier": ["-1", "inf"],
            "--dry-base": ["0.9", "inf"],
            "--dry-allowed-length": ["0", "1025"],
            "--dry-window": ["-2", "1.5"],
            "--dry-breaker": [""],
            "--xtc-probability": ["-0.1", "1.1"],
            "--xtc-threshold": ["-0.1", "1.1"],
            "--seed": ["-1", "18446744073709551616", "x"],
            "--logit-bias": ["5", "=1", "5=", "5=x", "-1=1", "5=nan", "5=inf", "4096=1"],
            "--stop": [""],
        }
        for option, values in bad.items():
            for value in values:
                code, out, err = call(model, "--prompt", "a", option, value)
                self.assertEqual((code, out), (2, b""), (option, value))
                self.assertRegex(err.decode(), r"\Aqsf-run: [^\n]+\n\Z")
                self.assertIn(option.removeprefix("--logit-"), err.decode())

    def test_a_breaker_that_no_token_contains(self):
        code, out, err = call(model, "--prompt", "a", "--no-echo", "--dry-multiplier", "1",
                              "--dry-breaker", "longer than any token")
        self.assertEqual((code, out.strip()), (2, b""))
        self.assertIn(b"longer than any token", err)


class LogProbs(unittest.TestCase):
    def test_a_line_for_each_token(self):
        path = tales.file("log_probs.tsv")
        arguments = ["--prompt", "Once upon a time", "--max-tokens", "20", "--seed", "3", "--top-k", "3"]
        plain = text(*arguments)
        self.assertEqual(text(*arguments, "--logprobs", path, "--top-logprobs", "3"), plain)
        with open(path, encoding="ascii") as file:
            lines = [line.rstrip("\n").split("\t") for line in file]
        self.assertEqual(len(lines), 20)
        for line in lines:
            ids, values = [int(field) for field in line[::2]], [float(field) for field in line[1::2]]
            self.assertEqual((len(ids), len(values)), (4, 4))
            self.assertIn(ids[0], ids[1:])  # top-k 3
            self.assertEqual(values[0], values[1 + ids[1:].index(ids[0])])
            self.assertEqual(values[1:], sorted(values[1:], reverse=True))
            self.assertLess(sum(math.exp(value) for value in values[1:]), 1.0001)
        text(*arguments, "--logprobs", path)
        with open(path, encoding="ascii") as file:
            self.assertEqual([line.split() for line in file], [line[:2] for line in lines])

    def test_refusals(self):
        for arguments, code in ((["--top-logprobs", "3"], 2), (["--logprobs", ""], 2),
                                (["--logprobs", "/dev/null", "--top-logprobs", "101"], 2),
                                (["--logprobs", "no/such/folder/file"], 1), (["--logprobs", "/dev/full"], 1)):
            done = call(model, "--prompt", "a", "--no-echo", "--max-tokens", "3", *arguments)
            self.assertEqual(done[0], code, done)
            self.assertIn(b"logprobs", done[2])


class Steps(unittest.TestCase):
    def test_the_same_seed_gives_the_same_text_at_any_thread_count(self):
        arguments = ["--prompt", "A dog", "--max-tokens", "60"]
        texts = {text(*arguments, "--seed", "5", "--threads", n) for n in ("1", "2", "3", "7")}
        self.assertEqual(len(texts), 1)
        self.assertNotEqual(text(*arguments, "--seed", "6"), texts.pop())
        self.assertNotEqual(text(*arguments), text(*arguments))

    def test_stop_texts(self):
        arguments = ["--prompt", "Once", "--temperature", "0", "--max-tokens", "40"]
        whole = text(*arguments).decode()
        stop = whole[20:26]
        self.assertEqual(text(*arguments, "--stop", "[x]", "--stop", stop).decode().rstrip("\n"),
                         whole[:whole.index(stop)].rstrip("\n"))

    def test_sampling_options_reach_the_sampler(self):
        arguments = ["--prompt", "Once upon a time", "--max-tokens", "30", "--seed", "3"]
        greedy = text(*arguments, "--temperature", "0")
        self.assertEqual(text(*arguments, "--top-k", "1"), greedy)
        self.assertEqual(text(*arguments, "--top-k", "0", "--min-p", "1"), greedy)
        self.assertEqual(text(*arguments, "--top-k", "0", "--top-p", "0.000001"), greedy)
        wild = text(*arguments, "--top-k", "0", "--top-p", "1", "--temperature", "3")
        self.assertNotEqual(wild, greedy)
        self.assertNotEqual(text(*arguments, "--temperature", "0", "--repeat-penalty", "5"), greedy)
        biased = text(*arguments, "--temperature", "0", "--logit-bias", "70=100")
        self.assertEqual(len(set(biased.removeprefix(b" Once upon a time").strip())), 1, biased)

    def test_each_newer_step_changes_the_text(self):
        arguments = ["--prompt", "Once upon a time", "--max-tokens", "40", "--top-k", "0", "--top-p", "1",
                     "--temperature", "1", "--seed", "3"]
        plain = text(*arguments)
        for options in (["--typical-p", "0.2"], ["--frequency-penalty", "3"], ["--presence-penalty", "3"],
                        ["--xtc-probability", "1"]):
            self.assertNotEqual(text(*arguments, *options), plain, options)
        self.assertNotEqual(text(*arguments, "--xtc-probability", "1", "--xtc-threshold", "0.01"),
                            text(*arguments, "--xtc-probability", "1"))
        for options in (["--typical-p", "1"], ["--frequency-penalty", "0"], ["--presence-penalty", "0"],
                        ["--dry-base", "3"]):
            self.assertEqual(text(*arguments, *options), plain, options)

    def test_dry_ends_repetitions(self):
        arguments = ["--prompt", "Once upon a time", "--max-tokens", "40", "--temperature", "0"]
        plain = text(*arguments)
        dry = [*arguments, "--dry-multiplier", "50", "--dry-allowed-length", "1"]
        self.assertNotEqual(text(*dry), plain)
        self.assertEqual(text(*dry, "--dry-window", "0"), plain)
        self.assertNotEqual(text(*dry, "--dry-base", "1"), plain)
        breakers = [option for letter in "aeiouystnrdlhwmcfgpbkvxjqz.,'!?\"\n"
                    for option in ("--dry-breaker", letter)]
        self.assertEqual(text(*dry, *breakers), plain)

    def test_chats_share_the_steps(self):
        def answer(*options):
            code, out, err = call(model, "--interactive", "--chat-template", "plain", "--quiet", "--seed", "3",
                                  "--max-tokens", "30", "--no-history", *options, stdin=None, input=b"Hello\n")
            self.assertEqual(code, 0, err)
            return out

        self.assertNotEqual(answer(), answer("--typical-p", "0.2"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
