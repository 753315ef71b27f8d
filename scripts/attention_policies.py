# SPDX-License-Identifier: MIT
"""What measure_long_text.py and probe_retrieval.py have in common: policies of attention and of keys and values
as options of qsf-perplexity, how many positions a row sees under each, and results that outlive a run."""

import json
import os
import subprocess
import sys
import tempfile


def full(*more):
    return list(more)


def h2o(local, heavy, chunk=1024, *more):
    return ["--attention", "h2o", "--h2o-local", str(local), "--h2o-heavy", str(heavy), "--h2o-chunk", str(chunk), *more]


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
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        windows = read("losses")
        for step in read("kept") if kept else []:
            windows[step["window"]]["visible"] = step["visible"]  # of the last step in the end
        return windows


class Results:
    """A JSON file of what was measured, by key; written whole after every addition, so that a run can be ended at any
    time and goes on where it was."""

    def __init__(self, path):
        self.path = path
        self.values = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.values = json.load(file)

    def get(self, key, compute):
        if key not in self.values:
            self.values[key] = compute()
            with open(self.path + ".part", "w", encoding="utf-8") as file:
                json.dump(self.values, file, indent=0)
            os.replace(self.path + ".part", self.path)
        return self.values[key]
