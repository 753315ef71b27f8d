# SPDX-License-Identifier: MIT
"""Shared by measure_long_text.py, probe_retrieval.py and measure_recall.py: attention and KV policies as options of
qsf-perplexity, the number of positions visible to a row under each, and texts cut into sentences."""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

from results_file import Results, fingerprint


def make_parser(doc):
    """Returns a parser of the arguments that all of these scripts take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", metavar="MODEL.qsf")
    add("text", metavar="TEXT")
    add("results", metavar="RESULTS.json", help="what was measured, which is not run again")
    add("--bin", default="build/release/bin", help="folder of qsf-perplexity (default: %(default)s)")
    add("--context", type=int, default=4096, help="tokens of a window (default: %(default)s)")
    add("--threads", type=int, default=2)
    add("--scale", type=int, default=1, help="divides the sizes of policies, for models of shorter texts")
    add("--no-runs", action="store_true", help="print what is there")
    return parser


def scaled(size, scale):
    """Returns a size divided for models of shorter texts; 0 stays 0."""
    return max(1, size // scale) if size else 0


def mean_of(values):
    """Returns the mean; nothing for no values."""
    return statistics.fmean(values) if values else None


def with_error(value, values, form, factor=1.0):
    """Returns `value` in a format, with the standard error of the mean of `values` times a factor where there are two
    or more of them."""
    text = f"{value:{form}}"
    if len(values) < 2:
        return text
    error = factor * statistics.stdev(values) / math.sqrt(len(values))
    return f"{text} +/- {error:{form.lstrip('+')}}"


def sentences_of(text):
    """Returns the sentences of a text, each long enough to be a window of its own."""
    found = []
    for part in re.split(r"(?<=[.!?])\s+", text):
        part = " ".join(part.split())
        if found and len(found[-1]) < 40:
            found[-1] += " " + part
        else:
            found.append(part)
    return found[:-1]


def write_lines(folder, lines):
    path = os.path.join(folder, "lines.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    return path


def full(*more):
    return list(more)


def h2o(local, heavy, chunk=1024, *more, score="sum"):
    return ["--attention", "h2o", "--h2o-local", str(local), "--h2o-heavy", str(heavy), "--h2o-chunk", str(chunk),
            "--h2o-score", score, *more]


def window(size, sinks=4):
    return ["--kv-policy", "window", "--kv-window", str(size), "--kv-sinks", str(sinks)]


def h2o_eviction(size, heavy, *more):
    return ["--kv-policy", "h2o", "--kv-window", str(size), "--kv-heavy", str(heavy), *more]


def value(options, name, default):
    return int(options[options.index(name) + 1]) if name in options else default


def n_visible(options, position, block=64):
    """Returns how many positions a prompt row sees under these options, itself included."""
    prefix = position + 1
    if "--attention" in options:
        chunk = value(options, "--h2o-chunk", 1024)
        start = position // chunk * chunk
        memory = value(options, "--h2o-local", 256) + value(options, "--h2o-heavy", 256)
        return min(memory, start) + prefix - start
    if "--kv-policy" not in options:
        return prefix
    size = value(options, "--kv-window", 1024)
    if options[options.index("--kv-policy") + 1] == "window":
        return min(prefix, size + value(options, "--kv-sinks", 4))
    recent = max(0, position // block * block - size)  # the first position of the window
    return min(value(options, "--kv-heavy", 256), recent) + prefix - recent


def mean_visible(options, context):
    """Returns the mean of n_visible over the rows that qsf-perplexity scores: those before the scored tokens."""
    rows = range(context // 2, context - 1)
    return sum(n_visible(options, row) for row in rows) / len(rows)


def run_perplexity(args, text, options, *more, kept=False):
    """Returns what `qsf-perplexity --losses` writes: an object for each window, with the positions that are visible at
    its end when `kept`. Ends the script with the tool's own words when it fails."""
    def read(name):
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return [json.loads(line) for line in file]

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "losses")
        command = [os.path.join(args.bin, "qsf-perplexity"), args.model, "--file", text, "--context", str(args.context),
                   "--threads", str(args.threads), "--losses", path, *more, *options]
        if kept:
            command += ["--kept", os.path.join(folder, "kept")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            sys.exit(f"{command[0]}: not found: build QSF (cmake --preset release, cmake --build build/release), or "
                     "say where it is with --bin")
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        windows = read("losses")
        for step in read("kept") if kept else []:
            windows[step["window"]]["visible"] = step["visible"]  # of the last step in the end
        return windows


def open_results(args):
    """Returns results that are of the model and the text of the arguments; with --no-runs whatever there is."""
    about = None if args.no_runs else {"model": fingerprint(args.model), "text": fingerprint(args.text)}
    return Results(args.results, about)
