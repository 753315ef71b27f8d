#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how long qsf-run takes from its start to the first byte of text.

    measure_start.py [MODEL...] [--bin build/release/bin] [--runs 10] [--prompt TEXT] [--cold] [--probe MODEL.qsf]

Each run is a process of its own: loading, the prompt and the first text are in the time. The first
run of a model, which may convert it or read it from the disk, is a warm-up and not counted. The models run in
turns. Prints the median, the smallest and the largest in milliseconds.

With --cold every run begins with an empty page cache, which needs root, and with as much memory as it takes
just used and free again: a virtual machine gives free memory back to its host, which takes longer to return
it than to read a model. A round begins with a measurement of the disk by `qsf-bench --disk` on --probe (default:
the first .qsf file), and the bound is printed too: the file's bytes over the disk's rate, and 100 ms.
"""

import argparse
import json
import mmap
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


def disk_rate(args):
    """Returns the bytes a second of the disk, as the engine would read it."""
    command = [os.path.join(args.bin, "qsf-bench"), args.probe, "--disk", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["disk"]["bytes_per_second"]


def use_memory(n_bytes):
    """Has the machine find so much memory, and frees it."""
    with mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, n_bytes, mmap.PAGESIZE):
            memory[at] = 1


def make_cold(model):
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")
    for _again in range(2):  # what the first call gets from the host the second one finds
        use_memory(3 * os.path.getsize(model))


def report(model, times, rates):
    line = (f"{os.path.basename(model)}: first byte of text after {statistics.median(times):.1f} ms in the median of "
            f"{len(times)} runs, {min(times):.1f} to {max(times):.1f} ms")
    if rates:
        rate = statistics.median(rates)
        bound = os.path.getsize(model) / rate * 1e3 + 100
        line += f"; disk {rate / 1e9:.2f} GB/s, bound {bound:.1f} ms"
    print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="*", metavar="MODEL",
                        default=[os.path.join(ROOT, "models", "tales-5M-4bit.qsf")])
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--probe", metavar="MODEL.qsf")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error("--runs: expected at least 1")
    args.probe = args.probe or next((model for model in args.models if model.endswith(".qsf")), None)
    if args.cold and args.probe is None:
        parser.error("--cold: --probe: expected a .qsf file to measure the disk with")
    commands = {model: [os.path.join(args.bin, "qsf-run"), model, "--prompt", args.prompt,
                        "--max-tokens", "8", "--seed", "0", "--quiet"] for model in args.models}
    for command in commands.values():
        first_byte_ms(command)
    times = {model: [] for model in args.models}
    rates = []
    for _ in range(args.runs):
        if args.cold:
            rates.append(disk_rate(args))
        for model, command in commands.items():
            if args.cold:
                make_cold(model)
            times[model].append(first_byte_ms(command))
    for model in args.models:
        report(model, times[model], rates)


if __name__ == "__main__":
    main()
