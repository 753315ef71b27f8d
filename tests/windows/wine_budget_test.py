#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf.exe within memory budgets, proven from outside: Wine enforces no limit of a job, so the process of Wine runs in
a control group whose limit is the budget.

Usage: wine_budget_test.py WINDOWS_BIN_DIR NATIVE_BIN_DIR SOURCE_DIR MODEL

MODEL is SmolLM2-135M as GGUF. Every budget gives the text of this machine's program, and the kernel kills nothing,
though Wine takes its part of the budget: what a program that only says its version takes is printed. A budget above
the limit is killed, so the limit holds. Wine's services run outside of the group. Exit status 77 where there is no
Wine, no qsf.exe, no MODEL, or no right to make a control group (root).
"""

import os
import re
import subprocess
import sys
import tempfile

import wine

if len(sys.argv) != 5:
    sys.exit("usage: " + __doc__.split("Usage: ")[1].split("\n")[0])
WINDOWS_BIN_DIR, NATIVE_BIN_DIR, SOURCE_DIR, MODEL = map(os.path.abspath, sys.argv[1:5])
sys.path.insert(0, os.path.join(SOURCE_DIR, "scripts", "measure"))
import memory_group  # noqa: E402  (the path has to be there first)
from control_group import NoControlGroup  # noqa: E402

SKIPPED = 77
MB = 1_000_000
BUDGETS = (50, 60, 80, 130)
LOOSE = 1000  # MB
TOO_MUCH = (100, 60)  # a budget, and the limit that it does not fit
PROMPT = "The three things that a good story needs are"
QSF_EXE = [wine.WINE, os.path.join(WINDOWS_BIN_DIR, "qsf.exe")]


def run(limit, command, environment):
    with memory_group.MemoryGroup(limit * MB) as group:
        return group.run(command, environment=environment, sample_seconds=0.002)


def anonymous(found):
    """Returns the most memory in MB that was not pages of files, of the moments that were looked at."""
    return max((sample.anonymous_bytes for sample in found.samples), default=0) / MB


def text_command(model, budget):
    return ["run", "--ram-budget", str(budget), "--max-seq-len", "256", "--temperature", "0", "--max-tokens", "16",
            "--prompt", PROMPT, model]


def check(model, environment):
    """Returns what went wrong, a line each."""
    native = [os.path.join(NATIVE_BIN_DIR, "qsf"), *text_command(model, LOOSE)]
    expected = subprocess.run(native, capture_output=True, check=True, env=environment).stdout
    alone = run(LOOSE, [*QSF_EXE, "--version"], environment)
    print(f"Wine and the program, which says its version: {anonymous(alone):.1f} MB beside pages of files", flush=True)
    wrong = []
    for budget in BUDGETS:
        found = run(budget, [*QSF_EXE, *text_command(model, budget)], environment)
        print(f"budget and limit {budget} MB: {anonymous(found):.1f} MB beside pages of files, "
              f"{found.oom_kills} kills, {found.seconds:.1f} s", flush=True)
        if found.status != 0 or found.oom_kills:
            wrong.append(f"{budget} MB: exit status {found.status}, {found.oom_kills} kills: "
                         f"{found.stderr.strip()[-300:]}")
        elif found.stdout != expected:
            wrong.append(f"{budget} MB: {found.stdout!r}, expected {expected!r}")
    budget, limit = TOO_MUCH
    if not run(limit, [*QSF_EXE, *text_command(model, budget)], environment).oom_kills:
        wrong.append(f"a budget of {budget} MB was not killed at {limit} MB: the limit does not hold")
    return wrong


def main():
    missing = wine.missing(WINDOWS_BIN_DIR)
    if not missing and not os.path.exists(MODEL):
        missing = f"there is no {MODEL}; scripts/models/get_models fetches it"
    if missing:
        print("wine_budget_test: skipped: " + missing)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        # One tier for both programs: kernels of another tier may round differently.
        environment = dict(wine.environment(folder), QSF_ISA="avx2")
        model = os.path.join(folder, "model.qsf")
        subprocess.run([os.path.join(NATIVE_BIN_DIR, "qsf"), "convert", "--quiet", MODEL, model], check=True)
        greet = [*QSF_EXE, "--version"]
        subprocess.run(greet, check=True, env=environment, capture_output=True)  # makes the system
        # A program that waits keeps the services of Wine running, outside of every group.
        waiting = subprocess.Popen([wine.WINE, "cmd.exe"], env=environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            subprocess.run(greet, check=True, env=environment, capture_output=True)
            wrong = check(model, environment)
        except NoControlGroup as error:
            print("wine_budget_test: skipped: " + re.sub(r"\s+", " ", str(error)))
            return SKIPPED
        finally:
            waiting.stdin.close()
            waiting.wait()
            wine.end(environment)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
