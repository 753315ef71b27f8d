# SPDX-License-Identifier: MIT
"""Tests of check_encodings.py, with what an assembler makes of a few instructions."""

import contextlib
import io
import os
import platform
import shutil
import subprocess
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_encodings

AVX2 = "vpaddd %ymm0, %ymm1, %ymm2"
VEX = "{vex} vpdpbusd %ymm0, %ymm1, %ymm2"
EVEX = "{evex} vpdpbusd %ymm0, %ymm1, %ymm2"


@unittest.skipUnless(platform.machine() == "x86_64" and shutil.which("as") and shutil.which("objdump"),
                     "needs as and objdump for x86-64")
class CheckEncodingsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def assemble(self, name, *lines):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["as", "-o", path, "-"], input="\n".join(lines) + "\n", text=True, check=True)

    def check(self, *folders):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = check_encodings.main([os.path.join(self.folder.name, name) for name in folders])
        return status, output.getvalue()

    def test_instructions_of_avx_pass(self):
        self.assemble("a/x_avx2.cc.o", AVX2)
        self.assemble("a/x_avxvnni.cc.o", VEX, VEX)
        self.assertEqual(self.check("a"),
                         (0, "check_encodings: 2 objects, 2 dot products, no AVX-512\n"))

    def test_one_of_avx512_is_found(self):
        self.assemble("a/x_avx2.cc.o", AVX2, "vpaddd %ymm16, %ymm1, %ymm2")
        self.assemble("a/x_avxvnni.cc.o", VEX, EVEX)
        status, text = self.check("a")
        self.assertEqual(status, 1)
        self.assertIn("x_avx2.cc.o: 1 instructions of AVX-512, the first: vpaddd", text)
        self.assertIn("x_avxvnni.cc.o: 1 instructions of AVX-512", text)

    def test_the_shipped_object_counts(self):
        self.assemble("a/x_avxvnni.cc.o", EVEX)
        self.assemble("b/x_avxvnni.cc.o", VEX)
        self.assertEqual(self.check("a", "b")[0], 0)
        self.assertEqual(self.check("a")[0], 1)

    def test_nothing_passes_because_nothing_was_looked_at(self):
        self.assemble("a/x_avx512.cc.o", EVEX)
        self.assertEqual(self.check("a")[0], 2)
        self.assemble("a/x_avx2.cc.o", AVX2)
        self.assertEqual(self.check("a")[0], 2)
        self.assemble("a/y_avx2.cc.o", ".data", ".long 1")
        self.assemble("a/x_avxvnni.cc.o", VEX)
        status, text = self.check("a")
        self.assertEqual(status, 2)
        self.assertIn("no instruction in", text)


if __name__ == "__main__":
    unittest.main()
