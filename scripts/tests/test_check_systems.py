# SPDX-License-Identifier: MIT
"""Tests of check_systems.py: each planted violation is found, and clean files give none."""

import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_systems
import repo_files

RULES = """\
# comment
system posix : unistd.h sys/
system linux posix : sys/auxv.h linux/ /proc
anywhere : zstd.h
left tools/run/editor.cc
instead base/bits.h : std::bit_cast
instead base/ranges.h : std::ranges
except src/kv/cache.cc : std::bit_cast
"""
FILES = {"include/qsf/qsf.h"}


def violations_of(path, text):
    systems = check_systems.read_systems(RULES)
    assert systems.violations == []
    return check_systems.check_file(systems, path, text, FILES)


class RulesTest(unittest.TestCase):
    def test_lines_of_no_rule_are_refused(self):
        for line in ("nonsense", "system : a.h", "system a b c : d.h", "system linux :", "left a : b",
                     "anywhere x : a.h", "instead base/a.h :", "except : std::pow"):
            self.assertEqual(len(check_systems.read_systems(RULES + line + "\n").violations), 1, line)

    def test_the_real_rules_are_sound_and_hold(self):
        violations, n_files = check_systems.check(repo_files.repository_root())
        self.assertEqual(violations, [])
        self.assertGreater(n_files, 500)


class HeaderTest(unittest.TestCase):
    def test_headers_of_a_system_are_for_files_named_for_it(self):
        for header, path, n in (("unistd.h", "src/io/file.cc", 1), ("unistd.h", "src/io/file.h", 1),
                                ("unistd.h", "src/io/file_posix.cc", 0), ("unistd.h", "src/io/file_linux.cc", 0),
                                ("sys/stat.h", "src/io/file_posix.cc", 0), ("sys/stat.h", "tools/run/x.cc", 1),
                                ("linux/magic.h", "src/io/file_posix.cc", 1),
                                ("sys/auxv.h", "src/io/file_posix.cc", 1), ("sys/auxv.h", "src/io/a_linux.cc", 0),
                                ("unistd.h", "src/io/file_windows.cc", 1), ("unistd.h", "src/io/posix_file.h", 1)):
            self.assertEqual(len(violations_of(path, f"#include <{header}>\n")), n, (header, path))

    def test_the_line_and_what_to_do_are_said(self):
        self.assertEqual(violations_of("src/io/file.cc", "\n#  include <linux/magic.h>\n"),
                         ["src/io/file.cc:2: <linux/magic.h> is for files named *_linux.cc: move what needs it "
                          "there, behind a header without systems"])

    def test_unknown_headers_are_refused_and_others_are_not(self):
        self.assertEqual(len(violations_of("src/io/file_linux.cc", "#include <windows.h>\n")), 1)
        self.assertEqual(violations_of("src/io/file.cc", "#include <zstd.h>\n#include <vector>\n"
                                       "#include <qsf/qsf.h>\n#include <boost/asio.hpp>\n"), [])

    def test_comments_count_for_nothing(self):
        self.assertEqual(violations_of("src/io/file.cc", "// #include <unistd.h>, \"/proc/x\", std::bit_cast\n"), [])


class LiteralTest(unittest.TestCase):
    def test_paths_of_a_system_are_for_files_named_for_it(self):
        for literal, n in (("/proc/self/exe", 1), ("/proc", 1), ("/process", 0), ("in /proc/x", 0)):
            text = f'auto f = open(root + "{literal}");\n'
            self.assertEqual(len(violations_of("src/io/file.cc", text)), n, literal)
            self.assertEqual(len(violations_of("src/io/file_posix.cc", text)), n, literal)
            self.assertEqual(violations_of("src/io/file_linux.cc", text), [])


class LeftTest(unittest.TestCase):
    def test_what_is_left_may_know_a_system_until_it_no_longer_does(self):
        self.assertEqual(violations_of("tools/run/editor.cc", "#include <unistd.h>\n"), [])
        self.assertEqual(violations_of("tools/run/editor.cc", "#include <vector>\n"),
                         ["src/systems.txt:5: tools/run/editor.cc has no headers of systems any more: "
                          "remove the line"])


class NameTest(unittest.TestCase):
    def test_names_with_a_substitute_are_refused_in_src(self):
        text = "auto a = std::bit_cast<int>(x);\nstd::ranges::sort(v);\n"
        self.assertEqual(violations_of("src/io/file.cc", text),
                         ['src/io/file.cc:1: std::bit_cast: use that of "base/bits.h", which says why',
                          'src/io/file.cc:2: std::ranges: use that of "base/ranges.h", which says why'])
        self.assertEqual(violations_of("tools/run/file.cc", text), [])

    def test_the_header_itself_and_exceptions_may_use_them(self):
        for path in ("src/base/bits.h", "src/base/bits.cc", "src/kv/cache.cc"):
            self.assertEqual(violations_of(path, "std::bit_cast<int>(x);\n"), [], path)
        self.assertEqual(len(violations_of("src/kv/cache.cc", "std::ranges::sort(v);\n")), 1)


if __name__ == "__main__":
    unittest.main()
