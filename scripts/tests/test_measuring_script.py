#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of what measuring scripts have in common: how they end, and that none of them ends well without a measurement."""

import contextlib
import io
import os
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import compare_quantisers
import fake_tools
import markdown_tables
import measure_steps
import measuring_script
import plot_target_sizes
import results_file
import scored_models
import study_block_choices

SCRIPTS = (compare_quantisers, measure_steps, plot_target_sizes, study_block_choices)


def raising(error):
    def work():
        raise error
    return work


class Ends(unittest.TestCase):
    def end(self, work):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            return measuring_script.exit_status("this.py", work), err.getvalue()

    def test_status_says_whether_it_failed_or_lacks_something(self):
        self.assertEqual(self.end(lambda: None), (0, ""))
        self.assertEqual(self.end(lambda: 1), (1, ""))
        self.assertEqual(self.end(raising(scored_models.Failed("it is broken"))), (1, "this.py: it is broken\n"))
        self.assertEqual(self.end(raising(markdown_tables.NoMark("no mark"))), (1, "this.py: no mark\n"))
        missing = measuring_script.Missing(["a: no such file", "b: no such file"])
        self.assertEqual(self.end(raising(missing)), (2, "this.py: a: no such file\nthis.py: b: no such file\n"))

    def test_only_what_is_missing_is_named(self):
        measuring_script.require([])
        self.assertEqual(measuring_script.missing_packages("os", "no_such_package"),
                         ["no_such_package is not installed: pip install no_such_package"])


class Scripts(fake_tools.ScriptTest):
    def setUp(self):
        super().setUp()
        self.results = os.path.join(self.folder, "results.json")

    def run_script(self, script, *options, model=None):
        return self.run_main(script, model or self.inputs[0], self.inputs[1], self.results, "--calibration", self.inputs[2],
                             *options)

    def test_none_shows_what_was_not_measured(self):
        for script in SCRIPTS:
            status, out, err = self.run_script(script, "--no-runs")
            self.assertEqual((status, out), (1, ""), script)
            self.assertIn(f"{script.__name__}.py: {self.results}: ", err)

    def test_what_is_missing_is_named_by_all(self):
        for script in SCRIPTS:
            status, out, err = self.run_script(script, model="/no/such/model")
            self.assertEqual((status, out), (2, ""), script)
            self.assertIn(f"{script.__name__}.py: /no/such/model: no such file; MODEL", err)
            self.assertFalse(os.path.exists(self.results))

    def test_a_study_names_its_packages(self):
        with mock.patch.dict(sys.modules, {"torch": None}):
            status, _, err = self.run_script(study_block_choices)
            self.assertEqual(status, 2)
            self.assertIn("torch is not installed: pip install torch", err)

    def test_a_file_that_is_not_of_results_is_left_alone(self):
        for content in ("Once upon a time", '["a"]', '{"about": 1}'):
            with open(self.results, "w", encoding="utf-8") as file:
                file.write(content)
            with self.assertRaisesRegex(SystemExit, "results.json: not a file of results.*give another name"):
                results_file.Results(self.results)
            with open(self.results, encoding="utf-8") as file:
                self.assertEqual(file.read(), content)

    def test_a_program_that_cannot_be_run_is_named(self):
        path = os.path.join(self.folder, "text.txt")
        with self.assertRaisesRegex(scored_models.Failed, "text.txt: cannot be run: Permission denied"):
            scored_models.run(path, "--help")

    def test_one_window_has_no_error(self):
        args = SimpleNamespace(bin=self.folder, context=8, threads=1)
        scorer = scored_models.Scorer(results_file.Results(self.results), args, self.folder, "text", "reference")
        scores = "mean KLD = 0.1 +/- 0.1\ntop-1 agreement = 99 %"
        for n, context in ((2, contextlib.nullcontext()),
                           (1, self.assertRaisesRegex(scored_models.Failed, "1 window .* give more --bytes"))):
            with open(scorer.losses, "w", encoding="utf-8") as file:
                file.write('{"losses": [1.0, 2.0], "divergences": [0.25, 0.75]}\n' * n)
            with context, mock.patch.object(scored_models, "run", return_value=scores):
                score = scorer.measure("model")
                self.assertEqual((score["losses"], score["klds"]), ([1.5] * n, [0.5] * n))


if __name__ == "__main__":
    unittest.main()
