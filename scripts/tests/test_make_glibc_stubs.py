# SPDX-License-Identifier: MIT
"""Tests of make_glibc_stubs.py: what it takes from a list of symbols, and libraries that link with it."""

import contextlib
import ctypes
import io
import os
import shutil
import subprocess
import tempfile
import unittest

import rooms

import check_glibc
import make_glibc_stubs

SYMBOLS = """
   224: 0000000000140720    37 FUNC    GLOBAL DEFAULT   15 getrandom@@GLIBC_2.25
   225: 0000000000089380   123 FUNC    GLOBAL DEFAULT   15 pthread_create@@GLIBC_2.34
   226: 0000000000089380   123 FUNC    GLOBAL DEFAULT   15 pthread_create@GLIBC_2.2.5
   227: 0000000000080000   123 FUNC    GLOBAL DEFAULT   15 pthread_self@@GLIBC_2.2.5
   228: 0000000000000000   123 FUNC    GLOBAL DEFAULT   15 stat@@GLIBC_2.33
   229: 00000000000a0000    20 IFUNC   GLOBAL DEFAULT   15 memcpy@@GLIBC_2.14
   230: 00000000000a0000    20 IFUNC   GLOBAL DEFAULT   15 memcpy@GLIBC_2.2.5
   231: 00000000001d2840     8 OBJECT  GLOBAL DEFAULT   33 stdout@@GLIBC_2.2.5
   232: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND _dl_find_dso@GLIBC_PRIVATE
   233: 0000000000000000     4 TLS     GLOBAL DEFAULT   25 errno@@GLIBC_PRIVATE
   234: 0000000000089000     9 FUNC    GLOBAL DEFAULT   15 posix_spawn@@GLIBC_2.15
   235: 0000000000089000     9 FUNC    GLOBAL DEFAULT   15 posix_spawn@GLIBC_2.2.5
"""


class ChoiceTest(unittest.TestCase):
    def chosen(self, limit):
        symbols = make_glibc_stubs.parse_symbols(SYMBOLS)
        chosen = make_glibc_stubs.choose(symbols, "libc.so.6", limit)
        return {library: {entry[0]: entry[1] for entry in entries} for library, entries in chosen.items()}

    def test_the_newest_that_is_old_enough(self):
        library = self.chosen((2, 28))["libc.so.6"]
        self.assertEqual(library, {"getrandom": "GLIBC_2.25", "memcpy": "GLIBC_2.14", "pthread_self": "GLIBC_2.2.5",
                                   "stdout": "GLIBC_2.2.5", "posix_spawn": "GLIBC_2.15"})

    def test_what_has_moved_goes_where_it_was(self):
        self.assertEqual(self.chosen((2, 28))["libpthread.so.0"], {"pthread_create": "GLIBC_2.2.5"})
        self.assertEqual(self.chosen((2, 36))["libc.so.6"]["pthread_create"], "GLIBC_2.34")

    def test_what_is_younger_is_left_out(self):
        self.assertNotIn("stat", self.chosen((2, 28))["libc.so.6"])
        self.assertNotIn("getrandom", self.chosen((2, 24))["libc.so.6"])
        self.assertEqual(self.chosen((2, 13))["libc.so.6"]["memcpy"], "GLIBC_2.2.5")

    def test_kinds(self):
        symbols = make_glibc_stubs.parse_symbols(SYMBOLS)
        self.assertEqual(symbols["stdout"], {"GLIBC_2.2.5": ("OBJECT", 8)})
        self.assertEqual(symbols["memcpy"]["GLIBC_2.14"][0], "FUNC")
        self.assertNotIn("errno", symbols)


