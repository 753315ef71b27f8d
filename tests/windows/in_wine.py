#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a test of this machine's programs with those for Windows, in Wine.

Usage: in_wine.py WINDOWS_BIN_DIR TEST [ARGUMENT ...]

TEST is a program in Python, or an .exe. The argument BIN becomes a folder of scripts named as the programs are, which
start them in Wine. The exit status is the test's, or 77 where there is no Wine or no qsf.exe. QSF_TEST_IN_WINE is set,
for what Wine and Windows do otherwise: Ctrl-C is SIGINT here, there are no modes of files, and links are not seen.
"""

import os
import subprocess
import sys
import tempfile

import wine

COMMANDS = ("run", "serve", "convert", "perplexity")


def write_scripts(bin_dir, folder):
    for command in COMMANDS:
        path = os.path.join(folder, "qsf-" + command)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{wine.WINE}" "{bin_dir}/qsf.exe" {command} "$@"\n')
        os.chmod(path, 0o755)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: " + __doc__.split("Usage: ")[1].split("\n")[0])
    bin_dir = os.path.abspath(sys.argv[1])
    if missing := wine.missing(bin_dir):
        print("in_wine: skipped: " + missing)
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "bin")
        os.mkdir(folder)
        write_scripts(bin_dir, folder)
        env = dict(wine.environment(scratch), QSF_TEST_IN_WINE="1")
        arguments = [folder if argument == "BIN" else argument for argument in sys.argv[2:]]
        interpreter = wine.WINE if arguments[0].endswith(".exe") else sys.executable
        # Wine sets up its system once, which is not for a test to wait for.
        subprocess.run([os.path.join(folder, "qsf-run"), "--version"], env=env, check=True, capture_output=True,
                       timeout=wine.TIMEOUT_S)
        try:
            return subprocess.run([interpreter, *arguments], env=env, check=False).returncode
        finally:
            wine.end(env)


if __name__ == "__main__":
    sys.exit(main())
