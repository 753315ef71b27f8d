# SPDX-License-Identifier: MIT
"""Tests of what measure_python.py --budget calls a kept budget, with runs that only seem to be."""

import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import fake_groups
import measure_python
from control_group import NoControlGroup
from fake_groups import MB, setting


def run_python(run, command, _):
    has_model = "m.qsf" in command
    run.peak_bytes, run.stdout = (99 if has_model else 70) * MB, b"512\n" if has_model else b""


class Budget(unittest.TestCase):
    def measure(self, changes=None, do=run_python):
        self.groups = fake_groups.Groups(do, changes)
        return self.groups.run_main(measure_python, "m.qsf", "--budget", "100")

    def test_a_kept_budget(self):
        status, out, _ = self.measure()
        self.assertEqual(status, 0, out)
        self.assertEqual(self.groups.limits, [800 * MB, 100 * MB, 800 * MB])
        self.assertIn("peak 70.0 MB", out)
        self.assertIn("512 tokens, peak 99.0 MB", out)

    def test_each_way_to_break_it(self):
        broken = ({0: setting(status=1)}, {1: setting(status=1)}, {1: setting(oom_kills=1)},
                  {2: setting(peak_bytes=100 * MB + 1)}, {2: setting(status=-9)})
        for changes in broken:
            status, out, _ = self.measure(changes)
            self.assertEqual(status, 1, out)
            self.assertEqual(len(self.groups.commands), 3)

    def test_without_control_groups(self):
        def refuse(*_):
            raise NoControlGroup("run as root")
        status, _, err = self.measure(do=refuse)
        self.assertEqual((status, err), (2, "measure_python.py: run as root\n"))


if __name__ == "__main__":
    unittest.main()
