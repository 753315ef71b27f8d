# SPDX-License-Identifier: MIT
"""Tests of check_wheel.py on made-up wheels."""

import contextlib
import io
import json
import os
import tempfile
import unittest
import zipfile
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_wheel

INFO = "qsf-1.2.3.dist-info"
NAMES = [check_wheel.LIBRARY, check_wheel.PROGRAM, "qsf/__init__.py", "qsf/__main__.py", "qsf/compat/llama.py",
         "qsf/py.typed", f"{INFO}/METADATA", f"{INFO}/WHEEL", f"{INFO}/RECORD", f"{INFO}/entry_points.txt",
         f"{INFO}/licenses/LICENSE", f"{INFO}/licenses/NOTICE", f"{INFO}/licenses/packaging/debian/copyright",
         f"{INFO}/licenses/libraries/lz4.txt", f"{INFO}/sboms/qsf.cdx.json"]
LIBRARIES = [{"name": "lz4"}, {"name": "eigen", "headers_alone": True}]
BILL = {"components": [{"name": "lz4", "version": "1"}, {"name": "eigen", "version": "3"}]}


class ListingTest(unittest.TestCase):
    def test_what_a_wheel_holds(self):
        self.assertEqual(check_wheel.listing_violations(NAMES, INFO), [])

    def test_what_it_should_not_hold(self):
        for name in ("qsf/lib/libqsf.so", "qsf.libs/libz.so", "tests/test_qsf.py", "qsf/__pycache__/a.pyc",
                     "qsf/lib/libqsf.a", "qsf/include/qsf.h", f"{INFO}/direct_url.json"):
            self.assertEqual(len(check_wheel.listing_violations([*NAMES, name], INFO)), 1, name)

    def test_what_it_lacks(self):
        for name in (check_wheel.LIBRARY, check_wheel.PROGRAM, "qsf/__init__.py", f"{INFO}/licenses/NOTICE",
                     f"{INFO}/sboms/qsf.cdx.json", f"{INFO}/entry_points.txt"):
            self.assertEqual(len(check_wheel.listing_violations([other for other in NAMES if other != name], INFO)), 1)

    def test_the_bill_of_materials(self):
        self.assertEqual(check_wheel.bill_violations(json.dumps(BILL), LIBRARIES, NAMES, INFO), [])
        without = {"components": BILL["components"][:1]}
        self.assertEqual(len(check_wheel.bill_violations(json.dumps(without), LIBRARIES, NAMES, INFO)), 1)
        unversioned = {"components": [{"name": "lz4"}, {"name": "eigen", "version": "3"}]}
        self.assertEqual(len(check_wheel.bill_violations(json.dumps(unversioned), LIBRARIES, NAMES, INFO)), 1)

    def test_a_licence_that_is_missing(self):
        names = [name for name in NAMES if not name.endswith("lz4.txt")]
        self.assertEqual(check_wheel.bill_violations(json.dumps(BILL), LIBRARIES, names, INFO), ["lacks the licence of lz4"])

    def test_paths_of_the_building_machine(self):
        for path in (b"\0/home/me/qsf/src/base/check.h\0", b"\0/w/src/a.cc\0"):
            self.assertTrue(check_wheel.SOURCE_PATH.search(path), path)
        for path in (b"\0src/base/check.h\0", b"\0../sysdeps/x86/a.c\0", b"\0/usr/include/a.h\0", b"\0/tmp/histedit.XX\0"):
            self.assertFalse(check_wheel.SOURCE_PATH.search(path), path)


class WheelTest(unittest.TestCase):
    """Whole wheels, whose library and program are text."""

    def violations(self, name="qsf-1.2.3-py3-none-manylinux_2_28_x86_64.whl", checked=(), loaded=(), content=b"x",
                   mode=0o755):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            with zipfile.ZipFile(path, "w") as wheel:
                for entry in NAMES:
                    info = zipfile.ZipInfo(entry)
                    info.external_attr = mode << 16
                    wheel.writestr(info, json.dumps(BILL) if entry.endswith(".json") else content)
            with mock.patch.object(check_wheel, "checker_violations", lambda *_: list(checked)), \
                    mock.patch.object(check_wheel, "loading_violations", lambda *_: list(loaded)), \
                    mock.patch.object(check_wheel.json, "load", lambda _: LIBRARIES):
                return check_wheel.violations(path, name.endswith("aarch64.whl"))

    def test_a_wheel_that_may_be_shipped(self):
        self.assertEqual(self.violations(), [])

    def test_a_name_that_is_none(self):
        for name in ("qsf-1.2.3-py3-none-linux_x86_64.whl", "qsf-1.2.3-cp311-cp311-manylinux_2_28_x86_64.whl"):
            self.assertEqual(len(self.violations(name)), 1, name)

    def test_findings_of_the_checkers_are_passed_on(self):
        self.assertEqual(self.violations(checked=["new symbol"]), ["new symbol"] * 2)
        self.assertEqual(self.violations(loaded=["does not load"]), ["does not load"])

    def test_a_foreign_wheel_is_not_loaded(self):
        self.assertEqual(self.violations("qsf-1.2.3-py3-none-manylinux_2_28_aarch64.whl", loaded=["does not load"]), [])

    def test_a_large_wheel(self):
        with mock.patch.object(check_wheel, "MAX_BYTES", 100):
            self.assertEqual(len(self.violations()), 1)

    def test_a_path_of_the_building_machine(self):
        self.assertEqual(len(self.violations(content=b"\0/home/me/src/base/a.cc\0")), 2)

    def test_a_program_that_cannot_be_executed(self):
        self.assertEqual(self.violations(mode=0o644), [f"{check_wheel.PROGRAM} is not executable"])

    def test_nothing_to_check(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(check_wheel.main(["--foreign"]), 2)
            self.assertEqual(check_wheel.main(["no-such-file.whl"]), 2)

    def test_text_is_no_library(self):
        self.assertTrue(check_wheel.checker_violations("check_glibc.py", "--max", "2.28", __file__))


if __name__ == "__main__":
    unittest.main()
