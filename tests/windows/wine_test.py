#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf.exe in Wine: what it writes and prints is what the program of this machine does.

Usage: wine_test.py WINDOWS_BIN_DIR NATIVE_BIN_DIR SOURCE_DIR [unittest arguments]

Exit status 77 where there is no Wine or no qsf.exe. Wine bounds no memory, ends overlapped reads at
once and does not look at the alignment of unbuffered ones: nothing here is a test of these.
"""

import glob
import json
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import wine
from wine import TIMEOUT_S, WINE


def setUpModule():
    global scratch, environment
    scratch = tempfile.TemporaryDirectory()
    # A system of its own. One tier for both programs: kernels of another tier may round differently.
    environment = dict(wine.environment(scratch.name), QSF_ISA="sse42",
                       XDG_CACHE_HOME=os.path.join(scratch.name, "cache"))
    # Wine makes its system before the first program, which is not to be typed at meanwhile.
    run([WINE, os.path.join(WINDOWS_BIN_DIR, "qsf.exe")], "--version")


def tearDownModule():
    wine.end(environment)
    scratch.cleanup()


def path(*names):
    return os.path.join(scratch.name, *names)


def source(*names):
    return os.path.join(SOURCE_DIR, *names)


def read(name):
    with open(name, "rb") as file:
        return file.read()


def run(command, *arguments, text="", **changes):
    done = subprocess.run([*command, *arguments], input=text.encode(), capture_output=True, timeout=TIMEOUT_S,
                          env=dict(environment, **changes), cwd=scratch.name, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


class WineTest(unittest.TestCase):
    def windows(self, *arguments, **changes):
        return run([WINE, os.path.join(WINDOWS_BIN_DIR, "qsf.exe")], *arguments, **changes)

    def native(self, *arguments, **changes):
        return run([os.path.join(NATIVE_BIN_DIR, "qsf")], *arguments, **changes)

    def same(self, *arguments, **changes):
        """Returns the output that both programs have for these arguments."""
        code, out, err = self.windows(*arguments, **changes)
        native_code, native_out, native_err = self.native(*arguments, **changes)
        self.assertEqual((native_code, code), (0, 0), native_err + err)
        self.assertEqual(out, native_out)
        return out

    def refused(self, word, *arguments, code=1):
        got, out, err = self.windows(*arguments)
        self.assertEqual((got, out), (code, b""), err)
        self.assertIn(word, err)

    def test_the_same_seed_gives_the_same_text(self):
        model = source("models", "tales-5M-4bit.qsf")
        for options in ([], ["--ram-budget", "100"], ["--temperature", "0"], ["--threads", "2"]):
            text = self.same("run", model, "The king said", "--max-tokens", "60", "--seed", "11", *options)
            self.assertGreater(len(text), 60)
            self.assertNotIn(b"\r", text)

    def test_finds_the_bundled_model(self):
        self.same("run", "--max-tokens", "8", "--seed", "1")

    def test_reads_overlapped_past_the_cache(self):
        _, _, err = self.windows("run", source("models", "tales-5M-4bit.qsf"), "A", "--max-tokens", "1",
                                 "--ram-budget", "100")
        self.assertIn("overlapped, direct", err)

    def test_a_budget_that_is_too_small_is_refused_before_work(self):
        self.refused("budget", "run", source("models", "tales-5M-4bit.qsf"), "A", "--ram-budget", "1")

    def test_a_chat_gives_the_same_answers(self):
        out = self.same("chat", source("models", "tales-5M-4bit.qsf"), "--seed", "3", "--max-tokens", "12",
                        text="Hello\n\"\"\"\nTwo\nlines\"\"\"\n/quit\n")
        self.assertGreater(len(out), 10)

    def test_a_chat_is_typed(self):
        said = ["Gr\u00f6\u00dfe \u65e5\u672c \U0001F600", "Hello"]
        chat = ["chat", source("models", "tales-5M-4bit.qsf"), "--seed", "3", "--max-tokens", "12"]
        code, expected, err = self.native(*chat, text="\n".join(said) + "\n")
        self.assertEqual(code, 0, err)
        master, slave = pty.openpty()
        program = subprocess.Popen([WINE, os.path.join(WINDOWS_BIN_DIR, "qsf.exe"), *chat], env=environment, stdin=slave,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                   preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)))
        os.close(slave)
        errors = b""
        try:
            # Ctrl-C at the prompt gives a line up; Wine goes on reading it.
            for typed in (said[0] + "\r", "\x03", said[1] + "\r", "/quit\r"):
                while not errors.endswith(b"> "):
                    if not select.select([program.stderr], [], [], TIMEOUT_S)[0]:
                        self.fail(errors)
                    errors += os.read(program.stderr.fileno(), 4096) or self.fail(errors)
                errors = b"> " if typed == "\x03" else b""
                time.sleep(2)  # Wine drops what is typed before it waits for it
                os.write(master, typed.encode())
            self.assertEqual(program.wait(TIMEOUT_S), 0)
            # At a terminal an empty line follows an answer.
            self.assertEqual(program.stdout.read().split(), expected.split())
        finally:
            program.kill()
            program.wait()
            for file in (program.stdout, program.stderr):
                file.close()
            os.close(master)

    def test_a_chat_is_saved_as_here(self):
        for program, name in ((self.windows, "w.json"), (self.native, "n.json")):
            code, _, err = program("chat", source("models", "tales-5M-4bit.qsf"), "--seed", "3", "--max-tokens", "8",
                                   text=f"Hello\n/save {name}\n")
            self.assertEqual(code, 0, err)
        self.assertEqual(read(path("w.json")), read(path("n.json")))

    def test_a_conversion_has_the_same_bytes(self):
        for program, name in ((self.windows, "w.qsf"), (self.native, "n.qsf")):
            code, out, err = program("convert", "--quiet", "--quant-type", "4bit", source("models", "tales-5M"), name)
            self.assertEqual((code, out), (0, b""), err)
        self.assertEqual(read(path("w.qsf")), read(path("n.qsf")))
        self.assertIn(b"verified", self.same("inspect", "--verify", "w.qsf"))

    def test_names_that_no_code_page_has(self):
        name = "Gr\u00f6\u00dfe \u65e5\u672c\u8a9e \U0001F600.qsf"
        shutil.copy(source("models", "tales-5M-4bit.qsf"), path(name))
        self.assertIn(b"verified", self.same("inspect", "--verify", name))
        self.same("run", name, "Once \u00fcber", "--max-tokens", "8", "--seed", "5")
        copy = "Kopie \u65e5\u672c.qsf"
        code, _, err = self.windows("convert", "--quiet", "--quant-type", "4bit", source("models", "tales-5M"), copy)
        self.assertEqual(code, 0, err)
        self.assertTrue(os.path.exists(path(copy)))
        self.assertEqual([left for left in os.listdir(scratch.name) if ".tmp" in left], [])

    def test_a_result_is_replaced(self):
        with open(path("old.qsf"), "wb") as file:
            file.write(b"old")
        code, _, err = self.windows("convert", "--quiet", "--quant-type", "4bit", source("models", "tales-5M"), "old.qsf")
        self.assertEqual(code, 0, err)
        self.assertGreater(os.path.getsize(path("old.qsf")), 1_000_000)

    def test_models_are_converted_once_by_another_process(self):
        arguments = ["run", source("models", "tales-5M"), "Once", "--max-tokens", "8", "--seed", "1",
                     "--cache-dir", "converted"]
        code, first, err = self.windows(*arguments)
        self.assertEqual(code, 0, err)
        self.assertIn("converting it once", err)
        code, second, err = self.windows(*arguments)
        self.assertEqual((code, second), (0, first), err)
        self.assertNotIn("converting", err)
        code, out, err = self.windows("cache", "--cache-dir", "converted")
        self.assertEqual(code, 0, err)
        self.assertIn(b"tales-5M", out)

    def test_converted_models_are_kept_where_windows_keeps_such_files(self):
        code, _, err = self.windows("run", source("models", "tales-5M"), "Once", "--max-tokens", "1", XDG_CACHE_HOME="")
        self.assertEqual(code, 0, err)
        self.assertTrue(glob.glob(path("prefix", "drive_c", "users", "*", "AppData", "Local", "qsf", "converted",
                                       "*.qsf")), err)

    def test_files_of_every_version_are_read(self):
        folder = source("testdata", "format", "v1")
        files = [name for name in sorted(os.listdir(folder)) if name.endswith(".qsf")]
        self.assertGreater(len(files), 4)
        for name in files:
            self.same("inspect", "--verify", os.path.join(folder, name))

    def test_sessions_go_over_between_systems(self):
        model = source("models", "tales-5M-4bit.qsf")
        code, _, err = self.native("run", model, "Once upon a time", "--max-tokens", "8", "--seed", "2",
                                   "--session-save", "s.session")
        self.assertEqual(code, 0, err)
        self.same("run", model, " and then", "--max-tokens", "8", "--seed", "2", "--session-load", "s.session")

    def test_input_that_is_wrong_is_refused_by_name(self):
        with open(path("cut.qsf"), "wb") as file:
            file.write(read(source("models", "tales-5M-4bit.qsf"))[:100_000])
        with open(path("text.qsf"), "wb") as file:
            file.write(b"no model\n" * 10_000)
        self.refused("no such file", "run", "missing.qsf", "A")
        self.refused("cut.qsf", "run", "cut.qsf", "A")
        self.refused("text.qsf", "inspect", "text.qsf")
        self.refused("'sing': no such command", "sing", code=2)
        self.refused("not in the program for Windows", "parity")
        self.refused("the program for Windows runs no peer", "bench", source("models", "tales-5M-4bit.qsf"), "--peer",
                     "llama-bench", "--peer-model", "cut.qsf", code=2)

    def test_the_speed_is_measured(self):
        model = source("models", "tales-5M-4bit.qsf")
        code, out, err = self.windows("bench", model, "-p", "8", "-n", "3", "-r", "2", "--json")
        self.assertEqual(code, 0, err)
        measured = json.loads(out)
        self.assertIn("Windows", measured["machine"]["system"])
        self.assertGreater(measured["machine"]["memory_bytes"], 1_000_000_000)
        self.assertNotEqual(measured["machine"]["cpu"], "unknown")
        for options in (["--kernels", "norm_scalar"], [model, "--stream", "100", "-n", "2", "-r", "1"]):
            code, _, err = self.windows("bench", *options)
            self.assertEqual(code, 0, err)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: " + __doc__.split("Usage: ")[1].split("\n")[0])
    WINDOWS_BIN_DIR, NATIVE_BIN_DIR, SOURCE_DIR = map(os.path.abspath, sys.argv[1:4])
    if missing := wine.missing(WINDOWS_BIN_DIR):
        print("wine_test: skipped: " + missing)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
