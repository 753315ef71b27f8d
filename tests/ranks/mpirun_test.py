#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models over several processes that mpirun starts: the same bytes as one process, and an end when one is lost.

Usage: mpirun_test.py BIN_DIR SOURCE_DIR

BIN_DIR is that of a build with MPI (cmake --preset mpi). Ends with 77 and a reason without mpirun.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
QSF = os.path.abspath(os.path.join(BIN_DIR, "qsf"))
MODEL = os.path.join(SOURCE_DIR, "models", "tales-5M-4bit.qsf")
TALE = os.path.join(SOURCE_DIR, "testdata", "tale.txt")
SKIPPED = 77
PROMPT = ["Once upon a time", "--temperature", "0", "--max-tokens", "40"]
FORCED = ["--force-ranks", "--rank-window", "1"]
KILLED_SECONDS, STOPPED_SECONDS, DISAGREED_SECONDS = 5, 8, 5
LEFT_SECONDS = 3  # until no process is left
IDLE_SECONDS = 10
failures = []


def mpirun(n_ranks, command, others=None):
    """Returns the command line; `others`: that of the ranks above 0, else the same."""
    start = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if others is None:
        return [*start, "-n", str(n_ranks), *command]
    return [*start, "-n", "1", *command, ":", "-n", str(n_ranks - 1), *others]


def environment():
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(command, seconds=120):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
                          stdin=subprocess.DEVNULL, timeout=seconds, check=False)


def expect(holds, what):
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    if not holds:
        failures.append(what)


def last_lines(text):
    return " | ".join([line for line in text.splitlines() if line.startswith("qsf")][-3:])


def check_texts():
    alone = run([QSF, "run", MODEL, *PROMPT])
    score = run([QSF, "perplexity", MODEL, "--file", TALE, "--context", "128"])
    for n_ranks in (1, 2, 3, 4):
        several = run(mpirun(n_ranks, [QSF, "run", MODEL, *PROMPT, *FORCED]))
        expect(several.returncode == 0 and several.stdout == alone.stdout,
               f"run with {n_ranks} ranks: {last_lines(several.stderr)}")
    scored = run(mpirun(2, [QSF, "perplexity", MODEL, "--file", TALE, "--context", "128", "--force-ranks"]))
    of = re.compile(r"PPL = \S+")
    expect(of.findall(scored.stdout) == of.findall(score.stdout) != [],
           f"perplexity with 2 ranks: {of.findall(scored.stdout)}, expected {of.findall(score.stdout)}")
    refused = run(mpirun(2, [QSF, "run", MODEL, *PROMPT, *FORCED, "--max-seq-len", "128", "--ram-budget", "40"]))
    expect(refused.returncode != 0 and "budget of 40 MB is too small" in refused.stderr, "2 ranks of 40 MB: refused")


def check_streamed():
    """With a model that two budgets do not hold."""
    script = os.path.join(SOURCE_DIR, "scripts", "models", "get_models")
    found = subprocess.run([sys.executable, script, "--path"], stdout=subprocess.PIPE, text=True, check=False)
    gguf = found.stdout.strip()
    if not os.path.exists(gguf):
        print("skipped: streamed: no SmolLM2 (scripts/models/get_models)")
        return
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.qsf")
        run([QSF, "convert", "--quiet", gguf, model])
        command = [QSF, "run", model, *PROMPT, "--max-seq-len", "128"]
        alone = run(command)
        streamed = run(mpirun(2, [*command, "--rank-window", "3", "--ram-budget", "125", "--kv-type", "4"]), 300)
        narrow = run([*command, "--kv-type", "4"])
        expect(streamed.returncode == 0 and streamed.stdout == narrow.stdout and "mode: streamed" in streamed.stderr,
               f"SmolLM2, 2 ranks of 125 MB: {last_lines(streamed.stderr)}")
        whole = run(mpirun(3, [*command, "--force-ranks"]), 300)
        expect(whole.returncode == 0 and whole.stdout == alone.stdout, f"in memory: {last_lines(whole.stderr)}")


