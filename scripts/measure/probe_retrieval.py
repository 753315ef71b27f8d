#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Retrieval test: a sentence with a made-up name at ten depths of a long text, asked for at the end.

    probe_retrieval.py MODEL.qsf TEXT RESULTS.json [--bin build/release/bin] [--context 4096] [--names N]
                       [--threads N] [--scale 1] [--only NAME ...] [--no-runs]

A text of the context's length holds one of the SENTENCES at some depth and ends with the same sentence. A model that
retrieves the first one gives the name at the end a higher probability. The tables show the mean log probability of the
name's tokens, minus that of the same text without the sentence, in nats a token; 0 means no retrieval. The first token
of the name has a table of its own, because the others follow from the tokens before them. For policies that choose
positions by attention, a third table is independent of the model's ability: the share of layers and KV heads in which
the name is still visible at the end, averaged over its tokens. docs/attention.md has the tables.
"""

import statistics
import sys
import tempfile

from attention_policies import (full, h2o, h2o_eviction, make_parser, open_results, run_perplexity, scaled, sentences_of,
                                window, with_error, write_lines)

# What is said before the name, and the name: no word of the tales, so that only the text can tell it.
SENTENCES = [("The password of the tower is", "Morvandel"), ("The name of the grey horse was", "Tibberlock"),
             ("The ship in the harbour was called", "Ostrafine"), ("The old miller's daughter was named", "Quillabeth"),
             ("The giant behind the hill is called", "Grumdoran"), ("The town beyond the forest is named", "Veldhaven"),
             ("The word that opens the door is", "Ashkaroon"), ("The youngest of the dwarfs was called", "Pimwick")]
DEPTHS = [0.05 + 0.1 * i for i in range(10)]
ROOM = 24  # tokens that joining sentences may add to the sum of their own


def policies(scale):
    def n(size):
        return scaled(size, scale)
    return [("full", full()), (f"h2o {n(64)} + {n(64)}", h2o(n(64), n(64), n(1024))),
            (f"h2o {n(256)} + {n(256)}", h2o(n(256), n(256), n(1024))),
            (f"chunks, last {n(508)} + sinks", h2o(n(508), 4, n(1024))),
            (f"window {n(540)}", window(n(540))), (f"window {n(1020)}", window(n(1020))),
            (f"kv h2o {n(256)} + {n(256)}", h2o_eviction(n(256), n(256))),
            (f"kv h2o {n(496)} + {n(496)}", h2o_eviction(n(496), n(496)))]


def place(sentences, counts, n_tokens, depth, sentence):
    """Returns sentences of n_tokens at most in all, the given one (None: none) between them at this depth."""
    chosen = []
    total = 0
    at = None
    for text, count in zip(sentences, counts):
        if at is None and total >= depth * n_tokens:
            at = len(chosen)
        if total + count > n_tokens:
            break
        chosen.append(text)
        total += count
    if sentence is not None:
        chosen.insert(len(chosen) if at is None else at, sentence)
    return chosen


class Probe:
    """The texts: for each name one without its sentence, then one for each depth."""

    def __init__(self, args, folder):
        with open(args.text, encoding="utf-8") as file:
            sentences = sentences_of(file.read())[:args.names * args.context // 8]
        asked = [f"{said} {name}" for said, name in SENTENCES[:args.names]]
        said_only = [said for said, _ in SENTENCES[:args.names]]
        counted = [w["tokens"] for w in run_perplexity(args, write_lines(folder, sentences + asked + said_only), [], "--lines")]
        counts = counted[:len(sentences)]
        n_asked = counted[len(sentences):len(sentences) + args.names]
        n_said = counted[len(sentences) + args.names:]
        self.n_name = [a - b for a, b in zip(n_asked, n_said)]
        self.lines = []
        first = 0  # sentence: every name has a part of the text to itself
        for i in range(args.names):
            room = args.context - 2 * n_asked[i] - ROOM
            texts = [place(sentences[first:], counts[first:], room, depth, inserted)
                     for depth, inserted in [(0.0, None)] + [(depth, asked[i] + ".") for depth in DEPTHS]]
            first += len(texts[0])
            self.lines += [" ".join([*text, asked[i]]) for text in texts]


def gains(windows, n_names):
    """Returns [(first token, other tokens)] by name and depth: what the sentence adds to the log probability of the
    name's tokens, in nats; `windows` are those of the texts of Probe, `n_names` the tokens of each name."""
    n = len(windows) // len(n_names)
    table = []
    for i, n_name in enumerate(n_names):
        named = [w[-n_name:] for w in windows[i * n:(i + 1) * n]]
        table.append([(named[0][0] - w[0], statistics.fmean(a - b for a, b in zip(named[0][1:], w[1:])))
                      for w in named[1:]])
    return table


