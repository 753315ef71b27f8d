#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of how python/tests/run_pytest.py reads the reports of sanitizers."""

import os
import sys
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

sys.path.insert(0, os.path.join(os.path.dirname(rooms.SCRIPTS), "python", "tests"))
import run_pytest  # noqa: E402  behind the path

LEAKS = "==7==ERROR: LeakSanitizer: detected memory leaks"
NUMPY = """Direct leak of 280 byte(s) in 5 object(s) allocated from:
    #0 0x7f in __interceptor_malloc asan_malloc_linux.cpp:69
    #1 0x7f in init_string_ufuncs (/lib/qsf_env/numpy/_multiarray_umath.so+0x2f8915)"""
ENGINE = """Indirect leak of 16 byte(s) in 1 object(s) allocated from:
    #0 0x7f in operator new(unsigned long) asan_new_delete.cpp:95
    #1 0x7f in qsf::Session::Open(int) src/engine/session.cc:10
    #2 0x7f in ffi_call_unix64 (/lib/libffi.so.8+0x7f)"""
STRIPPED = """Direct leak of 16 byte(s) in 1 object(s) allocated from:
    #0 0x7f in __interceptor_malloc asan_malloc_linux.cpp:69
    #1 0x7f  (/build/asan/libqsf.so.0+0x1234)"""
SUMMARY = "SUMMARY: AddressSanitizer: 296 byte(s) leaked in 6 allocation(s)."


class Reports(unittest.TestCase):
    def test_only_leaks_of_the_engine_count(self):
        self.assertEqual(run_pytest.errors_of("\n\n".join((LEAKS, NUMPY, SUMMARY))), [])
        self.assertEqual(run_pytest.errors_of("\n\n".join((LEAKS, NUMPY, ENGINE, SUMMARY))), [ENGINE])
        self.assertEqual(run_pytest.errors_of("\n\n".join((LEAKS, STRIPPED, SUMMARY))), [STRIPPED])

    def test_every_other_report_counts(self):
        for report in ("==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60\n",
                       "src/a.cc:1:2: runtime error: signed integer overflow\n"):
            self.assertEqual(run_pytest.errors_of(report), [report])

    def test_an_empty_report_is_none(self):
        self.assertEqual(run_pytest.errors_of("\n"), [])


if __name__ == "__main__":
    unittest.main()
