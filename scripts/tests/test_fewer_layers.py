#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of measure_fewer_layers.py, with programs that pretend."""

import contextlib
import io
import os
import stat
import tempfile
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import measure_fewer_layers

FAKE = """#!/usr/bin/env python3
import os, sys
quality = float(sys.argv[sys.argv.index("--quality") + 1]) if "--quality" in sys.argv else 0.9
if quality < 0.6:
    sys.exit("quality: leaves too few; use at least 0.600")
if "--bad" in open(sys.argv[1]).read():
    sys.exit("damaged")
if os.path.basename(sys.argv[0]) == "qsf-bench":
    print('{"model": {"weight_bytes_per_token": %d}, "tests": [{"tokens_per_second": {"median": %f}}]}'
          % (1e8 * quality, 10 / quality))
else:
    assert sys.argv[sys.argv.index("--reference") + 1].endswith("reference.qsf")
    print("reference PPL = 20.0000 +/- 1.0")
    print("mean KLD = %.6f +/- 0.1" % (1 - quality))
    print("top-1 agreement = %.3f %% +/- 1.000 %%" % (100 * quality))
    print("PPL = %.4f +/- 1.0" % (20 / quality))
"""


class FewerLayersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for program in ("qsf-perplexity", "qsf-bench"):
            self.write(program, FAKE)
            os.chmod(os.path.join(self.folder, program), stat.S_IRWXU)
        for name in ("model.qsf", "text", "reference.qsf", "smaller.qsf"):
            self.write(name, "")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
            file.write(text)

    def run_main(self, *options):
        """Returns the exit status, stdout and stderr."""
        names = [os.path.join(self.folder, name) for name in ("model.qsf", "text", "reference.qsf")]
        out, err = io.StringIO(), io.StringIO()
        with mock.patch("sys.argv", ["measure_fewer_layers.py", *names, "--bin", self.folder, *options]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = measure_fewer_layers.main()
        return status, out.getvalue(), err.getvalue()

    def test_a_line_for_each_quality_and_file(self):
        status, out, err = self.run_main("--quality", "1,0.8,0.5", "--beside", os.path.join(self.folder, "smaller.qsf"))
        self.assertEqual(status, 0)
        self.assertEqual(out.splitlines()[4:], [
            "| --quality 1 | 100.0 MB | 10.0 | +0.0 % | 0.0000 | 100.0 % |",
            "| --quality 0.8 | 80.0 MB | 12.5 | +25.0 % | 0.2000 | 80.0 % |",
            "| smaller | 90.0 MB | 11.1 | +11.1 % | 0.1000 | 90.0 % |"])
        self.assertIn("use at least 0.600", err)

    def test_failures_end_it(self):
        self.write("model.qsf", "--bad")
        status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("damaged", err)
        os.remove(os.path.join(self.folder, "reference.qsf"))
        status, _, err = self.run_main()
        self.assertEqual(status, 2)
        self.assertIn("REFERENCE", err)


if __name__ == "__main__":
    unittest.main()