def find_name(ids, n_name):
    """Returns the positions at which the last n_name ids stand for the first time; ends the script where that is the
    end itself, as the sentence was then cut into other tokens than the question."""
    name = ids[-n_name:]
    first = next(i for i in range(len(ids)) if ids[i:i + n_name] == name)
    if first == len(ids) - n_name:
        sys.exit(f"probe_retrieval.py: a name of {n_name} tokens stands at the end alone: its sentence was cut into "
                 "other tokens; choose other names in SENTENCES")
    return range(first, first + n_name)


def held_shares(windows, n_names):
    """Returns by name and depth the share of layers, KV heads and tokens of the name that are visible at the end."""
    n = len(windows) // len(n_names)
    table = []
    for i, n_name in enumerate(n_names):
        row = []
        for w in windows[i * n + 1:(i + 1) * n]:
            name = find_name(w["ids"], n_name)
            heads = [set(positions) for layer in w["visible"] for positions in layer]
            row.append(statistics.fmean(position in head for head in heads for position in name))
        table.append(row)
    return table


def print_table(title, results, form, pick):
    """`results` are (policy, values by name and depth)."""
    print(f"\n{title}\n")
    print("| |" + "".join(f" {depth:.2f} |" for depth in DEPTHS) + " mean |")
    print("|---|" + "---|" * (len(DEPTHS) + 1))
    for label, table in results:
        picked = [[pick(cell) for cell in row] for row in table]
        means = [statistics.fmean(column) for column in zip(*picked)]
        of_names = [statistics.fmean(row) for row in picked]
        print(f"| {label} |" + "".join(f" {mean:{form}} |" for mean in means) +
              f" {with_error(statistics.fmean(means), of_names, form)} |")


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--names", type=int, default=4, choices=range(1, len(SENTENCES) + 1), metavar="N")
    parser.add_argument("--only", nargs="+", help="policies whose names begin with one of these")
    args = parser.parse_args()
    stored = open_results(args)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        probe = None if args.no_runs else Probe(args, folder)
        path = None if args.no_runs else write_lines(folder, probe.lines)
        for label, options in policies(args.scale):
            if args.only and not any(label.startswith(name) for name in args.only):
                continue
            key = " ".join([str(args.context), str(args.names), *options])

            def run(options=options):
                chooses = "h2o" in options
                windows = run_perplexity(args, path, [*options, "--kv-type", "f32"], "--lines", kept=chooses)
                return {"gains": gains([w["losses"] for w in windows], probe.n_name),
                        "held": held_shares(windows, probe.n_name) if chooses else None}
            if not args.no_runs:
                print(f"probe_retrieval.py: {label}", file=sys.stderr, flush=True)
            found = stored.values.get(key) if args.no_runs else stored.get(key, run)
            if found is not None:
                results.append((label, found))
    found_by = [(label, found["gains"]) for label, found in results]
    print_table("first token of the name, nats", found_by, "+.2f", lambda cell: cell[0])
    print_table("other tokens of the name, nats a token", found_by, "+.2f", lambda cell: cell[1])
    held_by = [(label, found["held"]) for label, found in results if found["held"]]
    print_table("share of heads that see the name at the end", held_by, ".0%", lambda cell: cell)
    return 0


if __name__ == "__main__":
    sys.exit(main())
