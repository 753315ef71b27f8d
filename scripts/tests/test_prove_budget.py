#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of prove_budget with runs that only seem to be: what it takes for a broken promise, and how it goes about it."""

import json
import os
import tempfile
import unittest

import rooms
import fake_groups
from fake_groups import MB, setting

prove_budget = rooms.load("measure", "prove_budget")

PROMPT, TOKENS, CONTEXT = 2031, 16, 2048  # of the case 1b-2bit
RUNS = 4  # its budgets, 100 and 200 MB, inside two limits each
STREAMED, FILE = 300, 380  # MB


def said(prompt=PROMPT, tokens=TOKENS, passes=8, rows=256, read=FILE + 24 * STREAMED):
    """Returns what qsf-run says of a run."""
    return (f"qsf-run: mode: streamed, each pass reads {STREAMED} MB of the file\n"
            f"qsf-run: prompt {prompt} tokens, 50.0 tokens/s; generated {tokens} tokens, 9.5 tokens/s\n"
            f"qsf-run: memory 99.0 MB planned of 100.0 MB, 98.0 MB peak; read {read:.1f} MB, prompts in {passes} "
            f"pass{'es' * (passes > 1)} of up to {rows} rows\n")


def run_model(run, command, _):
    run.seconds, run.peak_bytes, run.stderr = 10.0, 98 * MB, said()


class Prove(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.json = os.path.join(self.folder, "runs.json")
        self.write_tool(f'#!/bin/sh\nfor last; do :; done\necho "$@" > {self.folder}/made\ntruncate -s {FILE * MB} "$last"\n')

    def write_tool(self, text):
        path = os.path.join(self.folder, "qsf-convert")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def prove(self, *options, changes=None, do=run_model, only="1b-2bit"):
        """Returns exit status, stdout and stderr."""
        self.groups = fake_groups.Groups(do, changes)
        return self.groups.run_main(prove_budget, "--bin", self.folder, "--only", only, *options)

    def assert_broken(self, number, change):
        """Only this run is broken, and all are run nevertheless."""
        status, out, _ = self.prove("--json", self.json, changes={number: change})
        kept = [", BROKEN  [" not in line for line in out.splitlines() if " budget " in line]
        self.assertEqual((status, kept), (1, [i != number for i in range(RUNS)]), out)
        self.assertIn("prove_budget: 1 runs did not", out)
        with open(self.json, encoding="ascii") as file:
            self.assertEqual(len(json.load(file)), RUNS)

    def test_all_keep_to_it(self):
        status, out, err = self.prove()
        self.assertEqual((status, out.count(", kept  [streamed")), (0, RUNS), out + err)
        self.assertIn("every run kept to its budget", out)
        self.assertEqual(self.groups.limits, [limit * MB for limit in (100, 800, 200, 1600)])
        with open(os.path.join(self.folder, "made"), encoding="utf-8") as file:
            self.assertIn("--quiet --random 1b --quant-type 2bit --head-type 4bit ", file.read())
        for command, budget in zip(self.groups.commands, (100, 100, 200, 200)):
            self.assertEqual(command[:3], [os.path.join(self.folder, "qsf-run"), "--ram-budget", str(budget)])
            self.assertIn(f"--max-seq-len {CONTEXT} --prompt-file", " ".join(command))
        self.assertFalse(os.path.exists(self.groups.commands[0][-1]))

    def test_the_bundled_model_is_run_as_it_is(self):
        def run_bundled(run, command, number):
            run_model(run, command, number)
            run.peak_bytes, run.stderr = 20 * MB, said(prompt=4, passes=1, read=10)

        status, out, _ = self.prove(only="tales-5M", do=run_bundled)
        self.assertEqual((status, out.count(", kept  [")), (0, 2), out)
        self.assertEqual(self.groups.commands[0][-2:], ["--prompt", "Once upon a time"])
        self.assertFalse(os.path.exists(os.path.join(self.folder, "made")))

    def test_kills_and_errors(self):
        for change in (setting(oom_kills=1), setting(status=-9), setting(status=1)):
            for number in range(RUNS):
                self.assert_broken(number, change)

    def test_a_peak_above_the_budget_where_the_kernel_would_allow_it(self):
        self.assert_broken(1, setting(peak_bytes=100 * MB + 1))
        self.assert_broken(3, setting(peak_bytes=200 * MB + 1))

    def test_less_work_than_asked_for(self):
        for stderr in (said(tokens=TOKENS - 1, prompt=PROMPT + 1, read=FILE), said(prompt=PROMPT - 1), ""):
            self.assert_broken(2, setting(stderr=stderr))

    def test_more_passes_or_more_read_than_the_prompt_needs(self):
        for stderr in (said(passes=9), said(passes=7), said(read=FILE + 24 * STREAMED + 1), said(rows=253)):
            self.assert_broken(0, setting(stderr=stderr))

    def test_a_pass_of_a_mixture_may_read_all_of_its_experts(self):
        def said_of_mixture(read):
            return said(read=read) + "\nexperts: 20 % of a token's are in memory"

        self.assertEqual(self.prove(changes={0: setting(stderr=said_of_mixture(FILE + 24 * FILE))})[0], 0)
        self.assert_broken(0, setting(stderr=said_of_mixture(FILE + 24 * FILE + 1)))

    def test_memory_stays_flat(self):
        def generate(run, command, _):
            run.seconds, run.peak_bytes = 100.0, 90 * MB
            run.stderr = said(prompt=40, tokens=int(command[command.index("--max-tokens") + 1]))
            run.samples = [sample(second) for second in range(100)]

        def sample(second, usage=50 * MB, anonymous=40 * MB):
            # What comes before a tenth of the time is the start.
            return prove_budget.memory_group.Sample(second, usage, anonymous if second > 10 else 0)

        self.assertEqual(self.prove("--flat", "1000", do=generate)[0], 0)
        self.assertEqual(self.groups.limits, [800 * MB])
        for change in (setting(oom_kills=1), setting(status=1), setting(peak_bytes=100 * MB + 1), setting(stderr=said(tokens=999)),
                       setting(samples=[sample(50)]), setting(samples=[]),
                       setting(samples=[sample(i, anonymous=40 * MB + i * MB // 80) for i in range(100)])):
            status, out, _ = self.prove("--flat", "1000", do=generate, changes={0: change})
            self.assertEqual(status, 1, out)

    def test_nothing_is_proved_of_nothing(self):
        status, out, err = self.prove(only="13c")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("--only 13c: no such case; there are 7b-2.5bit, ", err)
        self.write_tool("#!/bin/sh\nexit 1\n")
        self.assertEqual(self.prove()[:2], (1, ""))
        self.assertEqual(self.groups.commands, [])


if __name__ == "__main__":
    unittest.main()
