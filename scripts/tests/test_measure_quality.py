#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of measure_quality.py with tools that only seem to convert and score."""

import os
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import fake_tools
import measure_quality


class Quality(fake_tools.ScriptTest):
    def measure(self, *options):
        """Returns exit status, the cells of the table's lines, and stderr."""
        status, out, err = self.run_main(measure_quality, *self.inputs[:2], "--bin", self.folder, *options)
        return status, [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()[2:]], err

    def test_increases_are_those_over_f32_where_it_was_measured(self):
        status, lines, _ = self.measure("--types", "4bit/64,f32")
        self.assertEqual((status, [line[:-1] for line in lines]), (0, [
            ["f32", "64", "32.0", "0.03 MB", "20.000 +/- 1.000", "+0.00 %"],
            ["4bit", "64", "4.5", "0.00 MB", "20.312 +/- 1.000", "+1.56 %"]]))
        _, lines, _ = self.measure("--types", "4bit/64")
        self.assertEqual([line[5] for line in lines], [""])

    def test_types_of_keys_and_values_are_over_those_in_f32(self):
        status, lines, _ = self.measure("--kv-types")
        self.assertEqual((status, len(lines)), (0, len(measure_quality.KV_TYPES)))
        self.assertEqual(lines[0][:4], ["f32", "f32", "20.000 +/- 1.000", "+0.00 %"])
        calls = fake_tools.take_calls(self.folder)
        self.assertEqual(sum("--kv-type-k 4 --kv-type-v 2" in call for call in calls), 1)

    def test_errors_say_what_to_do(self):
        status, _, err = self.measure("--types", "q6_k", "--block", "32")
        self.assertEqual(status, 1)
        self.assertIn("no type of --types q6_k has a --block of 32", err)
        os.remove(os.path.join(self.folder, "qsf-inspect"))
        status, _, err = self.measure()
        self.assertEqual(status, 2)
        self.assertIn("qsf-inspect: no such file; --bin names it", err)
        self.assertEqual(fake_tools.take_calls(self.folder), [])


if __name__ == "__main__":
    unittest.main()
