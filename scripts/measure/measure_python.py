#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what Python costs: `import qsf`, and tokens/s of qsf run, generate() and stream() in turns.

    measure_python.py MODEL.qsf [--python INTERPRETER] [--tool build/release/bin/qsf] [--runs 5] [--tokens 512]

Each run is a process of its own that opens the model and generates a greedy text, without speculation; the rate is
that of the engine, from the first token to the last. Without an installed wheel set PYTHONPATH=python and
QSF_LIBRARY=build/release/libqsf.so.0. Prints medians, and each one's ratio to the program.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL.qsf")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tool", default=os.path.join(ROOT, "build", "release", "bin", "qsf"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.runs < 1 or args.tokens < 2:
        parser.error("--runs: expected at least 1; --tokens: at least 2")
    output_of([args.python, "-c", IMPORT])  # a warm-up
    imports = [float(output_of([args.python, "-c", IMPORT])[0]) for _ in range(args.runs)]
    print(f"import qsf: {statistics.median(imports):.0f} ms, {min(imports):.0f} to {max(imports):.0f}")
    rates = {"qsf run": [], "generate": [], "stream": []}
    for _ in range(args.runs):
        rates["qsf run"].append(rate_of_tool(args))
        for how in ("generate", "stream"):
            rates[how].append(rate_of_python(args, how))
    tool = statistics.median(rates["qsf run"])
    for name, list_ in rates.items():
        rate = statistics.median(list_)
        print(f"{name}: {rate:.1f} tokens/s, {rate / tool:.3f} of the program; {min(list_):.1f} to {max(list_):.1f}")


if __name__ == "__main__":
    main()
