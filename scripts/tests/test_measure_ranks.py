#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of scripts/measure/measure_ranks.py: what it starts, and what it prints of the runs."""

import argparse
import contextlib
import io
import unittest

import rooms  # noqa: F401  (finds the script)
import measure_ranks as script


class FakeGroup:
    def __init__(self, path):
        self.path = path

    def wrapper(self):
        return ["in", self.path]


def arguments(**changed):
    return argparse.Namespace(**{"bin": "bin", "model": "m.qsf", "tokens": 4, "rate": 400, **changed})


class MeasureRanksTest(unittest.TestCase):
    def test_a_process_runs_inside_all_of_its_groups(self):
        self.assertEqual(script.wrapped([FakeGroup("a"), FakeGroup("b")], ["x"]), ["in", "a", "in", "b", "x"])

    def test_the_budget_and_one_token_more_are_asked_for(self):
        command = script.command(arguments(), 200)
        self.assertEqual(command[:3], ["bin/qsf", "run", "m.qsf"])
        self.assertEqual(command[command.index("--ram-budget") + 1], "200")
        self.assertEqual(command[command.index("--max-tokens") + 1], "5")

    def test_rates_are_found_in_what_run_prints(self):
        text = "qsf run: prompt 5 tokens, 0.10 tokens/s; generated 5 tokens, 0.39 tokens/s; first after 9.7 s"
        self.assertEqual(script.RATE.search(text).group(1), "0.39")
        self.assertEqual(script.PLANNED.search("each pass reads 3902.5 MB of the file").group(1), "3902.5")

    def test_medians_are_set_beside_each_other(self):
        found = {"one": [(0.2, "t", 400.0, [(190.0, 0)]), (0.4, "t", 400.0, [(191.0, 1)])],
                 "four": [(0.9, "t", 100.0, [(150.0, 0)] * 4), (0.9, "t", 100.0, [(150.0, 0)] * 4)]}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            medians = script.report(arguments(), found)
        self.assertAlmostEqual(medians["one"], 0.3)
        self.assertIn("four: 3.00 times one", out.getvalue())
        self.assertIn("reads for 1.00 s; peaks 190 MB, 1 kills", out.getvalue())


if __name__ == "__main__":
    unittest.main()
