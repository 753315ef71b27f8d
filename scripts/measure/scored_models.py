# SPDX-License-Identifier: MIT
"""Converts models and scores them on a text, for scripts that compare ways of storing weights."""

import hashlib
import json
import os
import re
import subprocess

from quantiser_figures import read_window_losses
from results_file import head_of_text

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# --quant-type and --block-size, from many bits to few; FIXED have a block of their own.
TYPES = [("f32", 64), ("f16", 64), ("8bit", 64), ("8bit", 32), ("q6_k", 64), ("q5_k", 64), ("4bit", 64), ("4bit", 32),
         ("4bit-super", 64), ("4bit-super", 32), ("4bit-table", 64), ("mixed", 64), ("q3_k", 64), ("3bit", 64), ("3bit", 32),
         ("3bit-super", 64), ("3bit-super", 32), ("3bit-table", 64), ("q2_k", 64), ("2bit", 64), ("2bit", 32), ("2bit-super", 64),
         ("2bit-super", 32), ("2bit-table", 64), ("2bit-sym", 64), ("ternary", 64), ("ternary-row", 64)]
FIXED = ("f32", "f16", "mixed", "q6_k", "q5_k", "q3_k", "q2_k", "4bit-table", "3bit-table", "2bit-table",
         "ternary-row")
CALIBRATION_TOKENS = 1 << 22  # more than the texts have: all of a text is taken


class Failed(Exception):
    """What a script cannot do; of a program that ended with an error its last words."""


def run(*command, **how):
    """Returns stdout and stderr of a program; `how` goes to subprocess.run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **how)
    except OSError as error:
        raise Failed(f"{command[0]}: cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"{' '.join(command)}: exit {done.returncode}: {last}")
    return done.stdout + done.stderr


def name_of(kind, block):
    return kind if kind in FIXED else f"{kind}/{block}"


def chosen_types(asked):
    """Returns the types named in `asked`, by names of types or of a type with its block; of all when empty."""
    known = {name for kind, block in TYPES for name in (kind, name_of(kind, block))}
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise Failed(f"{unknown[0]}: no such type; expected some of {', '.join(sorted(known))}")
    return [(kind, block) for kind, block in TYPES if not asked or {kind, name_of(kind, block)} & set(asked)]


def write_head(path, n_bytes, target):
    """Writes the first n_bytes of a text, 0: all, to `target`, and returns that name."""
    with open(target, "wb") as file:
        file.write(head_of_text(path, n_bytes))
    return target


def hash_of(path):
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            hashed.update(part)
    return hashed.hexdigest()


def convert(folder_of_tools, source, target, *options):
    """Makes a .qsf file and returns what qsf-convert reports of it."""
    report = target + ".json"
    run(os.path.join(folder_of_tools, "qsf-convert"), "--quiet", *options, "--report", report, source, target)
    with open(report, encoding="utf-8") as file:
        return json.load(file)


def matrix_bits(report):
    """Returns bits per weight of the matrices that qsf-convert reports."""
    matrices = [(t["rows"] * t["cols"], t["bits_per_weight"]) for t in report["tensors"] if t["rows"] > 1]
    return sum(n * bits for n, bits in matrices) / sum(n for n, _ in matrices)


class Scorer:
    """Scores models on a text beside a reference, each once: `results` keeps scores by the checksum of the file. Of a
    script's arguments it reads --bin, --context and --threads."""

    def __init__(self, results, args, folder, text, reference, *options):
        self.results, self.text, self.reference = results, text, reference
        self.options = [*options, "--context", str(args.context), "--threads", str(args.threads)]
        self.program = os.path.join(args.bin, "qsf-perplexity")
        self.losses = os.path.join(folder, "losses")

    def score(self, model):
        """Returns losses of windows, KL divergence from the reference with its error, and share of equal top tokens."""
        return self.results.get(hash_of(model), lambda: self.measure(model))

    def measure(self, model):
        out = run(self.program, model, "--file", self.text, "--reference", self.reference, "--losses", self.losses,
                  *self.options)
        kld, error = re.search(r"mean KLD = (\S+) \+/- (\S+)", out).groups()
        top = re.search(r"top-1 agreement = (\S+) %", out).group(1)
        losses = read_window_losses(self.losses)
        if len(losses) < 2:
            raise Failed(f"{len(losses)} window of the text is scored, errors need 2: give more --bytes or a smaller --context")
        return {"losses": losses, "klds": read_window_losses(self.losses, "divergences"), "kld": float(kld),
                "kld_error": float(error), "top": float(top) / 100}
