# SPDX-License-Identifier: MIT
"""The model of models/tales-5M in 4 bits for the tests of one program, and qsf-run with it."""

import os
import re
import subprocess
import tempfile

TIMEOUT_S = 120


class TalesModel:
    """Converts the model into a folder of its own. Threads: one at a time."""

    def __init__(self, bin_dir, source_dir):
        self.run = os.path.join(bin_dir, "qsf-run")
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.file("tales.qsf")
        subprocess.run([os.path.join(bin_dir, "qsf-convert"), "--quiet", "--quant-type", "4bit",
                        os.path.join(source_dir, "models", "tales-5M"), self.path], check=True)

    def close(self):
        self.folder.cleanup()

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def call(self, *arguments, tool=None, **keywords):
        """Runs a tool, qsf-run by default; returns exit code, stdout and stderr as bytes."""
        keywords.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run([tool or self.run, *arguments], capture_output=True, timeout=TIMEOUT_S, **keywords)
        return done.returncode, done.stdout, done.stderr

    def text(self, *arguments, **keywords):
        """Returns what qsf-run writes to stdout. Fails unless it ends well and says nothing else."""
        code, out, err = self.call(self.path, "--quiet", *arguments, **keywords)
        assert code == 0 and err == b"", (code, err)
        return out

    def least_budget(self, *arguments):
        """Returns the smallest --ram-budget of these options, in MB: more in a build with a sanitizer."""
        code, out, err = self.call(self.path, "--quiet", *arguments, "--ram-budget", "2")
        found = re.search(rb"needs (\d+) MB", err)
        assert (code, out) == (1, b"") and found, (code, out, err)
        return found.group(1).decode()
