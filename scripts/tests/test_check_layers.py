# SPDX-License-Identifier: MIT
"""Tests of check_layers.py: each planted violation is found, and clean files give none."""

import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_layers
import repo_files

TABLE = """\
# comment
0 qsf     :
0 base    :
0 memory  : base
1 kernels : base
2 kv      : base kernels
7 tools   : qsf
extra tools/convert : base
tests kv : memory
"""

FILES = {"src/base/status.h", "src/memory/plan.h", "src/kernels/isa.h", "src/kernels/dot/dot.h",
         "src/kernels/norm/norm.h", "src/kernels/testing/reference.h", "src/kv/cache.h",
         "include/qsf/qsf.h", "tools/run/common.h"}


def violations_of(path, text):
    layers = check_layers.read_layers(TABLE)
    assert layers.violations == []
    return check_layers.check_file(layers, path, text, FILES)


class TableTest(unittest.TestCase):
    def test_upward_and_sideways_arrows_are_refused(self):
        for line in ("1 io : kernels", "0 low : kernels", "1 io : nowhere", "0 base :", "nonsense"):
            layers = check_layers.read_layers(TABLE + line + "\n")
            self.assertEqual(len(layers.violations), 1, line)

    def test_level_zero_follows_the_order_of_the_page(self):
        self.assertEqual(check_layers.read_layers("0 a :\n0 b : a\n").violations, [])
        self.assertEqual(len(check_layers.read_layers("0 a : b\n0 b :\n").violations), 1)

    def test_the_real_table_is_sound(self):
        root = repo_files.repository_root()
        text = repo_files.read_text(root, "src/layers.txt")
        layers = check_layers.read_layers(text)
        self.assertEqual(layers.violations, [])
        self.assertIn("engine", layers.allowed["capi"])


class PageTest(unittest.TestCase):
    def test_the_page_says_what_the_table_says(self):
        layers = check_layers.read_layers(TABLE)
        page = "| 2 | `src/kv/` | keys, values | base kernels |\n| 0 | `src/base/` | all | |\n"
        self.assertEqual(check_layers.check_page(layers, page), [])
        for old, new in (("base kernels", "base"), ("| 2 |", "| 3 |"), ("src/kv/", "src/kw/")):
            self.assertEqual(len(check_layers.check_page(layers, page.replace(old, new))), 1)

    def test_a_long_list_has_a_short_form(self):
        layers = check_layers.read_layers(TABLE)
        page = "| 2 | `src/kv/` | keys, values | levels 0 to 1 except %s |\n"
        others = set(name for name in layers.level if layers.level[name] <= 1) - layers.allowed["kv"]
        self.assertEqual(check_layers.check_page(layers, page % (" ".join(sorted(others)) or "none")), [])
        self.assertEqual(len(check_layers.check_page(layers, page % "base")), 1)


class IncludeTest(unittest.TestCase):
    def test_allowed_includes_pass(self):
        self.assertEqual(violations_of("src/kv/cache.cc", '#include "kernels/isa.h"\n'
                                       '#include "kv/cache.h"\n#include <vector>\n'), [])

    def test_a_higher_layer_is_refused_with_file_line_and_list(self):
        found = violations_of("src/kernels/dot/dot.cc", '\n#include "kv/cache.h"\n')
        self.assertEqual(found, ['src/kernels/dot/dot.cc:2: kernels may not include "kv/cache.h"; '
                                 "allowed: base kernels"])

    def test_a_lower_layer_that_is_not_named_is_refused(self):
        self.assertEqual(len(violations_of("src/kv/cache.cc", '#include "memory/plan.h"\n')), 1)

    def test_tests_get_their_additions(self):
        self.assertEqual(violations_of("src/kv/cache_test.cc", '#include "memory/plan.h"\n'), [])

    def test_test_support_is_for_tests(self):
        line = '#include "kernels/testing/reference.h"\n'
        self.assertEqual(len(violations_of("src/kv/cache.cc", line)), 1)
        self.assertEqual(violations_of("src/kv/cache_test.cc", line), [])
        self.assertEqual(violations_of("src/kernels/testing/reference.cc", line), [])

    def test_gtest_is_for_tests(self):
        self.assertEqual(len(violations_of("src/kv/cache.cc", "#include <gtest/gtest.h>\n")), 1)
        self.assertEqual(violations_of("src/kv/cache_test.cc", "#include <gtest/gtest.h>\n"), [])

    def test_tools_see_the_public_header_and_their_extras(self):
        self.assertEqual(violations_of("tools/run/qsf_run.cc", '#include "qsf/qsf.h"\n'), [])
        self.assertEqual(violations_of("tools/run/qsf_run.cc", "#include <qsf/qsf.h>\n"), [])
        self.assertEqual(len(violations_of("src/kv/cache.cc", "#include <qsf/qsf.h>\n")), 1)
        self.assertEqual(violations_of("tools/run/qsf_run.cc", '#include "common.h"\n'), [])
        self.assertEqual(len(violations_of("tools/run/qsf_run.cc", '#include "base/status.h"\n')), 1)
        self.assertEqual(violations_of("tools/convert/qsf_convert.cc", '#include "base/status.h"\n'), [])

    def test_unknown_files_and_folders(self):
        self.assertEqual(len(violations_of("src/kv/cache.cc", '#include "kv/gone.h"\n')), 1)
        self.assertEqual(len(violations_of("src/kv/cache.cc", '#include "cache.h"\n')), 1)
        self.assertEqual(len(violations_of("src/novel/a.cc", "\n")), 1)

    def test_our_headers_are_not_included_as_libraries(self):
        self.assertEqual(len(violations_of("src/kv/cache.cc", "#include <base/status.h>\n")), 1)

    def test_files_of_one_instruction_set_include_little(self):
        path = "src/kernels/dot/dot_q4_avx2.cc"
        self.assertEqual(violations_of(path, '#include "kernels/dot/dot.h"\n'
                                       '#include "kernels/isa.h"\n'), [])
        self.assertEqual(len(violations_of(path, '#include "base/status.h"\n')), 1)
        self.assertEqual(len(violations_of(path, '#include "kernels/norm/norm.h"\n')), 1)

    def test_comments_do_not_count(self):
        text = '// #include "kv/cache.h"\n/*\n#include "kv/cache.h"\n*/\n'
        self.assertEqual(violations_of("src/base/a.cc", text), [])


class BasenameTest(unittest.TestCase):
    def test_doubles_are_found_outside_data(self):
        self.assertEqual(len(check_layers.check_basenames(["src/a/x.cc", "src/b/x.cc"])), 1)
        self.assertEqual(check_layers.check_basenames(
            ["src/a/CMakeLists.txt", "src/b/CMakeLists.txt", "testdata/a/m.qsf", "testdata/b/m.qsf"]),
            [])


if __name__ == "__main__":
    unittest.main()
