#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the perplexity of each weight type: converts one model to every type and scores a text.

    measure_quality.py MODEL_DIR TEXT [--bin build/release/bin] [--bytes N] [--context 512]
                       [--scale-search on] [--calibration FILE [--gptq]] [--types 4bit,2bit]
                       [--block 64 | --kv-types]

Prints a Markdown table: type, block, bits per weight, file size, perplexity, increase over f32 where that is
among --types, and the seconds that scoring took. With --kv-types weights stay f32 and the types of keys and values change.
docs/quality.md shows such tables.
"""

import argparse
import os
import re
import sys
import tempfile
import time

import measuring_script
from scored_models import Failed, chosen_types, run, write_head

KV_TYPES = [("f32", "f32"), ("f16", "f16"), ("8", "8"), ("4", "4"), ("2", "2"), ("8", "f32"), ("f32", "8"),
            ("4", "f32"), ("f32", "4"), ("2", "f32"), ("f32", "2"), ("8", "4"), ("8", "2"), ("4", "2")]


def measure(args, text, folder, kind, block, kv_types):
    """Returns (bits per weight, file bytes, perplexity, its standard error, seconds)."""
    model = os.path.join(folder, "model.qsf")
    run(os.path.join(args.bin, "qsf-convert"), "--quiet", "--quant-type", kind, "--block-size",
        str(block), *args.how, args.model, model)
    facts = run(os.path.join(args.bin, "qsf-inspect"), model)
    bits = re.search(r"([0-9.]+) bits each", facts)
    start = time.monotonic()
    output = run(os.path.join(args.bin, "qsf-perplexity"), model, "--file", text, "--context",
                 str(args.context), "--kv-type-k", kv_types[0], "--kv-type-v", kv_types[1])
    seconds = time.monotonic() - start
    ppl, error = re.findall(r"PPL = ([0-9.]+) \+/- ([0-9.]+)", output)[-1]
    return bits.group(1) if bits else "?", os.path.getsize(model), float(ppl), float(error), seconds


def print_kv_types(args, text, folder):
    print("| keys | values | perplexity | over f32 | seconds |")
    print("|---|---|---|---|---|")
    base = None
    for kv_types in KV_TYPES:
        _, _, ppl, error, seconds = measure(args, text, folder, "f32", 64, kv_types)
        base = base or ppl
        print(f"| {kv_types[0]} | {kv_types[1]} | {ppl:.3f} +/- {error:.3f} | {100 * (ppl / base - 1):+.2f} % | {seconds:.0f} |",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="Hugging Face folder")
    parser.add_argument("text")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--bytes", type=int, default=0, help="score the first N bytes only")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--block", type=int, default=0, help="block size: this one only")
    parser.add_argument("--scale-search", default="on", choices=("on", "off"), help="as in qsf convert")
    parser.add_argument("--calibration", default="", help="text or saved calibration for qsf-convert")
    parser.add_argument("--gptq", action="store_true", help="with GPTQ")
    parser.add_argument("--types", default="", help="these types only, with commas between them")
    parser.add_argument("--kv-types", action="store_true", help="types of keys and values instead")
    args = parser.parse_args()
    args.how = ["--scale-search", args.scale_search, *(["--calibration", args.calibration] if args.calibration else []),
                *(["--gptq"] if args.gptq else [])]
    return measuring_script.exit_status("measure_quality.py", lambda: measure_all(args))


def measure_all(args):
    measuring_script.require(measuring_script.missing_inputs(args, "qsf-convert", "qsf-inspect", "qsf-perplexity"))
    types = [(kind, block) for kind, block in chosen_types([name for name in args.types.split(",") if name])
             if args.block in (0, block)]
    if not types and not args.kv_types:
        raise Failed(f"no type of --types {args.types or '(all)'} has a --block of {args.block}")
    with tempfile.TemporaryDirectory() as folder:
        text = write_head(args.text, args.bytes, os.path.join(folder, "text.txt"))
        if args.kv_types:
            print_kv_types(args, text, folder)
            return
        print("| type | block | bits per weight | file | perplexity | over f32 | seconds |")
        print("|---|---|---|---|---|---|---|")
        base = None
        for kind, block in types:
            bits, size, ppl, error, seconds = measure(args, text, folder, kind, block, ("f16", "f16"))
            base = ppl if kind == "f32" else base
            over = f"{100 * (ppl / base - 1):+.2f} %" if base else ""
            print(f"| {kind} | {block} | {bits} | {size / 1e6:.2f} MB | {ppl:.3f} +/- {error:.3f} | {over} | "
                  f"{seconds:.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
