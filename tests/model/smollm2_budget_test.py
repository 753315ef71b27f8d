#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SmolLM2-135M under memory budgets, each inside a control group with that limit.

Usage: smollm2_budget_test.py BIN_DIR SOURCE_DIR [--all]

Every budget gives the same greedy text, the kernel kills nothing, and the peak stays within the budget. Three budgets
from 40 to 130 MB, or with --all every ten. Ends with 77 and a reason where the model or the right to make a control
group is missing (scripts/models/get_models; root).
"""

import os
import re
import subprocess
import sys
import tempfile

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE_DIR, "scripts", "measure"))
import memory_group  # noqa: E402  (the path has to be there first)
from control_group import NoControlGroup  # noqa: E402

SKIPPED = 77
MB = 1_000_000
BUDGETS = range(40, 131, 10) if "--all" in sys.argv else (40, 80, 130)
LOOSE = 400  # MB, for the text that all others are held to
PROMPT = "The three things that a good story needs are"
CONTEXT, TOKENS = 256, 16


def model_path():
    command = [sys.executable, os.path.join(SOURCE_DIR, "scripts", "models", "get_models"), "--path"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def run(model, budget):
    command = [os.path.join(BIN_DIR, "qsf-run"), "--ram-budget", str(budget), "--max-seq-len", str(CONTEXT),
               "--temperature", "0", "--max-tokens", str(TOKENS), "--prompt", PROMPT, model]
    with memory_group.MemoryGroup(budget * MB) as group:
        return group.run(command)


def check(model):
    """Returns what went wrong, a line each."""
    expected = run(model, LOOSE)
    if expected.status != 0:
        return [f"{LOOSE} MB: exit status {expected.status}: {expected.stderr.strip()[-300:]}"]
    wrong = []
    for budget in BUDGETS:
        found = run(model, budget)
        print(f"budget {budget} MB: peak {found.peak_bytes / MB:.1f} MB, {found.oom_kills} kills, "
              f"{found.seconds:.1f} s", flush=True)
        if found.status != 0:
            wrong.append(f"{budget} MB: exit status {found.status}: {found.stderr.strip()[-300:]}")
        elif found.oom_kills or found.peak_bytes > budget * MB:
            wrong.append(f"{budget} MB: peak {found.peak_bytes} bytes, {found.oom_kills} kills")
        elif found.stdout != expected.stdout:
            wrong.append(f"{budget} MB: {found.stdout!r}, expected {expected.stdout!r}")
    return wrong


def main():
    gguf = model_path()
    if not os.path.exists(gguf):
        print(f"no {os.path.basename(gguf)}; scripts/models/get_models fetches it")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.qsf")
        subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", gguf, model], check=True)
        try:
            wrong = check(model)
        except NoControlGroup as error:
            print(re.sub(r"\s+", " ", str(error)))
            return SKIPPED
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
