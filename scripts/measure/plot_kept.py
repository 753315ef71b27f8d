#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws which positions of a text are visible to each layer and KV head.

    plot_kept.py KEPT.json OUT.png [--window 0] [--bins 256] [--before N]

KEPT.json is what `qsf-perplexity MODEL --file TEXT --chunks 1 --attention h2o --kept KEPT.json` writes. The picture has a
panel for every step of the window (of --before tokens at most). A panel has a line for each KV head, and a line has
cells of a few positions each: white where none is visible, dark where all are. Prints the share of adjacent heads whose
sets differ, and how much of their sets they share on average. Needs matplotlib.
"""

import argparse
import json
import sys


def shares(positions, n_tokens, n_bins):
    """Returns the share of visible positions in each of n_bins equal parts of n_tokens."""
    counts = [0] * n_bins
    sizes = [0] * n_bins
    for position in range(n_tokens):
        sizes[position * n_bins // n_tokens] += 1
    for position in positions:
        counts[position * n_bins // n_tokens] += 1
    return [count / size if size else 0.0 for count, size in zip(counts, sizes)]


def compare_heads(layers):
    """Returns (adjacent pairs of heads, those of them with other sets, mean share of what a head chose that the next one
    chose too). Positions that all heads of all layers have are no choice of any: sinks, and the last ones."""
    common = set.intersection(*(set(positions) for heads in layers for positions in heads))
    pairs = [(set(a) - common, set(b) - common) for heads in layers for a, b in zip(heads, heads[1:])]
    different = sum(a != b for a, b in pairs)
    shared = [len(a & b) / len(a) for a, b in pairs if a]
    return len(pairs), different, sum(shared) / len(shared) if shared else 0.0


def draw(steps, path, n_bins):
    import matplotlib  # optional for the other scripts
    matplotlib.use("Agg")
    from matplotlib import pyplot
    n_tokens = steps[-1]["tokens"]
    figure, axes = pyplot.subplots(len(steps), 1, figsize=(10, 0.6 + 1.9 * len(steps)), sharex=True, squeeze=False)
    for axis, step in zip(axes[:, 0], steps):
        layers = step["visible"]
        lines = [shares(positions, n_tokens, n_bins) for heads in layers for positions in heads]
        axis.imshow(lines, aspect="auto", cmap="Greys", vmin=0, vmax=1, interpolation="nearest",
                    extent=(0, n_tokens, len(layers), 0))
        for layer in range(1, len(layers)):
            axis.axhline(layer, color="#ee6677", linewidth=0.5)
        axis.axvline(step["tokens"], color="#4477aa", linewidth=1)
        axis.set_yticks([layer + 0.5 for layer in range(len(layers))], range(len(layers)))
        axis.set_ylabel("layer")
        axis.set_title(f"after {step['tokens']} tokens", fontsize=9, loc="left")
    axes[-1, 0].set_xlabel("position")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept")
    parser.add_argument("out")
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--bins", type=int, default=256)
    parser.add_argument("--before", type=int, default=0, help="steps of at most so many tokens; 0, the default: all")
    args = parser.parse_args()
    with open(args.kept, encoding="ascii") as file:
        steps = [step for step in map(json.loads, file) if step["window"] == args.window]
    steps = [step for step in steps if args.before == 0 or step["tokens"] <= args.before]
    if not steps:
        print(f"plot_kept.py: {args.kept}: nothing of window {args.window}", file=sys.stderr)
        return 1
    draw(steps, args.out, args.bins)
    for step in steps:
        pairs, different, shared = compare_heads(step["visible"])
        print(f"after {step['tokens']} tokens: {different} of {pairs} adjacent heads differ, "
              f"{100 * shared:.0f} % of what a head chose is in the next head's set as well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
