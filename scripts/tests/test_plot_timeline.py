#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of what plot_timeline.py makes of a trace, drawing aside."""

import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import plot_timeline


def tile(start, end, released):
    return {"read_start_ns": start, "read_end_ns": end, "ready_ns": end, "acquired_ns": end, "released_ns": released}


class Timeline(unittest.TestCase):
    def test_leaves_out_tiles_that_are_still_on_their_way(self):
        self.assertEqual(plot_timeline.finished([tile(5, 9, 12), tile(6, 0, 0), tile(0, 3, 4), tile(7, 9, 0)]),
                         [tile(0, 3, 4), tile(5, 9, 12)])

    def test_counts_time_with_a_read_in_flight_once(self):
        overlapping = [tile(0, 10, 11), tile(2, 6, 12), tile(8, 12, 20)]
        self.assertEqual(plot_timeline.reading_share(overlapping), 1.0)
        self.assertEqual(plot_timeline.reading_share([tile(0, 2, 3), tile(6, 8, 9)]), 0.5)


if __name__ == "__main__":
    unittest.main()
