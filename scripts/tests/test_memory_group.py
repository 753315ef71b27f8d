#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of control groups: a program within its limit, and one beyond it. Skipped, saying so, where
none can be made."""

import os
import sys
import tempfile
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import memory_group

LIMIT = 64 << 20


class MemoryGroupTest(unittest.TestCase):
    def run_with(self, n_bytes):
        try:
            with memory_group.MemoryGroup(LIMIT) as group:
                return group.run([sys.executable, "-c", f"bytearray({n_bytes})"], cold=False)
        except memory_group.NoMemoryGroup as error:
            self.skipTest(str(error))

    def test_counts_what_a_program_takes(self):
        run = self.run_with(32 << 20)
        self.assertEqual((run.status, run.oom_kills), (0, 0), run.stderr)
        self.assertGreater(run.peak_bytes, 32 << 20)
        self.assertLessEqual(run.peak_bytes, LIMIT)

    def test_sees_a_program_killed(self):
        run = self.run_with(128 << 20)
        self.assertNotEqual(run.status, 0)
        self.assertGreater(run.oom_kills, 0)

    def test_signals_all_that_are_left(self):
        group = memory_group.MemoryGroup.__new__(memory_group.MemoryGroup)
        with tempfile.TemporaryDirectory() as group.path, \
                mock.patch.object(memory_group.os, "kill", side_effect=[ProcessLookupError, None]) as kill:
            with open(os.path.join(group.path, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write("11\n12\n")
            group.signal(9)
        self.assertEqual(kill.call_args_list, [mock.call(11, 9), mock.call(12, 9)])


if __name__ == "__main__":
    unittest.main()
