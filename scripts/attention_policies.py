# SPDX-License-Identifier: MIT
"""What measure_long_text.py, probe_retrieval.py and measure_recall.py have in common: policies of attention and of
keys and values as options of qsf-perplexity, how many positions a row sees under each, texts in sentences, and
results that outlive a run."""

import argparse
import hashlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile


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


def h2o(local, heavy, chunk=1024, *more):
    return ["--attention", "h2o", "--h2o-local", str(local), "--h2o-heavy", str(heavy), "--h2o-chunk", str(chunk),
            *more]


def window(size, sinks=4):
    return ["--kv-policy", "window", "--kv-window", str(size), "--kv-sinks", str(sinks)]


def heavy_hitters(size, heavy, *more):
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


def fingerprint(args):
    """Returns what tells a model and a text from others: their sizes, and a hash of both ends of each."""
    def of(path):
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            hashed = hashlib.sha256(file.read(1 << 20))
            file.seek(max(0, size - (1 << 20)))
            hashed.update(file.read())
        return f"{size} bytes, {hashed.hexdigest()[:16]}"
    return {"model": of(args.model), "text": of(args.text)}


class Results:
    """A JSON file of what was measured, by key; written whole after every addition, so that a run can be ended at any
    time and goes on where it was. `about` (None: not checked) says what was measured; a file that says otherwise ends
    the script."""

    def __init__(self, path, about=None):
        self.path = path
        self.about = about
        self.values = {}
        if not os.path.exists(path):
            return
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        self.values = stored["values"]
        if about is not None and stored["about"] != about:
            sys.exit(f"{path}: measured with {stored['about']}, asked for {about}: give another file, or remove "
                     "this one")

    def get(self, key, compute):
        if key not in self.values:
            self.values[key] = compute()
            with open(self.path + ".part", "w", encoding="utf-8") as file:
                json.dump({"about": self.about, "values": self.values}, file, indent=0)
            os.replace(self.path + ".part", self.path)
        return self.values[key]


def open_results(args):
    """Returns the results of these arguments: those of the same model and text, whatever they are of --no-runs."""
    return Results(args.results, None if args.no_runs else fingerprint(args))
