#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what Python costs: `import qsf`, and tokens/s of qsf run, generate() and stream() in turns.

    measure_python.py MODEL.qsf [--python INTERPRETER] [--tool build/release/bin/qsf] [--runs 5] [--tokens 512]
                      [--peer INTERPRETER --gguf FILE]
    measure_python.py MODEL.qsf --budget MB [--python INTERPRETER] [--tokens 512]

Each run is a process of its own that opens the model and generates a greedy text, without speculation; the rate is
that of the engine, from the first token to the last. Without an installed wheel set PYTHONPATH=python and
QSF_LIBRARY=build/release/libqsf.so.0. Prints medians, and each one's ratio to the program.

--peer runs llama-cpp-python's Llama.generate() with the same GGUF file in the same turns; INTERPRETER has it installed.

--budget runs stream() in kernel memory limits of the budget and of eight times that, beside a process that imports
qsf and NumPy alone, and prints the peaks. It needs root. Exit status: 1 when a run failed, was killed or has a peak
above the budget, 2 without control groups.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

import memory_group
from control_group import NoControlGroup

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROMPT = "Once upon a time"
IMPORT = "import time; t = time.perf_counter(); import qsf; print((time.perf_counter() - t) * 1e3)"
# From the first token to the last, as qsf run counts.
GENERATE = """import sys, time, qsf
model, how, n, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with qsf.Model(model, threads=threads, context=1024, speculation="off") as opened:
    options = dict(max_tokens=n, temperature=0.0)
    if how == "generate":
        done = opened.generate(sys.argv[5], **options)
        got, seconds = len(done.tokens), done.generate_s
    else:
        times = [time.perf_counter() for _ in opened.stream(sys.argv[5], **options)]
        got, seconds = len(times), times[-1] - times[0]
    print((got - 1) / seconds)
"""

# Any token is computed, the end of the text too, so that both write as many.
PEER = """import sys, time, llama_cpp
model, n, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
peer = llama_cpp.Llama(model, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)
times = []
for _ in peer.generate(peer.tokenize(sys.argv[4].encode()), temp=0.0, repeat_penalty=1.0):
    times.append(time.perf_counter())
    if len(times) == n:
        break
print((n - 1) / (times[-1] - times[0]))
"""
IMPORT_ALL = "import numpy, qsf"
IN_BUDGET = """import sys, numpy, qsf
with qsf.Model(sys.argv[1], ram_budget=int(sys.argv[2]) * 10**6, threads=1, context=1024) as opened:
    print(sum(1 for _ in opened.stream(sys.argv[4], max_tokens=int(sys.argv[3]), temperature=0.0)))
"""
MB = 1_000_000
LOOSE = 8  # the wide limit, in budgets


def output_of(command):
    """Returns (standard output, error output); ends the script where a command fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"measure_python.py: {' '.join(command[:2])}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout, done.stderr


def rate_of_tool(args):
    """Returns the tokens/s that qsf run tells."""
    _, err = output_of([args.tool, "run", args.model, "--prompt", PROMPT, "--max-tokens", str(args.tokens),
                        "--temperature", "0", "--threads", str(args.threads), "--max-seq-len", "1024",
                        "--speculate", "off"])
    match = re.search(r"generated \d+ tokens, ([\d.]+) tokens/s", err)
    if match is None:
        sys.exit(f"measure_python.py: {args.tool} run told no rate: {err.strip()}")
    return float(match[1])


def rate_of_python(args, how):
    out, _ = output_of([args.python, "-c", GENERATE, args.model, how, str(args.tokens), str(args.threads), PROMPT])
    return float(out)


def rate_of_peer(args):
    out, _ = output_of([args.peer, "-c", PEER, args.gguf, str(args.tokens), str(args.threads), PROMPT])
    return float(out)


def keeps_budget(args):
    """Prints the peaks of processes in control groups. Returns whether those with a model kept to the budget."""
    budget = args.budget * MB
    with memory_group.MemoryGroup(LOOSE * budget) as group:
        bare = group.run([args.python, "-c", IMPORT_ALL])
    print(f"{IMPORT_ALL}: peak {bare.peak_bytes / MB:.1f} MB")
    kept = bare.status == 0
    for factor in (1, LOOSE):
        with memory_group.MemoryGroup(factor * budget) as group:
            run = group.run([args.python, "-c", IN_BUDGET, args.model, str(args.budget), str(args.tokens), PROMPT])
        if run.status != 0:
            print(run.stderr.strip()[-600:])
        kept = kept and run.status == 0 and run.oom_kills == 0 and run.peak_bytes <= budget
        print(f"ram_budget {args.budget} MB, limit {args.budget * factor} MB: {run.stdout.decode().strip()} tokens, "
              f"peak {run.peak_bytes / MB:.1f} MB, oom_kills={run.oom_kills}, exit {run.status}")
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL.qsf")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tool", default=os.path.join(ROOT, "build", "release", "bin", "qsf"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", metavar="INTERPRETER", help="one with llama-cpp-python")
    parser.add_argument("--gguf", metavar="FILE", help="the peer's model")
    parser.add_argument("--budget", type=int, metavar="MB")
    args = parser.parse_args()
    if (args.peer is None) != (args.gguf is None):
        parser.error("--peer and --gguf go together")
    if args.runs < 1 or args.tokens < 2:
        parser.error("--runs: expected at least 1; --tokens: at least 2")
    if args.budget is not None:
        try:
            return 0 if keeps_budget(args) else 1
        except NoControlGroup as error:
            print(f"measure_python.py: {error}", file=sys.stderr)
            return 2
    output_of([args.python, "-c", IMPORT])  # a warm-up
    imports = [float(output_of([args.python, "-c", IMPORT])[0]) for _ in range(args.runs)]
    print(f"import qsf: {statistics.median(imports):.0f} ms, {min(imports):.0f} to {max(imports):.0f}")
    rates = {"qsf run": [], "generate": [], "stream": []}
    for _ in range(args.runs):
        rates["qsf run"].append(rate_of_tool(args))
        for how in ("generate", "stream"):
            rates[how].append(rate_of_python(args, how))
        if args.peer is not None:
            rates.setdefault("llama-cpp-python", []).append(rate_of_peer(args))
    tool = statistics.median(rates["qsf run"])
    for name, list_ in rates.items():
        rate = statistics.median(list_)
        print(f"{name}: {rate:.1f} tokens/s, {rate / tool:.3f} of the program; {min(list_):.1f} to {max(list_):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