@unittest.skipUnless(shutil.which("gcc") and os.path.exists("/lib64/ld-linux-x86-64.so.2"), "needs gcc for x86_64 and glibc")
class LinkTest(unittest.TestCase):
    """Links libraries of C with the stubs for 2.28."""

    SUBSTITUTES = os.path.join(os.path.dirname(rooms.SCRIPTS), "packaging", "wheel", "glibc_substitutes.c")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.stubs = os.path.join(cls.folder, "stubs")
        assert make_glibc_stubs.main(["--max", "2.28", "--compiler", "gcc", "--to", cls.stubs]) == 0

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def link(self, source, *arguments):
        """Returns (library, what the compiler said)."""
        path = os.path.join(self.folder, self.id().rsplit(".", maxsplit=1)[-1])
        with open(path + ".c", "w", encoding="ascii") as file:
            file.write(source)
        done = subprocess.run(["gcc", "-shared", "-fPIC", "-o", path + ".so", path + ".c", "-Wl,--no-undefined",
                               *arguments], capture_output=True, text=True, check=False)
        return path + ".so", done.stderr

    def check(self, library, limit):
        with contextlib.redirect_stdout(io.StringIO()):
            return check_glibc.main(["--max", limit, library])

    POWER = "#include <math.h>\n#include <stdlib.h>\ndouble qsf_f(double x) { return pow(x, 0.5) + abs(-1); }\n"

    def test_an_old_symbol_is_taken(self):
        plain, _ = self.link(self.POWER, "-lm")
        self.assertEqual(self.check(plain, "2.28"), 1)  # pow is of 2.29
        old, said = self.link(self.POWER, "-L" + self.stubs, "-lm")
        self.assertEqual(said, "")
        self.assertEqual(self.check(old, "2.28"), 0)
        function = ctypes.CDLL(old).qsf_f
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        self.assertEqual(function(9.0), 4.0)

    def test_a_younger_symbol_cannot_be_linked(self):
        source = "#include <sys/stat.h>\nint qsf_f(struct stat* s) { return stat(\"/\", s); }\n"
        _, said = self.link(source, "-L" + self.stubs)
        self.assertIn("undefined reference to `stat'", said)

    def test_the_substitutes(self):
        source = """
            #define _GNU_SOURCE
            #include <errno.h>
            #include <pthread.h>
            #include <stdlib.h>
            #include <sys/stat.h>
            #include <time.h>
            int qsf_directory(const char* path) {
              struct stat s, l;
              return stat(path, &s) == 0 && lstat(path, &l) == 0 && s.st_ino == l.st_ino ? S_ISDIR(s.st_mode) : -errno;
            }
            unsigned arc4random(void);
            int qsf_random(void) { return arc4random() != arc4random() || arc4random() != arc4random(); }
            int qsf_wait(long nanoseconds) {
              pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
              pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
              struct timespec until, end;
              clock_gettime(CLOCK_MONOTONIC, &until);
              until.tv_nsec += nanoseconds;
              until.tv_sec += until.tv_nsec / 1000000000;
              until.tv_nsec %= 1000000000;
              pthread_mutex_lock(&mutex);
              int code = pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until);
              pthread_mutex_unlock(&mutex);
              clock_gettime(CLOCK_MONOTONIC, &end);
              long late = (end.tv_sec - until.tv_sec) * 1000000000 + end.tv_nsec - until.tv_nsec;
              return code == ETIMEDOUT && late > -20000000 ? 0 : 1;
            }
            int qsf_no_clock(void) {
              pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
              pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
              struct timespec until = {0, 0};
              return pthread_cond_clockwait(&condition, &mutex, 1000, &until) == EINVAL;
            }
        """
        old, said = self.link(source, self.SUBSTITUTES, "-L" + self.stubs)
        self.assertEqual(said, "")
        self.assertEqual(self.check(old, "2.28"), 0)
        library = ctypes.CDLL(old)
        self.assertEqual(library.qsf_directory(self.folder.encode()), 1)
        self.assertEqual(library.qsf_directory(old.encode()), 0)
        self.assertEqual(library.qsf_directory(b"/no such file"), -2)
        self.assertEqual(library.qsf_random(), 1)
        for nanoseconds in (0, 30_000_000, -1_000_000, 999_999_999 if os.environ.get("CI") else 50_000_000):
            self.assertEqual(library.qsf_wait(ctypes.c_long(nanoseconds)), 0, nanoseconds)
        self.assertEqual(library.qsf_no_clock(), 1)

    def test_a_compiler_without_a_c_library(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(make_glibc_stubs.main(["--max", "2.28", "--compiler", "true", "--to", self.stubs]), 1)
        self.assertIn("make_glibc_stubs:", said.getvalue())

    def test_a_version_that_has_nothing(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(make_glibc_stubs.main(["--max", "1.0", "--compiler", "gcc", "--to", self.folder]), 1)
        self.assertIn("1.0", said.getvalue())


if __name__ == "__main__":
    unittest.main()
