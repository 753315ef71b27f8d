#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how long qsf-run takes from its start to the first byte of text.

    measure_start.py [MODEL.qsf] [--bin build/release/bin] [--runs 10] [--prompt TEXT]

Each run is a process of its own: loading, the prompt and the first text are in the time. The first
run, which may read the model from the disk, is a warm-up and not counted. Prints the median, the smallest and
the largest in milliseconds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def first_byte_ms(command):
    """Returns the milliseconds until the process has written a byte; ends the script if it never does."""
    start = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        byte = os.read(process.stdout.fileno(), 1)
        elapsed = time.monotonic() - start
        _, err = process.communicate()
    if not byte or process.returncode != 0:
        sys.exit(f"measure_start.py: {' '.join(command)}: exit status {process.returncode}: "
                 f"{err.decode(errors='replace').strip()}")
    return elapsed * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", metavar="MODEL.qsf",
                        default=os.path.join(ROOT, "models", "tales-5M-4bit.qsf"))
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--prompt", default="Once upon a time")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error("--runs: expected at least 1")
    command = [os.path.join(args.bin, "qsf-run"), args.model, "--prompt", args.prompt,
               "--max-tokens", "8", "--seed", "0", "--quiet"]
    first_byte_ms(command)
    times = [first_byte_ms(command) for _ in range(args.runs)]
    print(f"first byte of text after {statistics.median(times):.1f} ms in the median of "
          f"{len(times)} runs, {min(times):.1f} to {max(times):.1f} ms")


if __name__ == "__main__":
    main()