def check_refusals():
    unforced = run(mpirun(2, [QSF, "run", MODEL, *PROMPT]))
    expect(unforced.returncode != 0 and "is faster than 2 ranks" in unforced.stderr, "one process is faster: refused")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for rank in ("0", "1"):
            os.mkdir(os.path.join(folder, rank))
            shutil.copy(MODEL, os.path.join(folder, rank, "model.qsf"))
        with open(os.path.join(folder, "1", "model.qsf"), "r+b") as file:
            file.truncate(os.path.getsize(MODEL) - 4096)
        # The same path, but another file in each rank's folder.
        there = ["sh", "-c", f'cd {folder}/$OMPI_COMM_WORLD_RANK && exec "$0" "$@"', QSF]
        cut = run(mpirun(2, [*there, "run", "model.qsf", *PROMPT, *FORCED]))
    expect(cut.returncode != 0 and "rank 1 on " in cut.stderr and "another file than on rank 0" in cut.stderr,
           f"a truncated file on rank 1: {last_lines(cut.stderr)}")
    expect(time.monotonic() - start < DISAGREED_SECONDS, f"within {DISAGREED_SECONDS} s")
    other = ["env", "QSF_ISA=scalar", QSF, "run", MODEL, *PROMPT, *FORCED]
    tiers = run(mpirun(2, ["env", "QSF_ISA=sse42", *other[2:]], other))
    expect(tiers.returncode != 0 and "computes with scalar, rank 0 with sse42" in tiers.stderr,
           f"another tier on rank 1: {last_lines(tiers.stderr)}")
    singleton = subprocess.run([QSF, "run", MODEL, *PROMPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               check=False, env={**environment(), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3"})
    expect(singleton.returncode != 0 and "started as one of 3 processes, but MPI sees 1" in singleton.stderr,
           "processes that srun starts alone: refused")


def check_idle():
    """A group that waits for requests goes on waiting, and hardly takes time."""
    command = mpirun(2, [QSF, "serve", MODEL, "--force-ranks", "--port", "0"])
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          env=environment(), text=True) as process:
        address = None
        while address is None:
            line = process.stderr.readline()
            if not line:
                break
            address = re.search(r"http://(\S+?:\d+)", line)
        expect(address is not None, "serve with 2 ranks")
        body = json.dumps({"prompt": "Once", "max_tokens": 4}).encode()
        request = urllib.request.Request(f"http://{address.group(1)}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).read()
        ranks = ranks_of(process.pid)
        before = [ticks_of(process_id) for process_id in ranks.values()]
        time.sleep(IDLE_SECONDS)
        left = process.poll() is None
        after = [ticks_of(process_id) for process_id in ranks.values()] if left else before
        expect(left, f"alive after {IDLE_SECONDS} s without a request")
        share = max(b - a for a, b in zip(before, after)) / os.sysconf("SC_CLK_TCK") / IDLE_SECONDS
        expect(share <= 0.02, f"an idle rank takes {100 * share:.1f} % of a core")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def ticks_of(process_id):
    with open(f"/proc/{process_id}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def ranks_of(parent):
    """Returns the processes of the ranks of a mpirun, by rank."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)
            with open(f"/proc/{name}/stat", encoding="ascii") as file:
                its_parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if its_parent == parent and b"OMPI_COMM_WORLD_RANK" in variables:
            found[int(variables[b"OMPI_COMM_WORLD_RANK"])] = int(name)
    return found


def check_lost_rank(number, name, limit):
    """Has rank 1 receive a signal in the middle of a text."""
    command = mpirun(3, [QSF, "run", MODEL, "Once", "--max-tokens", "4000", "--max-seq-len", "256", "--kv-policy",
                         "window", "--kv-window", "64", "--rope-reindex", *FORCED])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          env=environment(), text=True) as process:
        process.stdout.read(40)
        ranks = ranks_of(process.pid)
        os.kill(ranks[1], number)
        start = time.monotonic()
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
        seconds = time.monotonic() - start
    expect(process.returncode != 0 and seconds <= limit, f"{name}: ended after {seconds:.1f} s of {limit}")
    if number == signal.SIGSTOP:
        expect(re.search(r"qsf: rank 1 on \S+: silent", err) is not None, f"{name}: named: {last_lines(err)}")
    time.sleep(LEFT_SECONDS)
    left = [rank for rank, process_id in ranks.items() if os.path.exists(f"/proc/{process_id}")]
    expect(not left, f"{name}: no rank is left after {LEFT_SECONDS} s")


def main():
    if shutil.which("mpirun") is None:
        print("no mpirun: install openmpi-bin")
        return SKIPPED
    check_texts()
    check_streamed()
    check_refusals()
    check_idle()
    check_lost_rank(signal.SIGKILL, "SIGKILL", KILLED_SECONDS)
    check_lost_rank(signal.SIGSTOP, "SIGSTOP", STOPPED_SECONDS)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
