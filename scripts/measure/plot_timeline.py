#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws how reading, unpacking and computing overlap while a model is streamed.

    plot_timeline.py TIMELINE.json OUT.png [--milliseconds 12]

TIMELINE.json is what `qsf-bench MODEL --stream BUDGET --timeline TIMELINE.json` writes. The picture
shows that long a stretch from the middle of the run: a line a tile, in the order of reading, from
the start of its read to its release. Prints the share of the whole run with a read in flight. Needs matplotlib.
"""

import argparse
import json
import sys

PARTS = (("read_start_ns", "read_end_ns", "read", "#4477aa"), ("read_end_ns", "ready_ns", "check, unpack", "#ccbb44"),
         ("ready_ns", "acquired_ns", "wait for its turn", "#dddddd"), ("acquired_ns", "released_ns", "compute", "#ee6677"))


def finished(events):
    """Returns the tiles whose way is recorded from end to end, in the order of their reads."""
    return sorted((e for e in events if e["read_end_ns"] > 0 and e["released_ns"] > 0), key=lambda e: e["read_start_ns"])


def reading_share(events):
    """Returns the share of the time from the first read to the last with at least one in flight."""
    busy = 0
    end = events[0]["read_start_ns"]
    for event in events:
        busy += max(0, event["read_end_ns"] - max(end, event["read_start_ns"]))
        end = max(end, event["read_end_ns"])
    return busy / (end - events[0]["read_start_ns"])


def draw(events, path, span_ns):
    import matplotlib  # optional for the other scripts
    matplotlib.use("Agg")
    from matplotlib import pyplot
    middle = (events[0]["read_start_ns"] + events[-1]["released_ns"]) // 2
    shown = [e for e in events if e["released_ns"] > middle and e["read_start_ns"] < middle + span_ns]
    figure, axes = pyplot.subplots(figsize=(10, 6))
    for begin, end, label, colour in PARTS:
        lefts = [(e[begin] - middle) / 1e6 for e in shown]
        widths = [(e[end] - e[begin]) / 1e6 for e in shown]
        axes.barh(range(len(shown)), widths, left=lefts, height=0.8, label=label, color=colour)
    axes.set_xlim(0, span_ns / 1e6)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("tiles, in the order of reading")
    axes.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline")
    parser.add_argument("out")
    parser.add_argument("--milliseconds", type=float, default=12.0)
    args = parser.parse_args()
    with open(args.timeline, encoding="ascii") as file:
        events = finished(json.load(file))
    if not events:
        print(f"plot_timeline.py: {args.timeline}: no tile was read and used; stream a larger model or less memory",
              file=sys.stderr)
        return 1
    draw(events, args.out, int(args.milliseconds * 1e6))
    print(f"a read was in flight for {100 * reading_share(events):.1f} % of the time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
