#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares ranks with one process: the same model, each process in control groups for its memory and its disk.

    measure_ranks.py [MODEL.qsf] [--bin build/mpi/bin] [--folder FOLDER] [--ranks 4] [--budget 200] [--large 800]
                     [--rate 400] [--tokens 4] [--rounds 3] [--json FILE]

Without MODEL.qsf a model of random weights in the shape 7b-gqa at 4 bits (3.9 GB) is made in FOLDER and removed. In
each round run, in turns: one process of --budget MB, one of --large MB, and --ranks processes of --budget MB. The
kernel limits the memory of each process to its budget and its reads to --rate MB/s. Printed are medians of tokens a
second behind the first one, each rank's peak and kills, and how often the ranks are as fast as each process.

Beside them the time that reading needs: what a pass reads, over --rate. All ranks of one machine share its cores, so
what they compute does not get faster.

Needs root, mpirun and a build with MPI (cmake --preset mpi). Exit status: 0; 1 when a run failed or wrote another text;
2 where something is missing.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from control_group import NoControlGroup
from disk_group import DiskGroup
from memory_group import MemoryGroup

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MB = 1_000_000
PROMPT = "1 2 3 4"
RATE = re.compile(r"generated \d+ tokens, ([\d.]+) tokens/s")
PLANNED = re.compile(r"each pass reads ([\d.]+) MB")


def command(args, budget):
    return [os.path.join(args.bin, "qsf"), "run", args.model, PROMPT, "--max-tokens", str(args.tokens + 1),
            "--temperature", "0", "--max-seq-len", "128", "--kv-type", "4", "--speculate", "off",
            "--ram-budget", str(budget)]


def wrapped(groups, run):
    """Returns a command line that runs inside all of `groups`."""
    return [word for group in groups for word in group.wrapper()] + run


def run_processes(args, n_ranks, budget):
    """Returns (tokens a second, text, megabytes that rank 0 reads a pass, [(peak, kills)])."""
    with contextlib.ExitStack() as stack:
        memory = [stack.enter_context(MemoryGroup(budget * MB)) for _ in range(n_ranks)]
        disks = [stack.enter_context(DiskGroup(args.model, args.rate * MB)) for _ in range(n_ranks)]
        lines = [wrapped(groups, command(args, budget)) for groups in zip(memory, disks)]
        if n_ranks == 1:
            line = lines[0]
        else:
            line = ["mpirun", "--oversubscribe", "--bind-to", "none"]
            for rank, one in enumerate(lines):
                line += ([":"] if rank else []) + ["-n", "1", *one]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
                              check=False)
        groups = [(group.peak() / MB, group.oom_kills()) for group in memory]
    rate = RATE.search(done.stderr)
    if done.returncode != 0 or rate is None:
        sys.exit(f"measure_ranks.py: {n_ranks} processes of {budget} MB: exit status {done.returncode}:\n"
                 f"{done.stderr[-2000:]}")
    planned = PLANNED.search(done.stderr)
    return float(rate.group(1)), done.stdout, float(planned.group(1)) if planned else 0.0, groups


def report(args, found):
    """Prints the medians, and returns them by the name of the run."""
    medians = {}
    for name, runs in found.items():
        rates = [run[0] for run in runs]
        medians[name] = statistics.median(rates)
        read_seconds = runs[0][2] / args.rate
        print(f"{name}: {medians[name]:.3f} tokens/s ({min(rates):.3f} to {max(rates):.3f}); a token reads for "
              f"{read_seconds:.2f} s; peaks {', '.join(f'{peak:.0f}' for peak, _ in runs[0][3])} MB, "
              f"{sum(kills for run in runs for _, kills in run[3])} kills")
    *single, ranks = medians
    for name in single:
        print(f"{ranks}: {medians[ranks] / medians[name]:.2f} times {name}")
    return medians


def measure(args):
    plans = {f"one process of {args.budget} MB": (1, args.budget),
             f"one process of {args.large} MB": (1, args.large),
             f"{args.ranks} ranks of {args.budget} MB": (args.ranks, args.budget)}
    found = {name: [] for name in plans}
    texts = set()
    for _round in range(args.rounds):
        for name, (n_ranks, budget) in plans.items():
            run = run_processes(args, n_ranks, budget)
            texts.add(run[1])
            found[name].append(run)
            print(f"  {name}: {run[0]:.3f} tokens/s", flush=True)
    medians = report(args, found)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"medians": medians, "runs": {name: [run[0] for run in runs] for name, runs in found.items()},
                       "rate_mb": args.rate, "tokens": args.tokens}, file, indent=1)
    if len(texts) == 1:
        return 0
    print(f"{len(texts)} different texts, expected one")
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL.qsf")
    add("--bin", default=os.path.join(ROOT, "build", "mpi", "bin"))
    add("--folder", help="where a model is made; default: a temporary folder")
    for name, value in (("--ranks", 4), ("--budget", 200), ("--large", 800), ("--rate", 400), ("--tokens", 4),
                        ("--rounds", 3)):
        add(name, type=int, default=value)
    add("--json", metavar="FILE")
    args = parser.parse_args()
    if shutil.which("mpirun") is None or not os.path.exists(os.path.join(args.bin, "qsf")):
        print(f"measure_ranks.py: no mpirun, or no {args.bin}/qsf (cmake --preset mpi)", file=sys.stderr)
        return 2
    try:
        if args.model:
            return measure(args)
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            args.model = os.path.join(folder, "model.qsf")
            subprocess.run([os.path.join(args.bin, "qsf"), "convert", "--quiet", "--random", "7b-gqa", "--quant-type",
                            "4bit", args.model], check=True)
            return measure(args)
    except NoControlGroup as error:
        print(f"measure_ranks.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
