# SPDX-License-Identifier: MIT
"""Tests of plot_target_sizes.py: what it calls a fault, and its table."""

import os
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import fake_tools
import plot_target_sizes as sizes


def row(name, size, uniform, target, n_bytes=None):
    return {"name": name, "size": size, "uniform": {"bytes": size, "kld": uniform, "over": 0.1},
            "target": {"bytes": n_bytes or size, "kld": target, "over": 0.05, "expected": target}}


class FindFaults(unittest.TestCase):
    def test_nothing_where_all_is_well(self):
        self.assertEqual(sizes.find_faults([row("b", 200, 0.1, 0.05), row("a", 100, 0.2, 0.15)]), [])

    def test_a_larger_file_that_is_no_closer(self):
        for kld in (0.15, 0.16, float("nan")):
            faults = sizes.find_faults([row("a", 100, 0.2, 0.15), row("b", 200, 0.3, kld)])
            self.assertTrue(any("of the smaller file for a" in fault for fault in faults), kld)

    def test_a_uniform_file_that_is_closer(self):
        for kld in (0.1, 0.11):
            faults = sizes.find_faults([row("a", 100, 0.1, kld)])
            self.assertEqual(len(faults), 1)
            self.assertIn("the uniform file of its size", faults[0])

    def test_a_file_of_too_many_bytes(self):
        faults = sizes.find_faults([row("a", 100, 0.2, 0.1, 101)])
        self.assertEqual(len(faults), 1)
        self.assertIn("at most 100", faults[0])


class Table(unittest.TestCase):
    def test_rows_stand_by_size(self):
        lines = sizes.size_table([row("b", 2000, 0.1, 0.05), row("a", 1000, 0.2, 0.15)]).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[2].startswith("| a | 1,000 | +10.00 % | 0.200000 | 1,000 | +5.00 % | 0.150000 |"))
        self.assertTrue(lines[3].endswith("| 50 % |"))


class Script(fake_tools.ScriptTest):
    def measure(self, *options, types=(("2bit-super", 32), ("4bit-table", None))):
        model, text, calibration = self.inputs
        self.results = os.path.join(self.folder, "results.json")
        with mock.patch.object(sizes, "UNIFORM", types):
            return self.run_main(sizes, model, text, self.results, "--calibration", calibration, "--bin", self.folder, *options)

    def test_sizes_are_those_of_uniform_files(self):
        page = os.path.join(self.folder, "page.md")
        with open(page, "w", encoding="utf-8") as file:
            file.write("<!-- begin target-sizes -->\nold\n<!-- end target-sizes -->\n")
        status, out, err = self.measure("--page", page)
        self.assertEqual(status, 0, err)
        # Of 2 and 4 bits with scales calibrated, and of the whole size in bits: halves of 2.5 / 4^2 and 2 / 4^3.
        self.assertIn("| 2bit-super/32 | 3,000 | +16.91 % | 0.078125 | 3,000 | +3.17 % | 0.015625 | 0.125000 | 80 % |", out)
        self.assertIn("| 4bit-table | 4,500 | +0.98 % | 0.004883 | 4,500 | +0.39 % | 0.001953 | 0.125000 | 60 % |", out)
        calls = [call for call in fake_tools.take_calls(self.folder) if call.startswith("qsf-convert")]
        self.assertEqual(["--calibration-out" in call for call in calls], [False, True, False, False, False, False])
        self.assertTrue(all("--calibration results.json.calibration" in call for call in calls[2:]))
        with open(page, encoding="utf-8") as file:
            self.assertEqual(file.read(), f"<!-- begin target-sizes -->\n{out}<!-- end target-sizes -->\n")

    def test_a_fault_ends_it_with_one_and_is_named(self):
        status, _, err = self.measure(types=(("2bit-table", None), ("q2_k", None)))
        self.assertEqual(status, 1)
        self.assertIn("q2_k: divergence 0.031250 is not below 0.031250 of the smaller file for 2bit-table\n", err)

    def test_goes_on_where_it_was(self):
        self.measure(types=[("2bit-super", 32)])
        fake_tools.take_calls(self.folder)
        status, out, err = self.measure("--no-runs")
        self.assertEqual((status, out, fake_tools.take_calls(self.folder)), (1, "", []))
        self.assertIn("results.json: 4bit-table was not measured yet: run without --no-runs", err)
        _, out, _ = self.measure()
        calls = fake_tools.take_calls(self.folder)
        self.assertEqual([sum(call.startswith(tool) for call in calls) for tool in ("qsf-convert", "qsf-perplexity")], [3, 2])
        self.assertEqual(self.measure("--no-runs")[:2], (0, out))
        self.assertEqual(fake_tools.take_calls(self.folder), [])

    def test_a_calibration_without_its_results_is_made_again(self):
        self.measure()
        os.remove(self.results)
        fake_tools.take_calls(self.folder)
        self.measure("--calibration-bytes", "10")
        self.assertEqual(sum("--calibration-out" in call for call in fake_tools.take_calls(self.folder)), 1)

    def test_errors_name_what_is_missing(self):
        status, _, err = self.measure("--bin", "/no/such/folder")
        self.assertEqual(status, 2)
        self.assertIn("plot_target_sizes.py: /no/such/folder/qsf-perplexity: no such file; --bin names it", err)


if __name__ == "__main__":
    unittest.main()
