#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws what run_benchmarks measured: tokens per second against length, and against bits.

    plot_benchmarks.py FOLDER

FOLDER holds the JSON files; prompt_lengths.png, context_depths.png and bits.png are written there,
each when a run of it exists. Needs matplotlib.
"""

import glob
import json
import os
import sys


def read_runs(folder):
    runs = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if isinstance(content, dict) and "tests" in content:
            runs.append(content)
    return runs


def machine_text(run):
    machine = run["machine"]
    return f"{machine['cpu']}, {machine['threads']} threads, {machine['instruction_set']}"


def model_text(run):
    return f"{run['shape']}, {run['model']['layer_type']}"


def series(run, kind, key):
    """Returns (x, medians, distances down, distances up) of the tests of a kind, by `key`."""
    tests = sorted((t for t in run["tests"] if t["kind"] == kind), key=lambda t: t[key])
    rates = [t["tokens_per_second"] for t in tests]
    return ([t[key] for t in tests], [r["median"] for r in rates],
            [r["median"] - r["min"] for r in rates], [r["max"] - r["median"] for r in rates])


def draw(axes, x, median, down, up, label):
    axes.errorbar(x, median, yerr=[down, up], marker="o", capsize=3, label=label)


def finish(plot, figure, axes, title, x_label, path):
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x_label)
    axes.set_ylabel("tokens per second (median, smallest to largest)")
    axes.set_ylim(bottom=0)
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plot.close(figure)


def plot_lengths(plot, runs, kind, key, title, x_label, path):
    chosen = [run for run in runs if len({t[key] for t in run["tests"] if t["kind"] == kind}) > 1]
    if not chosen:
        return False
    figure, axes = plot.subplots(figsize=(7, 4.5))
    for run in chosen:
        draw(axes, *series(run, kind, key), model_text(run))
    if key == "tokens":
        axes.set_xscale("log", base=2)
        lengths = sorted({t[key] for run in chosen for t in run["tests"] if t["kind"] == kind})
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    finish(plot, figure, axes, f"{title}\n{machine_text(chosen[0])}", x_label, path)
    return True


def plot_bits(plot, runs, path):
    """One point a model of the 1b shape: bits of weights that a token reads, against its speed."""
    points = {}
    for run in runs:
        if run["shape"] != "1b" or "peer" in run:
            continue
        for test in run["tests"]:
            if test["kind"] == "generate" and test["depth"] == 0:
                bits = 8 * run["model"]["weight_bytes_per_token"] / run["model"]["parameters"]
                points.setdefault(run["machine"]["instruction_set"], {})[bits] = (run, test)
    if max((len(of_set) for of_set in points.values()), default=0) < 2:
        return False
    figure, axes = plot.subplots(figsize=(7, 4.5))
    for instruction_set, of_set in sorted(points.items()):
        bits = sorted(of_set)
        rates = [of_set[b][1]["tokens_per_second"] for b in bits]
        draw(axes, bits, [r["median"] for r in rates], [r["median"] - r["min"] for r in rates],
             [r["max"] - r["median"] for r in rates], f"measured, {instruction_set}")
        for b in bits:
            run, test = of_set[b]
            axes.annotate(run["model"]["layer_type"], (b, test["tokens_per_second"]["median"]),
                          textcoords="offset points", xytext=(5, 5), fontsize=7)
    limited = [run for of_set in points.values() for run, _ in of_set.values() if "limits" in run]
    if limited:
        by_bytes = sorted(((run["model"]["weight_bytes_per_token"], run) for run in limited),
                          key=lambda pair: pair[0])
        axes.plot([8 * n / run["model"]["parameters"] for n, run in by_bytes],
                  [run["limits"]["read_bytes_per_second"] / n for n, run in by_bytes], "--",
                  label="limit of memory")
    finish(plot, figure, axes, f"Generation, 1b shape\n{machine_text(limited[0]) if limited else ''}",
           "bits read for a parameter", path)
    return True


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit("plot_benchmarks.py: matplotlib is not installed: pip install matplotlib")
    folder = sys.argv[1]
    runs = read_runs(folder)
    made = [plot_lengths(pyplot, runs, "prompt", "tokens", "Prompts", "tokens of the prompt",
                         os.path.join(folder, "prompt_lengths.png")),
            plot_lengths(pyplot, runs, "generate", "depth", "Generation", "tokens in the context",
                         os.path.join(folder, "context_depths.png")),
            plot_bits(pyplot, runs, os.path.join(folder, "bits.png"))]
    if not any(made):
        sys.exit(f"plot_benchmarks.py: {folder}: no run of several lengths or bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
