# SPDX-License-Identifier: MIT
"""Tests of check_weak_symbols.py: planted weak definitions are found, clean objects give none."""

import os
import subprocess
import sys
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_weak_symbols

CLEAN = "namespace { int twice(int x) { return 2 * x; } }\nint f(int x) { return twice(x); }\n"
INLINE_FUNCTION = "inline int g(int x) { return x + 1; }\nint (*f())(int) { return g; }\n"
TEMPLATE = "template <int N> int g(int x) { return x + N; }\nint (*f())(int) { return g<3>; }\n"
INLINE_VARIABLE = "inline int shared = 3;\nint f() { return shared++; }\n"
STATIC_LOCAL = "inline int& g() { static int n = 0; return n; }\nint f() { return ++g(); }\n"


class WeakSymbolsCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def build(self, name, source, *flags):
        path = os.path.join(self.folder.name, name)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-x", "c++", "-c", "-O1",
                        *flags, "-o", path, "-"], input=source, text=True, check=True)
        return path

    def check(self, *paths):
        script = os.path.abspath(check_weak_symbols.__file__)
        return subprocess.run([sys.executable, script, *paths], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def test_clean_object_passes(self):
        self.build("a_avx2.cc.o", CLEAN)
        result = self.check(self.folder.name)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("1 objects", result.stdout)

    def test_every_kind_of_weak_definition_is_found(self):
        for source, symbol in ((INLINE_FUNCTION, "g(int)"), (TEMPLATE, "g<3>"),
                               (INLINE_VARIABLE, "shared"), (STATIC_LOCAL, "g()::n")):
            path = self.build("a_scalar.cc.o", source)
            result = self.check(path)
            self.assertEqual(result.returncode, 1, source + result.stdout)
            self.assertIn(symbol, result.stdout)

    def test_every_tier_counts_and_other_objects_do_not(self):
        for tier in ("scalar", "sse42", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512vbmi", "amx",
                     "neon", "neondot", "neoni8mm"):
            path = self.build(f"kernel_{tier}.cc.o", INLINE_FUNCTION)
            self.assertEqual(self.check(path).returncode, 1, tier)
            os.remove(path)
        self.build("ordinary.cc.o", INLINE_FUNCTION)
        self.build("a_avx2.cc.o", CLEAN)
        self.assertEqual(self.check(self.folder.name).returncode, 0)

    def test_nothing_to_check_is_an_error(self):
        self.build("ordinary.cc.o", CLEAN)
        self.assertEqual(self.check(self.folder.name).returncode, 2)
        self.assertEqual(self.check().returncode, 2)

    def test_object_without_definitions_is_an_error(self):
        path = self.build("a_avx2.cc.o", "")
        self.assertEqual(self.check(path).returncode, 2)

    def listed(self, *sources):
        path = os.path.join(self.folder.name, "isa_sources.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(source + "\n" for source in sources))
        return self.check("--sources", path, self.folder.name)

    def test_every_listed_source_has_its_object(self):
        os.mkdir(os.path.join(self.folder.name, "norm"))
        self.build("norm/norm_avx2.cc.o", CLEAN)
        self.assertEqual(self.listed("norm/norm_avx2.cc").returncode, 0)
        result = self.listed("norm/norm_avx2.cc", "norm/norm_avx512.cc")
        self.assertEqual(result.returncode, 2)
        self.assertIn("norm/norm_avx512.cc", result.stdout)
        for source in ("other/norm_avx2.cc", "rm/norm_avx2.cc"):
            self.assertEqual(self.listed(source).returncode, 2, source)

    def test_an_empty_list_is_an_error(self):
        self.build("norm_avx2.cc.o", CLEAN)
        self.assertEqual(self.listed().returncode, 2)


if __name__ == "__main__":
    unittest.main()
