# SPDX-License-Identifier: MIT
"""Tests of check_windows_zip.py on listings and bills, without a zip of ours."""

import json
import unittest

import rooms  # noqa: F401

import check_windows_zip as checker

LIBRARIES = [{"name": "lz4", "source": "lz4"}, {"name": "eigen", "headers_alone": True}]


def bill(*components):
    return json.dumps({"components": [{"name": name, "version": version} for name, version in components]})


class WindowsZipTest(unittest.TestCase):
    def test_a_whole_listing(self):
        names = [*checker.WANTED, "include/qsf/serving.h", "share/doc/qsf/libraries/libstdc++.txt"]
        self.assertEqual(checker.listing_violations(names), [])

    def test_a_file_too_many_and_one_too_few(self):
        names = [name for name in checker.WANTED if name != "bin/qsf.dll"] + ["bin/other.exe"]
        self.assertEqual(checker.listing_violations(names),
                         ["holds bin/other.exe, which it should not", "lacks bin/qsf.dll"])

    def test_a_bill(self):
        names = ["share/doc/qsf/libraries/lz4.txt"]
        self.assertEqual(checker.bill_violations(bill(("lz4", "1"), ("eigen", "3")), LIBRARIES, names), [])
        self.assertEqual(checker.bill_violations(bill(("lz4", ""), ("eigen", "3"), ("glibc", "2")), LIBRARIES, []),
                         ["its bill of materials lists glibc, which is not inside",
                          "its bill of materials has no version of lz4", "lacks the licence of lz4"])

    def test_a_name(self):
        self.assertEqual(checker.violations("qsf.zip"), ["is named qsf.zip, expected qsf-VERSION-windows-x64.zip"])


if __name__ == "__main__":
    unittest.main()
