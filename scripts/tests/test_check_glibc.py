# SPDX-License-Identifier: MIT
"""Tests of check_glibc.py on what readelf says about libraries."""

import contextlib
import io
import os
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_glibc

GOOD = """
 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libpthread.so.0]
 0x0000000000000001 (NEEDED)             Shared library: [ld-linux-aarch64.so.1]
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND statx@GLIBC_2.28 (4)
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND pow@GLIBC_2.2.5 (4)
     3: 0000000000000000     0 FUNC    WEAK   DEFAULT  UND __cxa_finalize@GLIBC_2.2.5 (6)
     4: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
     5: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND _Unwind_Resume@GCC_3.0 (7)
     6: 0000000000011111     9 FUNC    GLOBAL DEFAULT   14 qsf_version@@QSF_0.1
     7: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS QSF_0.1
"""


def found(text, limit=(2, 28)):
    return check_glibc.violations("l", text, limit)


class GlibcTest(unittest.TestCase):
    def test_a_library_that_may_be_shipped(self):
        self.assertEqual(found(GOOD), [])

    def test_a_symbol_that_is_too_new(self):
        for new in ("GLIBC_2.29", "GLIBC_2.34", "GLIBC_2.100", "GLIBC_3.0", "GLIBC_2.28.1"):
            self.assertEqual(len(found(GOOD.replace("pow@GLIBC_2.2.5", "pow@" + new))), 1, new)
        self.assertEqual(len(found(GOOD, (2, 27))), 1)
        self.assertEqual(found(GOOD, (2, 28)), [])

    def test_versions_are_compared_as_numbers(self):
        # As text, 2.4 would be newer than 2.28, and 2.100 older.
        self.assertEqual(found(GOOD.replace("pow@GLIBC_2.2.5", "pow@GLIBC_2.4")), [])

    def test_a_weak_symbol_that_is_too_new(self):
        self.assertEqual(len(found(GOOD.replace("__cxa_finalize@GLIBC_2.2.5", "__cxa_finalize@GLIBC_2.36"))), 1)

    def test_what_is_no_version(self):
        for version in ("GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "GLIBCXX_3.4", "CXXABI_1.3", "GCC_7.0.0", "NONE_1"):
            self.assertEqual(len(found(GOOD.replace("pow@GLIBC_2.2.5", "pow@" + version))), 1, version)

    def test_another_library(self):
        for name in ("libstdc++.so.6", "liburing.so.2", "libc.so.7", "libedit.so.2", "xlibc.so.6"):
            self.assertEqual(found(GOOD.replace("libm.so.6", name)), [f"l: needs {name}"])

    def test_a_symbol_of_a_library_without_versions(self):
        self.assertEqual(len(found(GOOD.replace("pow@GLIBC_2.2.5 (4)", "utf8proc_tolower"))), 1)

    def test_a_name_of_others_that_is_exported(self):
        for name in ("ZSTD_compress", "_ZNSt6thread4joinEv", "stat"):
            self.assertEqual(len(found(GOOD.replace("qsf_version@@QSF_0.1", name))), 1, name)
        text = GOOD.replace("GLOBAL DEFAULT   14 qsf_version@@QSF_0.1", "UNIQUE DEFAULT   14 _ZGVx")
        self.assertEqual(len(found(text)), 1)

    def test_nothing_to_check(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(check_glibc.main(["--max", "2.28", os.path.abspath(__file__)]), 2)
            with self.assertRaises(SystemExit):
                check_glibc.main(["--max", "2.28"])
            with self.assertRaises(SystemExit):
                check_glibc.main(["--max", "new", "l"])


if __name__ == "__main__":
    unittest.main()
