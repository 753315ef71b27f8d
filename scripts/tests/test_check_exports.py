# SPDX-License-Identifier: MIT
"""Tests of check_exports.py on what nm says about a library."""

import os
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_exports

LIBRARY = """0000000000000000 A QSF_0.1
0000000000000000 A QSF_0.2
0000000000001000 T qsf_free@@QSF_0.1
0000000000001010 T qsf_load@@QSF_0.1
0000000000001020 T qsf_new@@QSF_0.2
"""
RELEASED = "QSF_API void qsf_free(QSFEngine* engine);\nQSF_API QSFEngine*\n    qsf_load(const char* path);\n"
HEADER = RELEASED
MORE = "QSF_API int qsf_new(void);\n"


class ExportsTest(unittest.TestCase):
    def violations(self, output=LIBRARY, lists=None, header=HEADER, released=RELEASED):
        files = {"0.1.symbols": "qsf_free\nqsf_load\n", "0.2.symbols": "qsf_new\n", **(lists or {}),
                 "0.1/qsf/qsf.h": released, "now/qsf.h": header, "now/more.h": MORE}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return check_exports.violations(output, folder, os.path.join(folder, "now"))

    def test_what_was_promised(self):
        self.assertEqual(self.violations(), [])

    def test_a_name_that_is_gone(self):
        self.assertEqual(self.violations(LIBRARY.replace("qsf_load@@QSF_0.1", "qsf_loaf@@QSF_0.1")),
                         ["node QSF_0.1: lacks qsf_load",
                          "node QSF_0.1: has qsf_loaf, which is not expected"])

    def test_a_name_in_another_node(self):
        self.assertEqual(len(self.violations(LIBRARY.replace("qsf_load@@QSF_0.1", "qsf_load@@QSF_0.2"))), 2)

    def test_a_name_without_a_node(self):
        found = self.violations(LIBRARY + "0000000000001030 W _ZSt4swap\n")
        self.assertEqual(len(found), 1)
        self.assertIn("node (none)", found[0])

    def test_a_list_that_was_edited_after_its_release(self):
        lists = {"0.1.symbols": "qsf_free\n", "0.2.symbols": "qsf_load\nqsf_new\n"}
        output = LIBRARY.replace("qsf_load@@QSF_0.1", "qsf_load@@QSF_0.2")
        self.assertEqual(self.violations(output, lists), ["0.1.symbols: lacks qsf_load"])

    def test_a_function_that_no_list_names(self):
        self.assertEqual(self.violations(header=HEADER + "QSF_API int qsf_more(void);\n"),
                         ["the lists: lacks qsf_more"])


if __name__ == "__main__":
    unittest.main()
