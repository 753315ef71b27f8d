#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how well attention and KV policies recall facts of a long text.

    measure_recall.py MODEL.qsf TEXT RESULTS.json --tokenizer tokenizer.model [--every 35] [--windows 8]
                      [--bin build/release/bin] [--context 4096] [--threads N] [--scale 1] [--only NAME ...] [--no-runs]

Windows of TEXT are sown with facts: sentences that give something a made-up name ("The lord of the castle is
Morvandel."), one of them told every --every tokens, so each again and again (planted_facts.py). When a fact is told
again, only the text before can tell its name. Printed for every policy: the loss of such names' tokens in nats, by how
many tokens ago the fact was told last; the loss of all of them over that of full attention, with its standard error
over the windows; and the perplexity of the whole. Then pairs of policies that see as much. Names are made up anew, by
--seed. Only a model that has learned to look back (train_model.py --facts) shows anything.
Needs sentencepiece.
"""

import math
import random
import statistics
import sys
import tempfile

import planted_facts
from attention_policies import (full, h2o, h2o_eviction, make_parser, mean_of, mean_visible, open_results,
                                run_perplexity, scaled, sentences_of, with_error, window, write_lines)
from measure_long_text import rise

BINS = [256, 512, 1024, 2048, 4096]  # tokens since a fact was told last, at most


def pairs(scale):
    """Returns [(what chooses by attention, what it is held to), ...], each (label, options): mostly what takes the last
    positions of as many."""
    def n(size):
        return scaled(size, scale)

    def last(size):
        return f"window {size}, 4 sinks", window(size)
    chunk = n(1024)
    found = []
    for m in (64, 128, 256, 496):
        # The mean row of heavy hitters sees half a block more than window and heavy part.
        found.append(((f"kv h2o {n(m)} + {n(m)}", h2o_eviction(n(m), n(m))), last(2 * n(m) + 28)))
    for m in (64, 256):
        sparse = f"h2o {n(m)} + {n(m)}, S = {chunk}", h2o(n(m), n(m), chunk)
        by_mean = f"{sparse[0]}, mean", h2o(n(m), n(m), chunk, score="mean")
        local = f"h2o {2 * n(m) - 4} + sinks, S = {chunk}", h2o(2 * n(m) - 4, 4, chunk)
        found += [(sparse, last(2 * n(m) + chunk // 2 - 4)), (sparse, local), (sparse, last(2 * n(m) - 4)),
                  (sparse, by_mean)]
    return found


def policies(scale):
    return dict([("full attention", full()), *(policy for pair in pairs(scale) for policy in pair)])


def sow(sentences, facts, tokenizer, n_tokens, every, rng):
    """Returns sentences of n_tokens at most in all, joined by spaces: after every `every` tokens on average one of a
    random fact."""
    chosen = []
    total, next_fact = 0, every * rng.random()
    sentences = iter(sentences)
    while True:
        if total >= next_fact:
            said, name = rng.choice(facts)
            text = f"{said} {name}."
            next_fact += every
        else:
            text = next(sentences)
        n = len(tokenizer.encode(text))
        if total + n > n_tokens:
            return " ".join(chosen)
        chosen.append(text)
        total += n


def find_all(ids, part):
    """Returns the positions in `ids` where `part` begins."""
    return [i for i in range(len(ids) - len(part) + 1) if ids[i:i + len(part)] == part]


def recalls(ids, facts):
    """Returns [(position of the first token of a name, its tokens, tokens since the name was told last; None: never
    before)] of a window; `facts` are the ids of (what is said before the name, with the name)."""
    found = []
    for said, whole in facts:
        last = None
        for start in find_all(ids, whole):
            at = start + len(said)
            found.append((at, len(whole) - len(said), None if last is None else at - last))
            last = at
    return sorted(found)


def summarise(windows, facts):
    """Returns for each window the loss of every name told again [(tokens since, mean loss, tokens)], the mean loss of
    names told first and that of all tokens, of what is scored."""
    rows = []
    for w, of_window in zip(windows, facts):
        again, first = [], []
        for at, n, since in recalls(w["ids"], of_window):
            if at < w["first"]:
                continue  # not scored
            losses = w["losses"][at - w["first"]:at - w["first"] + n]
            if since is None:
                first += losses
            else:
                again.append([since, statistics.fmean(losses), n])
        rows.append({"again": again, "first": mean_of(first), "all": mean_of(w["losses"])})
    return rows


class Sown:
    """The windows: lines of text, and of each the facts as tokens."""

    def __init__(self, args):
        import sentencepiece  # what is printed with --no-runs does not need it
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=args.tokenizer)
        words = planted_facts.Words(tokenizer)
        rng = random.Random(args.seed)
        with open(args.text, encoding="utf-8") as file:
            sentences = iter(sentences_of(file.read()))
        self.lines, self.facts = [], []
        for _ in range(args.windows):
            facts = planted_facts.make_facts(words, rng, planted_facts.n_facts(args.context))
            self.facts.append([(tokenizer.encode(said), tokenizer.encode(f"{said} {name}")) for said, name in facts])
            try:
                self.lines.append(sow(sentences, facts, tokenizer, args.context - 2, args.every, rng))
            except StopIteration:
                sys.exit(f"measure_recall.py: {args.text}: too short for {args.windows} windows of {args.context} "
                         "tokens: ask for fewer --windows")


def bin_of(since):
    return next(i for i, most in enumerate(BINS) if since <= most)


def weighted(cells):
    """Returns the mean loss of names told again, by token; nothing for none."""
    return sum(loss * n for _, loss, n in cells) / sum(n for _, _, n in cells) if cells else None


def difference(base, other):
    """Returns what names told again cost more, in nats a token: as text, with the error of a mean over windows."""
    values = [weighted(b["again"]) - weighted(a["again"]) for a, b in zip(base, other) if a["again"]]
    return with_error(statistics.fmean(values), values, "+.2f")


def print_pairs(scale, results):
    rows_of = {label: rows for label, _, rows in results}
    print("\n| | held to | names told again, nats | perplexity |\n|---|---|---|---|")
    for (label, _), (held_to, _) in pairs(scale):
        if label in rows_of and held_to in rows_of:
            base, other = rows_of[held_to], rows_of[label]
            print(f"| {label} | {held_to} | {difference(base, other)} | "
                  f"{rise([row['all'] for row in base], [row['all'] for row in other])} |")


def print_table(context, results):
    """`results` are (policy, options, rows of summarise()), the first of full attention."""
    def form(value):
        return "" if value is None else f"{value:.2f}"
    base = results[0][2]
    ends = ["1", *(str(most + 1) for most in BINS)]
    n_cells = [sum(bin_of(cell[0]) == i for row in base for cell in row["again"]) for i in range(len(BINS))]
    print("| | sees, mean |" + "".join(f" {a} to {b} |" for a, b in zip(ends, BINS)) + " over full | perplexity |")
    print("|---|---|" + "---|" * (len(BINS) + 2))
    print("| names told again | |" + "".join(f" {n} |" for n in n_cells) + " | |")
    for label, options, rows in results:
        by_bin = [weighted([cell for row in rows for cell in row["again"] if bin_of(cell[0]) == i])
                  for i in range(len(BINS))]
        perplexity = math.exp(statistics.fmean(row["all"] for row in rows))
        over = difference(base, rows) if rows is not base else ""
        print(f"| {label} | {mean_visible(options, context):,.0f} |" +
              "".join(f" {form(value)} |" for value in by_bin) + f" {over} | {perplexity:.2f} |")
    first = [row["first"] for row in base if row["first"] is not None]
    if first:
        print(f"\nA name told for the first time: {statistics.fmean(first):.2f} nats a token under full attention.")


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--tokenizer", required=True, help="the model's tokenizer.model")
    parser.add_argument("--every", type=int, default=35, help="tokens from one fact told to the next, on average "
                        "(default: %(default)s)")
    parser.add_argument("--windows", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", nargs="+", help="policies whose names begin with one of these, and full attention")
    args = parser.parse_args()
    stored = open_results(args)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        sown = None if args.no_runs else Sown(args)
        path = None if args.no_runs else write_lines(folder, sown.lines)
        for label, options in policies(args.scale).items():
            if options and args.only and not any(label.startswith(name) for name in args.only):
                continue
            key = " ".join(map(str, [args.context, args.every, args.windows, args.seed, *options]))

            def run(options=options):
                windows = run_perplexity(args, path, [*options, "--kv-type", "f32"], "--lines")
                return summarise(windows, sown.facts)
            if not args.no_runs:
                print(f"measure_recall.py: {label}", file=sys.stderr, flush=True)
            rows = stored.values.get(key) if args.no_runs else stored.get(key, run)
            if rows is not None:
                results.append((label, options, rows))
    if not results or results[0][1]:
        sys.exit(f"measure_recall.py: {args.results} has no run of full attention with these options")
    if not any(row["again"] for row in results[0][2]):
        sys.exit("measure_recall.py: no name is told again in the scored half of a window: ask for a longer --context, "
                 "more --windows or a smaller --every")
    print_table(args.context, results)
    print_pairs(args.scale, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
