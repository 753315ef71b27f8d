# SPDX-License-Identifier: MIT
"""Tests of make_sbom.py, and that packaging/libraries.json names what is linked."""

import contextlib
import io
import json
import os
import re
import tempfile
import unittest
from unittest import mock

import rooms

import make_sbom

ROOT = os.path.dirname(rooms.SCRIPTS)
# How decision 002 and NOTICE call what libraries.json has.
OTHER_NAMES = {"Boost.Beast 1.81": "boost", "LZ4 library": "lz4", "JSON for Modern C++": "nlohmann-json",
               "Boost.Asio, Beast": "boost"}


def libraries():
    with open(make_sbom.LIBRARIES, encoding="utf-8") as file:
        return json.load(file)


def run(epoch, folder, package=("lib", "1.2+3-4", "amd64"), more=()):
    with mock.patch.object(make_sbom, "installed_package", lambda name, machine, headers_alone=False: package), \
            mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": epoch}), \
            contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = make_sbom.main(["--version", "9.8", "--machine", "x86_64", "--to", folder, *more])
    path = os.path.join(folder, "sboms", "qsf.cdx.json")
    with open(path, encoding="utf-8") if status == 0 else io.StringIO("null") as file:
        return status, json.load(file)


class SbomTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_every_library_is_listed(self):
        status, bill = run("1700000000", self.folder)
        self.assertEqual(status, 0)
        names = [entry["name"] for entry in make_sbom.libraries_of("linux")]
        self.assertIn("glibc", names)
        self.assertNotIn("mingw-w64", names)
        self.assertEqual([entry["name"] for entry in bill["components"]], names)
        self.assertEqual(bill["dependencies"], [{"ref": "qsf", "dependsOn": names}])
        self.assertEqual(bill["metadata"]["component"]["version"], "9.8")
        self.assertEqual(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z")
        for entry in bill["components"]:
            self.assertEqual(entry["purl"], "pkg:deb/debian/lib@1.2%2B3-4?arch=amd64")
            self.assertTrue(entry["licenses"][0]["expression"])

    def test_windows_has_libraries_of_its_own(self):
        built = os.path.join(self.folder, "built", "licences")
        os.makedirs(built)
        for name in ("lz4", "libzstd", "pcre2", "utf8proc"):
            with open(os.path.join(built, name + ".txt"), "w", encoding="utf-8") as file:
                file.write(name)
        to = os.path.join(self.folder, "to")
        status, bill = run("5", to, more=["--system", "windows", "--built", os.path.dirname(built)])
        self.assertEqual(status, 0)
        listed = {entry["name"]: entry for entry in bill["components"]}
        self.assertNotIn("glibc", listed)
        self.assertNotIn("liburing", listed)
        self.assertTrue({"mingw-w64", "winpthreads", "libgcc"} <= set(listed))
        with open(make_sbom.SOURCES, encoding="utf-8") as file:
            version = re.search(r"^libzstd (\S+)", file.read(), re.MULTILINE)[1]
        self.assertEqual(listed["zstandard"]["purl"],
                         f"pkg:deb/debian/libzstd@{version}?arch=source".replace("+", "%2B"))
        with open(os.path.join(to, "libraries", "zstandard.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "libzstd")

    def test_the_same_input_gives_the_same_bytes(self):
        bills = [run(epoch, self.folder)[1] for epoch in ("5", "5", "6")]
        self.assertEqual(bills[0], bills[1])
        self.assertNotEqual(bills[0]["serialNumber"], bills[2]["serialNumber"])

    def test_a_library_that_is_not_installed_has_no_version(self):
        status, bill = run("5", self.folder, None)
        self.assertEqual(status, 0)
        self.assertFalse(any("version" in entry or "purl" in entry for entry in bill["components"]))
        self.assertEqual(os.listdir(os.path.join(self.folder, "libraries")), [])

    def test_unpacked_packages_come_first(self):
        unpacked = os.path.join(self.folder, "unpacked")
        os.makedirs(os.path.join(unpacked, "usr", "share", "doc", "liblz4-dev"))
        for path, text in (("packages.txt", "liblz4-dev 1.9-1 arm64\n"),
                           ("usr/share/doc/liblz4-dev/copyright", "its licence\n")):
            with open(os.path.join(unpacked, path), "w", encoding="ascii") as file:
                file.write(text)
        status, bill = run("5", self.folder, None, ["--unpacked", unpacked])
        self.assertEqual(status, 0)
        versions = {entry["name"]: entry["purl"] for entry in bill["components"] if "purl" in entry}
        self.assertEqual(versions, {"lz4": "pkg:deb/debian/liblz4-dev@1.9-1?arch=arm64"})
        self.assertEqual(os.listdir(os.path.join(self.folder, "libraries")), ["lz4.txt"])

    def test_a_date_is_needed(self):
        self.assertEqual(run("", self.folder)[0], 1)
        self.assertEqual(run("today", self.folder)[0], 1)

    def test_the_list_names_what_decision_002_does(self):
        names = {entry["name"] for entry in libraries()}
        with open(os.path.join(ROOT, "docs", "decisions", "002-dependencies.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| ([A-Za-z][^|]*?) \|", file.read(), re.MULTILINE)
        rows = [row for row in rows if row not in ("library", "GoogleTest")]
        self.assertGreaterEqual(len(rows), 10)
        for row in rows:
            self.assertIn(OTHER_NAMES.get(row, row.lower()), names)

    def test_the_list_names_what_notice_does(self):
        names = {entry["name"] for entry in libraries()}
        with open(os.path.join(ROOT, "NOTICE"), encoding="utf-8") as file:
            rows = re.findall(r"^  (\S.*?) +(?:BSD|MIT|Boost 1|MPL)", file.read(), re.MULTILINE)
        self.assertGreaterEqual(len(rows), 10)
        for row in rows:
            self.assertIn(OTHER_NAMES.get(row, row.lower()), names)


if __name__ == "__main__":
    unittest.main()
