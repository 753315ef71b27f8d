#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what --quality costs, beside files of the same model with fewer bits.

    measure_fewer_layers.py MODEL.qsf TEXT REFERENCE.qsf [--quality 1,0.9,0.8,0.7,0.6,0.5] [--beside FILE.qsf ...]
                            [--bytes 120000] [--chunks N] [--context 512] [--threads 1] [--bin build/release/bin]

MODEL.qsf has the importance of its layers (qsf convert --calibration); REFERENCE.qsf is the same model in f32 or f16.
Prints a Markdown table for render_results.py --import: the bytes that a generated token reads and the tokens a second
of qsf bench, the rise of perplexity over the reference, the mean KL divergence from it and the share of equal top
tokens. A quality that the model is too small for is left out, with the reason on stderr.
"""

import argparse
import json
import os
import re
import sys
import tempfile

import measuring_script
from scored_models import ROOT, Failed, run, write_head

SCORES = re.compile(r"^(reference PPL|PPL|mean KLD|top-1 agreement) = ([0-9.]+)", re.MULTILINE)


def scores_of(output):
    """Returns the numbers that qsf-perplexity prints, by name."""
    return {name: float(number) for name, number in SCORES.findall(output)}


def speed(args, model, *options):
    """Returns (bytes that a token reads, tokens a second)."""
    report = json.loads(run(os.path.join(args.bin, "qsf-bench"), model, "-p", "0", "-n", str(args.tokens), "-r", "3",
                            "--no-probe", "--threads", str(args.threads), "--json", *options))
    return report["model"]["weight_bytes_per_token"], report["tests"][0]["tokens_per_second"]["median"]


def measure(args, text, model, *options):
    """Returns the cells of a line behind its name."""
    command = [os.path.join(args.bin, "qsf-perplexity"), model, "--file", text, "--context", str(args.context),
               "--threads", str(args.threads), *(["--chunks", str(args.chunks)] if args.chunks else [])]
    found = scores_of(run(*command, "--reference", args.reference, *options))
    n_bytes, per_second = speed(args, model, *options)
    return (f"{n_bytes / 1e6:.1f} MB", f"{per_second:.1f}", f"{100 * (found['PPL'] / found['reference PPL'] - 1):+.1f} %",
            f"{found['mean KLD']:.4f}", f"{found['top-1 agreement']:.1f} %")


def lines_of(args):
    """Yields (name, file, options) of every line."""
    for quality in args.quality.split(","):
        yield f"--quality {quality}", args.model, ("--quality", quality)
    for other in args.beside:
        yield os.path.splitext(os.path.basename(other))[0], other, ()


def print_table(args):
    files = [(args.model, "MODEL"), (args.text, "TEXT"), (args.reference, "REFERENCE"),
             *((other, "--beside") for other in args.beside),
             *((os.path.join(args.bin, program), "--bin") for program in ("qsf-perplexity", "qsf-bench"))]
    measuring_script.require(measuring_script.missing_files(files))
    with tempfile.TemporaryDirectory() as folder:
        text = write_head(args.text, args.bytes, os.path.join(folder, "text.txt"))
        print("fewer-layers\n\n| run | bytes a token | tokens/s | over the reference | KLD | top-1 |\n|---|---|---|---|---|---|")
        for name, model, options in lines_of(args):
            try:
                print(f"| {name} | {' | '.join(measure(args, text, model, *options))} |", flush=True)
            except Failed as failure:
                if "use at least" not in str(failure):
                    raise
                print(f"measure_fewer_layers.py: {failure}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("model", metavar="MODEL.qsf")
    add("text", metavar="TEXT")
    add("reference", metavar="REFERENCE.qsf")
    add("--quality", default="1,0.9,0.8,0.7,0.6,0.5", metavar="LIST")
    add("--beside", nargs="*", default=[], metavar="FILE.qsf")
    add("--bytes", type=int, default=120000, metavar="N", help="score the first N bytes")
    add("--chunks", type=int, default=0, metavar="N", help="score the first N windows; default: all")
    add("--context", type=int, default=512, metavar="N")
    add("--threads", type=int, default=1, metavar="N")
    add("--tokens", type=int, default=64, metavar="N", help="tokens that the speed is measured over")
    add("--bin", metavar="FOLDER", default=os.path.join(ROOT, "build", "release", "bin"))
    args = parser.parse_args()
    return measuring_script.exit_status("measure_fewer_layers.py", lambda: print_table(args))


if __name__ == "__main__":
    sys.exit(main())
