# SPDX-License-Identifier: MIT
"""Tests of check_linkage.py on what readelf says about programs."""

import os
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_linkage

SHARED = """
Program Headers:
  Type           Offset   VirtAddr
  INTERP         0x000318 0x0000000000000318
      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]
 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [ld-linux-x86-64.so.2]
"""
STATIC = """
Program Headers:
  Type           Offset   VirtAddr
  LOAD           0x000000 0x0000000000000000
"""


class LinkageTest(unittest.TestCase):
    def test_the_c_library_alone(self):
        self.assertEqual(check_linkage.violations("p", SHARED, False), [])

    def test_another_library(self):
        text = SHARED.replace("libm.so.6", "libpcre2-8.so.0")
        self.assertEqual(check_linkage.violations("p", text, False), ["p: needs libpcre2-8.so.0"])

    def test_the_c_library_of_another_name_is_another_library(self):
        text = SHARED.replace("libm.so.6", "libstdc++.so.6")
        self.assertEqual(len(check_linkage.violations("p", text, False)), 1)

    def test_static(self):
        self.assertEqual(check_linkage.violations("p", STATIC, True), [])
        self.assertEqual(len(check_linkage.violations("p", SHARED, True)), 4)

    def test_a_static_program_where_a_shared_one_is_expected(self):
        self.assertEqual(len(check_linkage.violations("p", STATIC, False)), 1)

    def test_nothing_to_check(self):
        self.assertEqual(check_linkage.main(["--static"]), 2)
        self.assertEqual(check_linkage.main([os.path.abspath(__file__)]), 2)


if __name__ == "__main__":
    unittest.main()
