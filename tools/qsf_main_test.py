#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The binary qsf: its commands, its links, and what a newcomer types.

Usage: qsf_main_test.py BIN_DIR SOURCE_DIR [unittest arguments]
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
TIMEOUT_S = 120


def setUpModule():
    global scratch, model
    scratch = tempfile.TemporaryDirectory()
    model = path("tales.qsf")
    subprocess.run([os.path.join(BIN_DIR, "qsf"), "convert", "--quiet", "--quant-type", "4bit",
                    os.path.join(SOURCE_DIR, "models", "tales-5M"), model], check=True)


def tearDownModule():
    scratch.cleanup()


def path(name):
    return os.path.join(scratch.name, name)


class Program(unittest.TestCase):
    QSF = os.path.join(BIN_DIR, "qsf")

    def qsf(self, *arguments, program=None, text=""):
        done = subprocess.run([program or self.QSF, *arguments], input=text, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        return done.returncode, done.stdout, done.stderr

    def refused(self, word, *arguments, program=None, expected_code=2):
        code, out, err = self.qsf(*arguments, program=program)
        self.assertEqual((code, out), (expected_code, ""), err)
        self.assertRegex(err, r"\A" + os.path.basename(program or self.QSF) + r"[^:]*: [^\n]+\n\Z")
        self.assertIn(word, err)

    def test_help_fits_a_screen_and_names_every_command(self):
        code, out, err = self.qsf("--help")
        self.assertEqual((code, err), (0, ""))
        self.assertLessEqual(out.count("\n"), 24)
        self.assertLessEqual(max(map(len, out.split("\n"))), 80)
        commands = re.findall(r"^  (\w+) ", out, re.M)
        self.assertEqual(commands, ["run", "chat", "serve", "convert", "inspect", "perplexity", "bench", "parity", "cache"])
        for command in commands:
            code, out, err = self.qsf("help", command)
            self.assertEqual((code, err), (0, ""))
            self.assertIn(f"Usage: qsf {command} ", out)
            self.assertEqual(self.qsf(command, "--help"), (0, out, ""))
        self.assertRegex(self.qsf("--version")[1], r"\Aqsf \d+\.\d+\.\d+\n\Z")
        self.assertEqual(self.qsf("run", "--version"), self.qsf("--version"))

    def test_a_wrong_command_is_named(self):
        self.assertEqual(self.qsf()[0], 2)
        self.refused("'frobnicate': no such command, expected one of run, chat", "frobnicate")
        self.refused("no such command", "help", "frobnicate")
        code, _, err = self.qsf("run", "--frobnicate")
        self.assertEqual(code, 2)
        self.assertRegex(err, r"\Aqsf run: .*; see qsf run --help\n\Z")

    def test_a_command_is_what_its_link_is(self):
        greedy = ["--temperature", "0", "--max-tokens", "8", "--quiet"]
        code, expected, err = self.qsf("run", model, "--prompt", "A dog", *greedy)
        self.assertEqual((code, err), (0, ""))
        for arguments in (["run", model, "A dog"], ["run", "-m", model, "A dog"], ["run", "-m", model, "-p", "A dog"],
                          ["run", model, "-p", "A dog", "-t", "1", "-c", "64", "-s", "3"]):
            self.assertEqual(self.qsf(*arguments, *greedy), (0, expected, ""), arguments)
        self.assertEqual(self.qsf("run", model, "A dog", *greedy[:2], "-n", "8", "--quiet"), (0, expected, ""))
        link = path("qsf-run")
        os.symlink(self.QSF, link)
        self.assertEqual(self.qsf(model, "--prompt", "A dog", *greedy, program=link), (0, expected, ""))
        self.refused("no prompt", model, program=link)

    def test_a_chat_is_a_command(self):
        code, out, err = self.qsf("chat", model, "--max-tokens", "4", text="Hello\n")
        self.assertEqual(code, 0, err)
        self.assertTrue(out)
        self.assertIn("qsf chat: the model has no chat template", err)

    def test_a_model_without_a_template_needs_a_prompt_at_a_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(self.QSF, ["qsf", "run", model])
        shown = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 2, shown)
        self.assertIn(b"has no chat template, expected a prompt", shown)

    def test_a_wrong_path_is_named_before_a_missing_prompt(self):
        self.refused("absent.qsf: no such file", "run", path("absent.qsf"), expected_code=1)

    def test_a_file_that_is_no_regular_one_is_refused_at_once(self):
        fifo = path("fifo")
        os.mkfifo(fifo)
        for arguments in (["run", fifo, "a"], ["chat", fifo], ["perplexity", fifo, "--file", os.devnull],
                          ["inspect", fifo]):
            self.refused("fifo: is a FIFO, expected a regular file", *arguments, expected_code=1)
        self.refused("is a device", "run", os.devnull, "a", expected_code=1)
        self.refused("is a folder without config.json", "run", scratch.name, "a", expected_code=1)

    def test_every_size_is_in_megabytes(self):
        run = [model, "--prompt", "a", "--max-tokens", "1", "--verbose", "--ram-budget"]
        planned = [re.search(r"planned of ([\d.]+ MB)", self.qsf("run", *run, size)[2]).group(1)
                   for size in ("300", "300M", "0.3G", "300000k")]
        self.assertEqual(planned, ["300.0 MB"] * 4)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
