# SPDX-License-Identifier: MIT
"""Tests of plot_target_sizes.py: what it calls a fault, and its table."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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
        lines = sizes.table([row("b", 2000, 0.1, 0.05), row("a", 1000, 0.2, 0.15)])
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[2].startswith("| a | 1,000 | +10.00 % | 0.200000 | 1,000 | +5.00 % | 0.150000 |"))
        self.assertTrue(lines[3].endswith("| 50 % |"))

    def test_takes_the_place_between_the_marks(self):
        page = f"before\n{sizes.BEGIN}\nold\n{sizes.END}\nbehind\n"
        self.assertEqual(sizes.put_into_page(page, ["new"]), f"before\n{sizes.BEGIN}\nnew\n{sizes.END}\nbehind\n")
        for broken in ("", sizes.BEGIN, f"{sizes.END}{sizes.BEGIN}"):
            with self.assertRaises(ValueError):
                sizes.put_into_page(broken, ["new"])


if __name__ == "__main__":
    unittest.main()
