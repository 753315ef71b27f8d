#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how KV types, windows and sparse prefill change the perplexity of long text.

    measure_long_text.py MODEL.qsf TEXT RESULTS.json [--bin build/release/bin] [--context 4096] [--chunks N]
                         [--threads N] [--scale 1] [--groups types h2o window heavy ablation] [--no-runs]

Runs qsf-perplexity once for every line of the tables and prints them as Markdown. All runs see the same tokens, so
lines are compared with full attention window by window: the standard error behind a difference is that of the mean
difference of a window, far smaller than that of a perplexity. RESULTS.json keeps the mean loss of every window; runs
in it are not repeated. --scale divides all sizes, for models of shorter texts. docs/attention.md has the tables.
"""

import math
import statistics
import sys

from attention_policies import (full, h2o, h2o_eviction, make_parser, mean_visible, open_results, run_perplexity, scaled,
                                window, with_error)

GROUPS = ["types", "h2o", "window", "heavy", "ablation"]

TYPES = [("f16", "f16"), ("8", "8"), ("4", "4"), ("2", "2"), ("8", "4"), ("8", "2")]


def lines_of(group, scale):
    """Returns the lines of a group's table: what it is, and its options."""
    def n(size):
        return scaled(size, scale)

    def chunks(local, heavy, chunk, *more, score="sum"):
        sinks = ["--h2o-sinks", str(min(4, n(heavy)))] if scale > 1 and "--h2o-sinks" not in more else []
        return h2o(n(local), n(heavy), n(chunk), *more, *sinks, score=score)

    if group == "types":
        return [(f"keys {k}, values {v}", full("--kv-type-k", k, "--kv-type-v", v)) for k, v in TYPES]
    if group == "h2o":
        return [(f"h2o {n(m)} + {n(m)}, S = {n(1024)}", chunks(m, m, 1024)) for m in (32, 64, 128, 256)]
    if group == "window":
        return [(f"window {n(w)}, {sinks or 'no'} sinks", window(n(w), sinks))
                for w, sinks in ((156, 4), (284, 4), (540, 4), (1020, 4), (2044, 4), (544, 0), (1024, 0))]
    if group == "heavy":
        return [(f"kv-policy h2o, window {n(w)}, heavy {n(m)}", h2o_eviction(n(w), n(m)))
                for w, m in ((64, 64), (128, 128), (256, 256), (480, 32), (496, 496), (736, 256), (928, 64))]
    by_mean = (f"L {n(256)}, H {n(256)}, S {n(1024)}, mean", chunks(256, 256, 1024, score="mean"))
    return [by_mean] + [
            (f"L {n(local)}, H {n(heavy)}, S {n(chunk)}{note}", chunks(local, heavy, chunk, *more))
            for local, heavy, chunk, note, more in (
                (256, 256, 1024, ", no sinks", ("--h2o-sinks", "0")),
                (256, 256, 1024, ", 64 sinks", ("--h2o-sinks", str(n(64)))),
                (508, 4, 1024, ": sinks alone are heavy", ()),
                (384, 128, 1024, "", ()), (128, 384, 1024, "", ()), (0, 512, 1024, "", ()),
                (4, 0, 1024, ": chunks alone, nearly", ("--h2o-sinks", "0")),
                (256, 256, 2048, "", ()),
                (128, 128, 512, "", ()), (252, 4, 512, ": sinks alone are heavy", ()),
                (64, 64, 256, "", ()), (124, 4, 256, ": sinks alone are heavy", ()))]


# Lines that see as many positions, the second of which the first is held to: what chooses by attention, and what takes
# the last ones; and what ranks by the sum, and by the mean.
PAIRS = [(h2o(256, 256), h2o(256, 256, score="mean")), (h2o(256, 256), window(1020)),
         (h2o(256, 256), h2o(508, 4)), (h2o(128, 128, 512), h2o(252, 4, 512)),
         (h2o(64, 64, 256), h2o(124, 4, 256)), (h2o_eviction(64, 64), window(156)),
         (h2o_eviction(128, 128), window(284)), (h2o_eviction(256, 256), window(540)),
         (h2o_eviction(480, 32), window(540)), (h2o_eviction(496, 496), window(1020)),
         (h2o_eviction(736, 256), window(1020)), (h2o_eviction(928, 64), window(1020)),
         (h2o(256, 256), window(1024, 0)), (h2o_eviction(256, 256), window(544, 0)),
         (h2o_eviction(496, 496), window(1024, 0))]


def rise(base, other):
    """Returns by how many percent `other` raises the perplexity over `base`, as text with the standard error of that,
    from mean losses of the same windows."""
    differences = [b - a for a, b in zip(base, other)]
    ratio = math.exp(statistics.fmean(differences))
    return with_error(100 * (ratio - 1), differences, "+.2f", 100 * ratio) + " %"


def print_table(lines, context, base, results):
    """Prints the lines that `results` has."""
    print("| | sees, mean | perplexity | over full |")
    print("|---|---|---|---|")
    for label, options, key in lines:
        if key not in results:
            continue
        means = results[key]
        print(f"| {label} | {mean_visible(options, context):,.0f} | {math.exp(statistics.fmean(means)):.3f} | "
              f"{rise(base, means)} |", flush=True)


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--chunks", type=int, default=0, help="windows of the text; 0, the default: all")
    parser.add_argument("--groups", nargs="+", default=GROUPS, choices=GROUPS)
    args = parser.parse_args()
    results = open_results(args)
    chunks = ["--chunks", str(args.chunks)] if args.chunks else []

    # Everything but the group of types has keys and values in f32, so that a difference has one cause.
    def key_of(options):
        return " ".join([str(args.context), *chunks, *options])

    def measure(options):
        types = [] if "--kv-type-k" in options else ["--kv-type", "f32"]

        def run():
            windows = run_perplexity(args, args.text, [*options, *types], *chunks)
            return [statistics.fmean(w["losses"]) for w in windows]
        if args.no_runs:
            return results.values.get(key_of(options))
        return results.get(key_of(options), run)

    base = measure(full())
    if base is None:
        print(f"measure_long_text.py: {args.results} has no run of full attention with these options", file=sys.stderr)
        return 1
    print(f"{len(base)} windows of {args.context} tokens; full attention: perplexity "
          f"{math.exp(statistics.fmean(base)):.3f}, sees {mean_visible(full(), args.context):,.0f} positions")
    for group in args.groups:
        lines = [(label, options, key_of(options)) for label, options in lines_of(group, args.scale)]
        for label, options, _ in lines if not args.no_runs else ():
            print(f"measure_long_text.py: {label}", file=sys.stderr, flush=True)
            measure(options)
        print(f"\n{group}\n")
        print_table(lines, args.context, base, results.values)
    labels = {key: label for group in args.groups for label, options in lines_of(group, args.scale)
              for key in [key_of(options)]}
    print("\n| | held to | seen, mean | perplexity |\n|---|---|---|---|")
    for options, others in PAIRS:
        keys = [key_of(options), key_of(others)]
        if all(key in results.values and key in labels for key in keys):
            visible = [mean_visible(o, args.context) for o in (options, others)]
            print(f"| {labels[keys[0]]} | {labels[keys[1]]} | {visible[0]:,.0f} and {visible[1]:,.0f} | "
                  f"{rise(results.values[keys[1]], results.values[keys[0]])} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
