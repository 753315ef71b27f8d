#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts what run_benchmarks measured into a Markdown file.

    tabulate_benchmarks.py FOLDER DOCUMENT

Replaces what stands in DOCUMENT between <!-- begin NAME --> and <!-- end NAME -->, for the NAMEs
machine, speed, peers, sizes and targets. A table for which FOLDER holds no run stays as it is.
"""

import json
import os
import sys

from markdown_tables import NoMark, replace_tables, table
from plot_benchmarks import machine_text, read_runs

PLOTS = (("prompt_lengths.png", "Prompts against their length"),
         ("context_depths.png", "Generation against the length of the context"),
         ("bits.png", "Generation against bits of weights"))

# The estimates of the plan, in MB of 10^6 bytes.
PLANNED_SIZES = {  # original, 2-bit file, 4-bit file, memory at run time
    "gpt2": ("500 MB", 40, 75, "45 MB"), "gpt2-medium": ("1.4 GB", 100, 190, "60 MB"),
    "gpt2-large": ("3.0 GB", 220, 400, "90 MB"), "7b": ("14 GB", 2000, 3800, "180 MB"),
    "13b": ("26 GB", 3800, 7000, "200 MB"), "7b-gqa": ("14 GB", 2000, 3800, "180 MB"),
    "phi2": ("5.4 GB", 800, 1500, "120 MB")}
# The plan's targets of tokens per second: GPT-2 small, GPT-2 medium, LLaMA-7B.
PLANNED_SPEEDS = (("i7-12700H, AVX2", "100", "50", "5"), ("i9-13900K, AVX-512", "200", "80", "8"),
                  ("M2, NEON", "120", "60", "6"), ("Raspberry Pi 5", "15", "5", "below 1"))


def rate(spread):
    return f"{spread['median']:,.1f} ({spread['min']:,.1f} to {spread['max']:,.1f})"


def share(part, whole):
    return f"{100 * part / whole:.0f} %"


def work(test):
    at = f" at {test['depth']:,}" if test["depth"] else ""
    return f"{test['kind']} {test['tokens']:,}{at}"


def prompt_peak(run):
    """Returns the limit of arithmetic that qsf-bench sets prompts against."""
    limits = run["limits"]
    if run["model"].get("exact"):
        return limits["f32_operations_per_second"]
    kind = "f32" if run["model"]["layer_type"] in ("f32", "f16", "bf16") else "int8"
    return limits.get("bf16_operations_per_second") or limits[kind + "_operations_per_second"]


def limit_of(run, test):
    if "limits" not in run:
        return "-"
    if test["kind"] == "generate":
        return f"{100 * test['read_share']['median']:.0f} % of memory"
    return share(test["operations_per_second"], prompt_peak(run)) + " of arithmetic"


def machine(runs):
    """Names the machine by the run with the fastest arithmetic, whose kernels are the machine's best."""
    limited = [run for run in runs if "limits" in run]
    if not limited:
        return None
    run = max(limited, key=lambda run: run["limits"].get("int8_operations_per_second", 0))
    limits = run["limits"]
    arithmetic = ", ".join(f"{key.split('_')[0]} {limits[key] * 1e-12:.2f} TOPS" for key in limits
                           if key.endswith("_operations_per_second"))
    reads = [run["limits"]["read_bytes_per_second"] * 1e-9 for run in limited]
    return (f"Measured on {machine_text(run)}, {run['machine']['memory_bytes'] / 1e9:.0f} GB of memory, "
            f"{run['machine']['system']}, qsf-bench {run['version']}. Limits found: memory {min(reads):.1f} to "
            f"{max(reads):.1f} GB/s, by run; {arithmetic}.")


def speed(runs):
    rows = [(run["shape"], run["model"]["layer_type"], run["model"]["head_type"],
             run["machine"]["instruction_set"], work(test), rate(test["tokens_per_second"]), limit_of(run, test))
            for run in runs if "peer" not in run for test in run["tests"]]
    return table(("shape", "layers", "head", "kernels", "work", "tokens/s", "of the limit"), rows) if rows else None


def peers(runs):
    rows = [(run["shape"], f"{run['model']['layer_type']}, {run['model']['file_bytes'] / 1e6:,.0f} MB",
             f"{run['peer']['name']} ({run['peer']['commit']}), {run['peer']['model']}, "
             f"{run['peer']['model_bytes'] / 1e6:,.0f} MB",
             work(test), rate(test["tokens_per_second"]), rate(test["peer_tokens_per_second"]),
             f"{test['ratio']:.2f}")
            for run in runs if "peer" in run for test in run["tests"]]
    head = ("shape", "ours", "peer", "work", "ours, tokens/s", "peer, tokens/s", "ratio")
    return table(head, rows) if rows else None


def sizes(folder, runs):
    path = os.path.join(folder, "sizes.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        measured = json.load(file)
    memory = {}
    for run in runs:
        if run["model"]["layer_type"].startswith("2bit"):
            memory[run["shape"]] = run["model"]["planned_bytes"]
    rows = []
    for row in measured:
        original, two, four, planned = PLANNED_SIZES[row["shape"]]
        found = memory.get(row["shape"])
        two_here, two_super, four_here, four_super = [
            f"{row[kind] / 1e6:,.0f} MB" if kind in row else "not measured"
            for kind in ("2bit", "2bit-super", "4bit", "4bit-super")]
        rows.append((row["title"], original, f"{two:,} MB", two_here, two_super, f"{four:,} MB", four_here,
                     four_super, planned, f"{found / 1e6:,.0f} MB" if found else "not measured"))
    return table(("model", "original", "2-bit, plan", "2bit", "2bit-super", "4-bit, plan", "4bit", "4bit-super",
                  "memory, plan", "memory, here (2 bits)"), rows)


def targets(runs):
    found = {}
    for run in runs:
        for test in run["tests"]:
            if test["kind"] == "generate" and test["depth"] == 0 and "peer" not in run:
                found[(run["shape"], run["model"]["layer_type"])] = f"{test['tokens_per_second']['median']:,.1f}"
    types = sorted({layer_type for shape, layer_type in found if shape in ("gpt2", "gpt2-medium", "7b")})
    if not types:
        return None
    rows = [(name + ", target", *values) for name, *values in PLANNED_SPEEDS]
    rows += [(f"this machine, {layer_type}", *(found.get((shape, layer_type), "not measured")
                                              for shape in ("gpt2", "gpt2-medium", "7b")))
             for layer_type in types]
    return table(("platform", "GPT-2 Small", "GPT-2 Medium", "LLaMA-7B"), rows)


def plots(folder, document):
    base = os.path.dirname(os.path.abspath(document))
    lines = [f"![{title}]({os.path.relpath(os.path.join(folder, name), base)})"
             for name, title in PLOTS if os.path.exists(os.path.join(folder, name))]
    return "\n\n".join(lines) if lines else None


def main():
    if len(sys.argv) != 3:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    folder, document = sys.argv[1:]
    runs = read_runs(folder)
    try:
        replace_tables(document, {"machine": machine(runs), "speed": speed(runs), "plots": plots(folder, document),
                                  "peers": peers(runs), "sizes": sizes(folder, runs), "targets": targets(runs)})
    except NoMark as error:
        sys.exit(f"tabulate_benchmarks.py: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
