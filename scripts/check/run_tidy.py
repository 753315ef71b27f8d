#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs clang-tidy with .clang-tidy over sources, using the compile commands of build/dev.

    run_tidy.py [--jobs N] [FILE...]      every source of build/dev when no file is named

Tests are left out: their macros and deliberate copies would need exceptions that hide real
findings.
Exit status 0 when clean, 1 on a finding, 77 when clang-tidy or build/dev is absent.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys

import repo_files

EXIT_SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description="Run clang-tidy.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    root = repo_files.repository_root()
    database = os.path.join(root, "build", "dev", "compile_commands.json")
    tidy = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tidy is None or not os.path.exists(database):
        print("tidy: " + ("no clang-tidy here" if tidy is None else "build/dev is not configured"))
        return EXIT_SKIPPED
    with open(database, encoding="utf-8") as file:
        known = {os.path.relpath(entry["file"], root) for entry in json.load(file)}
    known = {path for path in known if path.endswith(".cc") and not path.endswith("_test.cc")}
    files = sorted(known.intersection(arguments.files) if arguments.files else known)

    def run(path):
        done = subprocess.run([tidy, "-p", os.path.dirname(database), "--quiet",
                               "--warnings-as-errors=*", path], cwd=root, capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for status, output in pool.map(run, files):
            failures += status != 0
            if status != 0:
                print(output, end="")
    print(f"tidy: {len(files)} files, {failures} with findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
