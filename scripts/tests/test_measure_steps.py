#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of measure_steps.py with tools that only seem to convert and score."""

import json
import os
import sys
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import fake_tools
import measure_steps
import scored_models


class Steps(fake_tools.ScriptTest):
    def setUp(self):
        super().setUp()
        self.results = os.path.join(self.folder, "results.json")

    def measure(self, *options, bin_folder=None):
        """Returns exit status, stdout, stderr."""
        model, text, calibration = self.inputs
        return self.run_main(measure_steps, model, text, self.results, "--calibration", calibration, "--bin",
                             bin_folder or self.folder, *options)

    def test_every_type_by_every_step(self):
        status, out, _ = self.measure("--types", "4bit/64", "2bit-super/32", "8bit/64")
        self.assertEqual(status, 0)
        self.assertIn("| type | bits | file | nearest | search | calibrated | gptq | rotated |", out)
        # Cost of 4 bits: 4, 3, 2.5, 2 and 1.5 of 256 nats; the divergence is half of it.
        self.assertIn("| 4bit/64 | 4.500 | 4.50 MB | 0.0078 | 0.0059 | 0.0049 | 0.0039 | 0.0029 |", out)
        self.assertIn("| 4bit/64 | 4.500 | 4.50 MB | +1.57 % +/- 0.00 | +1.18 %", out)
        self.assertIn("| 2bit-super/32 | 3.000 | 3.00 MB | 87.5 % | 90.6 % | 92.2 % | 93.8 % | 95.3 % |", out)
        # What no step changes is measured once.
        self.assertIn("| 8bit/64 | 8.500 | 8.50 MB | 0.0000 | same | same | same | same |", out)
        calls = fake_tools.take_calls(self.folder)
        self.assertEqual(sum(call.startswith("qsf-perplexity") for call in calls), 1 + 5 + 5 + 1)
        self.assertEqual(sum("--calibration-out" in call for call in calls), 1)
        self.assertTrue(all("--calibration seen.txt" in call for call in calls if "--gptq" in call))
        self.assertTrue(all("--gptq" in call for call in calls if "--rotate values" in call))

    def test_goes_on_where_it_was(self):
        self.measure("--types", "4bit/64", "--steps", "search")
        fake_tools.take_calls(self.folder)
        status, out, _ = self.measure("--types", "4bit/64", "--steps", "search")
        self.assertEqual((status, fake_tools.take_calls(self.folder)), (0, []))
        status, more, _ = self.measure("--types", "4bit/64", "--steps", "search", "gptq")
        self.assertEqual(sum("perplexity" in call for call in fake_tools.take_calls(self.folder)), 1)
        self.assertIn(out.split("| 0.0059")[0].splitlines()[-1] + "| 0.0059 | 0.0039 |", more)

    def test_tokens_of_the_calibration_are_told_where_a_text_is_read(self):
        self.measure("--types", "4bit/64", "--calibration-tokens", "77")
        told = [call for call in fake_tools.take_calls(self.folder) if "--calibration-tokens 77" in call]
        self.assertEqual(["--gptq" in call for call in told], [False, True, True])
        self.assertIn("--calibration-out seen", told[0])

    def test_another_converter_makes_files_again_and_scores_what_differs(self):
        self.measure("--types", "4bit/64", "2bit/64", "--steps", "search")
        fake_tools.take_calls(self.folder)
        with open(os.path.join(self.folder, "qsf-convert"), "a", encoding="utf-8") as file:
            file.write('\nif kind == "2bit": open(args[-1], "a").write("other")\n')
        self.measure("--types", "4bit/64", "2bit/64", "--steps", "search", "--keep-old")
        self.assertEqual(fake_tools.take_calls(self.folder), [])
        self.measure("--types", "4bit/64", "2bit/64", "--steps", "search")
        calls = fake_tools.take_calls(self.folder)
        self.assertEqual(sum(call.startswith("qsf-convert") for call in calls), 3)
        self.assertEqual(sum(call.startswith("qsf-perplexity") for call in calls), 1)

    def test_what_cannot_be_converted_is_left_out_and_named(self):
        status, out, err = self.measure("--types", "3bit", "4bit/64", "--steps", "nearest")
        self.assertEqual(status, 0)
        self.assertIn("3bit/64, nearest: left out: ", err)
        self.assertIn("no such thing here", err)
        self.assertNotIn("| 3bit", out)

    def test_what_cannot_be_scored_ends_it(self):
        with open(os.path.join(self.folder, "qsf-perplexity"), "a", encoding="utf-8") as file:
            file.write('\nif cost: sys.exit("qsf-perplexity: the model is damaged")\n')
        status, _, err = self.measure("--types", "4bit/64", "--steps", "nearest")
        self.assertEqual(status, 1)
        self.assertIn("measure_steps.py: ", err)
        self.assertIn("the model is damaged", err)

    def test_tables_go_to_a_page(self):
        page = os.path.join(self.folder, "page.md")
        names = ("perplexity", "divergence", "top")
        with open(page, "w", encoding="utf-8") as file:
            file.write("".join(f"<!-- begin a-{name} -->\nold\n<!-- end a-{name} -->\n" for name in names))
        self.measure("--types", "4bit/64", "--page", page, "--mark", "a")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("old", text)
        self.assertEqual(text.count("| 4bit/64 |"), 3)
        status, _, err = self.measure("--types", "4bit/64", "--page", page, "--mark", "b")
        self.assertEqual(status, 1)
        self.assertIn("no <!-- begin b-perplexity -->", err)

    def test_the_plot_has_searched_types(self):
        with mock.patch.object(measure_steps.model_page, "plot_quality") as plot, \
                mock.patch.object(measure_steps.model_page, "save_png") as save, \
                mock.patch.dict(sys.modules, {"matplotlib": mock.MagicMock(__spec__="here")}):
            self.measure("--types", "4bit/64", "--png", "plot.png")
        self.assertEqual(plot.call_args.args[0], [{"name": "4bit/64", "bytes": 4500000, "kld": 0.005859, "kld_error": 0.000117}])
        save.assert_called_once_with(plot.return_value, "plot.png")
        fake_tools.take_calls(self.folder)
        with mock.patch.dict(sys.modules, {"matplotlib": None}):
            status, _, err = self.measure("--types", "2bit/64", "--png", "plot.png")
        self.assertEqual((status, fake_tools.take_calls(self.folder)), (2, []))
        self.assertIn("measure_steps.py: matplotlib is not installed", err)

    def test_errors_name_what_is_missing(self):
        status, _, err = self.measure(bin_folder="/no/such/folder")
        self.assertEqual(status, 2)
        self.assertIn("/no/such/folder/qsf-convert: no such file; --bin names it", err)
        status, _, err = self.measure("--types", "5bit")
        self.assertEqual(status, 1)
        self.assertIn("5bit: no such type; expected some of 2bit,", err)
        status, _, err = self.measure("--no-runs")
        self.assertEqual(status, 1)
        self.assertIn("nothing was measured yet", err)

    def test_other_texts_are_other_results(self):
        self.measure("--types", "4bit/64", "--steps", "search")
        with self.assertRaises(SystemExit) as ended:
            self.measure("--types", "4bit/64", "--bytes", "10")
        self.assertIn("give another file", str(ended.exception))
        with open(self.results, encoding="utf-8") as file:
            self.assertEqual(list(json.load(file)["values"]["rows"]), ["4bit/64"])


class Types(unittest.TestCase):
    def test_types_are_chosen_by_name_with_or_without_a_block(self):
        self.assertEqual(scored_models.chosen_types(["4bit"]), [("4bit", 64), ("4bit", 32)])
        self.assertEqual(scored_models.chosen_types(["q2_k", "4bit/32"]), [("4bit", 32), ("q2_k", 64)])
        self.assertEqual(scored_models.chosen_types([]), scored_models.TYPES)

    def test_bits_are_those_of_matrices(self):
        tensors = [{"rows": 2, "cols": 10, "bits_per_weight": 4.5}, {"rows": 6, "cols": 10, "bits_per_weight": 2.5},
                   {"rows": 1, "cols": 1000, "bits_per_weight": 32.0}]
        self.assertEqual(scored_models.matrix_bits({"tensors": tensors}), 3.0)


if __name__ == "__main__":
    unittest.main()
