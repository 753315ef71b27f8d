#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how much of an output head has to be read for the best tokens, and for what probably are the best.

Runs a model over texts for its hidden rows behind the final norm, and takes its head as f32. For the clusters of a
balanced k-means and for sketches of every row it prints

    greedy, top 40   the share of rows that an upper bound cannot exclude (mean, median, 90 % and 99 % of positions):
                     what a certified search has to read
    agreement        how often the best token is in the m best clusters, or among the m best rows of a sketch

A sketch is the head, less its mean row, in the basis of the principal directions of hidden rows (of --calibration), in blocks of 64 columns,
each block with its own number of bits, 0 included. With errors e of a row's blocks and blocks x of the hidden row,

    logit <= sketch logit + sum over blocks of |x_b| |e_b|

Bits go where they narrow that sum most for their bytes. "units" are runs of 16 rows with a candidate, in the order of the
vocabulary and in that of clusters; "staged" is the share of bytes read where a sketch is read block by block, of units
alone that the blocks before could not exclude.

MODEL is a folder of Hugging Face or a .gguf file (which needs accelerate). Examples:

    study_head_clusters.py SmolLM2-135M-Instruct.Q4_1.gguf --row-bytes 612 \\
        --calibration docs/architecture.md docs/server-api.md train.txt \\
        --texts testdata/tale.txt docs/streaming.md docs/gguf.md docs/chat.md
    study_head_clusters.py models/tales-5M --row-bytes 272 --calibration train.txt --texts valid.txt
"""

import argparse
import os
import pathlib

import numpy as np
import torch

ROWS_AT_ONCE = 200  # hidden rows whose logits are held at once
BLOCK = 64          # columns of a block of a sketch
UNIT = 16           # rows that kernels multiply at once
BITS = (0, 1, 2, 3, 4, 6, 8)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", type=pathlib.Path)
    add("--calibration", nargs="+", type=pathlib.Path, required=True, metavar="TEXT")
    add("--texts", nargs="+", type=pathlib.Path, required=True, metavar="TEXT", help="other than those of --calibration")
    add("--positions", type=int, default=2000, metavar="N", help="of the texts, and as many of --calibration")
    add("--row-bytes", type=float, required=True, metavar="N", help="of a stored row, which shares refer to")
    add("--clusters", nargs="*", type=int, default=(64, 256, 1024), metavar="K")
    add("--states", type=pathlib.Path, metavar="FILE.npz", help="keeps what the model gave, or has it already")
    return parser.parse_args()


def load(path):
    """Returns (model, function from text to ids)."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    if path.suffix == ".gguf":
        options = {"gguf_file": path.name}
        model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **options)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, **options)
        return model, lambda text: tokenizer(text)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if (path / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(path)
        return model, lambda text: tokenizer(text)["input_ids"]
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(str(path / "tokenizer.model"))
    return model, lambda text: [pieces.bos_id(), *pieces.encode(text)]


@torch.no_grad()
def hidden_rows(model, encode, texts, n_positions):
    """Returns n_positions rows or fewer, as many of each text, in contexts of 512 tokens."""
    rows = []
    for text in texts:
        ids = encode(text.read_text(encoding="utf-8")[:20 * n_positions])[:-(-n_positions // len(texts))]
        for first in range(0, len(ids), 512):
            rows.append(model.model(torch.tensor([ids[first:first + 512]])).last_hidden_state[0])
    return torch.cat(rows)


def states(args):
    """Returns (head [V, D], calibration rows, rows of the texts)."""
    if args.states and args.states.exists():
        kept = np.load(args.states)
        return [torch.tensor(kept[name]) for name in ("head", "calibration", "rows")]
    model, encode = load(args.model)
    model.eval()
    found = [model.lm_head.weight.detach().float()]
    found += [hidden_rows(model, encode, texts, args.positions) for texts in (args.calibration, args.texts)]
    if args.states:
        np.savez(args.states, head=found[0], calibration=found[1], rows=found[2])
    return found


class Exact:
    """What the full head gives for each hidden row."""

    def __init__(self, head, rows):
        best, greedy, top40 = [], [], []
        for part in rows.split(ROWS_AT_ONCE):
            values, ids = (part @ head.T).topk(40, 1)
            best.append(ids[:, 0])
            greedy.append(values[:, 0])
            top40.append(values[:, 39])
        self.best, self.greedy, self.top40 = map(torch.cat, (best, greedy, top40))


def shares(values):
    """Returns a row's cells: mean and quantiles of shares."""
    quantiles = [values.mean().item()] + [values.quantile(q).item() for q in (.5, .9, .99)]
    return " / ".join(f"{100 * q:.1f}" for q in quantiles)


def agreement(ranks, counts):
    return ", ".join(f"{m}: {100 * (ranks < m).float().mean().item():.1f}" for m in counts)


# Clusters.

def assign_balanced(similarity, capacity):
    """Gives each row the most similar cluster with room; rows that lose most by another choose first."""
    n_rows, n_clusters = similarity.shape
    owner = torch.full((n_rows,), -1)
    room = torch.full((n_clusters,), capacity)
    left = torch.arange(n_rows)
    while len(left):
        values, ids = similarity[left].topk(min(2, n_clusters), 1)
        order = torch.argsort(values[:, 0] - values[:, -1], descending=True, stable=True)
        wanted = ids[order, 0]
        by_cluster = torch.argsort(wanted, stable=True)
        grouped = wanted[by_cluster]
        place = torch.arange(len(grouped)) - torch.searchsorted(grouped, torch.arange(n_clusters))[grouped]
        taken = order[by_cluster[place < room[grouped]]]
        owner[left[taken]] = ids[taken, 0]
        room -= torch.bincount(ids[taken, 0], minlength=n_clusters)
        similarity[:, room == 0] = -torch.inf
        left = left[owner[left] < 0]
    return owner


def normed(rows):
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-9)


def k_means(rows, n_clusters, spherical, balanced=True, n_steps=8):
    points = normed(rows) if spherical else rows
    start = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))[:n_clusters]
    centroids = points[start]
    for _ in range(n_steps):
        similarity = points @ centroids.T
        if not spherical:
            similarity -= centroids.square().sum(1) / 2
        owner = assign_balanced(similarity, -(-len(rows) // n_clusters)) if balanced else similarity.argmax(1)
        sums = torch.zeros(n_clusters, rows.shape[1]).index_add_(0, owner, points)
        centroids = normed(sums) if spherical else sums / torch.bincount(owner, minlength=n_clusters).clamp(min=1)[:, None]
    return owner


def study_clusters(args, head, rows, exact):
    mean = head.mean(0)
    centred = head - mean
    print("| K | clusters | kept of norms | greedy: read % | top 40: read % | agreement % of the m best |\n|---|---|---|---|---|---|")
    for n_clusters in args.clusters:
        for name, points, spherical, balanced in (("Euclidean", centred, False, True), ("spherical", centred, True, True),
                                                  ("spherical, with mean", head, True, True),
                                                  ("Euclidean, unequal", centred, False, False)):
            owner = k_means(points, n_clusters, spherical, balanced)
            counts = torch.bincount(owner, minlength=n_clusters)
            centroids = torch.zeros(n_clusters, head.shape[1]).index_add_(0, owner, centred)
            centroids /= counts.clamp(min=1)[:, None]
            rest = (centred - centroids[owner]).norm(dim=1)
            radius = torch.zeros(n_clusters).scatter_reduce_(0, owner, rest, "amax")
            scores = rows @ centroids.T
            bounds = scores + rows.norm(dim=1)[:, None] * radius + (rows @ mean)[:, None]
            read = [shares((bounds >= t[:, None]).float() @ counts.float() / len(head)) for t in (exact.greedy, exact.top40)]
            ranks = (scores > scores.gather(1, owner[exact.best][:, None])).sum(1)
            print(f"| {n_clusters} | {name} | {(rest / centred.norm(dim=1)).mean().item():.2f} | {read[0]} | {read[1]} | "
                  f"{agreement(ranks, (1, 2, 4, 8, 16, 32))}; 99 % at {int(ranks.float().quantile(.99)) + 1} |", flush=True)


# Sketches.

def rounded(rows, bits):
    """Returns the rows of a block with one f16 scale each, the best of a few; one and two bits have no code for 0."""
    if bits == 0:
        return torch.zeros_like(rows)
    half = 2**bits // 2
    best = error = None
    for part in (1.0,) if bits >= 6 else (.55, .65, .75, .85, 1.0) if bits >= 3 else (.3, .4, .5, .6, .7, .8):
        step = rows.abs().amax(1, keepdim=True) * part / (half - (.5 if bits < 3 else 1))
        step = step.half().float().clamp(min=1e-7)
        middle = .5 if bits < 3 else 0
        found = ((rows / step - middle).round().clamp(-half, half - 1) + middle) * step
        its_error = (rows - found).square().sum(1)
        better = its_error < (torch.inf if best is None else error)
        best = found if best is None else torch.where(better[:, None], found, best)
        error = its_error if error is None else torch.minimum(error, its_error)
    return best


def block_bytes(bits):
    """Codes, a scale, and a byte for the norm of the error."""
    return (BLOCK * bits / 8 + 2 if bits else 0) + 1


class Sketch:
    """The head's rows and the hidden rows in the principal directions of the calibration rows."""

    def __init__(self, head, calibration, rows):
        covariance = (calibration.T @ calibration).double()
        basis = torch.linalg.eigh(covariance)[1].flip(1).float()
        self.weights = ((head - head.mean(0)) @ basis).split(BLOCK, 1)
        self.shared = rows @ head.mean(0)  # a part of all logits of a row
        self.rows = (rows @ basis).split(BLOCK, 1)
        self.typical = [block.norm(dim=1).mean().item() for block in (calibration @ basis).split(BLOCK, 1)]
        self.codes = [{b: rounded(block, b).half() for b in BITS} for block in self.weights]
        self.errors = [{b: (block - codes[b].float()).norm(dim=1) for b in BITS}
                       for block, codes in zip(self.weights, self.codes)]
        self.norms = [block.norm(dim=1) for block in self.weights]

    def allocations(self, row_bytes):
        """Yields numbers of bits for the blocks, from few bytes to many."""
        bits = [0] * len(self.weights)
        def gain(block, more):
            width = [self.typical[block] * self.errors[block][b].mean().item() for b in (bits[block], more)]
            return (width[0] - width[1]) / (block_bytes(more) - block_bytes(bits[block]))
        shown = 0.0
        while min(bits) < BITS[-1]:
            _, block, more = max((gain(i, b), i, b) for i, had in enumerate(bits) for b in BITS if b > had)
            bits[block] = more
            share = sum(map(block_bytes, bits)) / row_bytes
            if share > .5:
                return
            if share >= shown + .05:
                shown = share
                yield list(bits)

    def parts(self, bits, first, last):
        """Yields (block, products of its codes, bounds of what they leave out) for hidden rows."""
        for i, b in enumerate(bits):
            x = self.rows[i][first:last]
            yield i, x @ self.codes[i][b].float().T, x.norm(dim=1)[:, None] * self.errors[i][b]

    def measure(self, bits, exact, order, row_bytes):
        """Returns the table's cells."""
        found = {name: [] for name in ("greedy", "top40", "units", "clustered", "staged", "ranks")}
        n_rows, n_head = len(self.rows[0]), len(self.norms[0])
        def in_units(mask):
            pad = -mask.shape[1] % UNIT
            return torch.nn.functional.pad(mask, (0, pad)).unflatten(1, (-1, UNIT)).any(2).float().mean(1)
        for first in range(0, n_rows, ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, n_rows)
            bound = sum(self.rows[i][first:last].norm(dim=1)[:, None] * norms for i, norms in enumerate(self.norms))
            greedy, top40 = ((t - self.shared)[first:last, None] for t in (exact.greedy, exact.top40))
            staged, alive, sketch = torch.zeros(last - first), torch.ones(last - first), torch.zeros_like(bound)
            for i, products, rest in self.parts(bits, first, last):
                staged += alive * (block_bytes(bits[i]) / row_bytes)
                sketch += products
                bound += products + rest - self.rows[i][first:last].norm(dim=1)[:, None] * self.norms[i]
                alive = in_units((bound >= greedy - 1e-3)[:, order])
            found["staged"].append(staged + alive)
            found["greedy"].append((bound >= greedy).float().mean(1))
            found["top40"].append((bound >= top40).float().mean(1))
            found["units"].append(in_units(bound >= greedy))
            found["clustered"].append(alive)
            found["ranks"].append((sketch > sketch.gather(1, exact.best[first:last, None])).sum(1))
        found = {name: torch.cat(values) for name, values in found.items()}
        return (f"{shares(found['greedy'])} | {shares(found['top40'])} | {shares(found['units'])} | {shares(found['clustered'])} | "
                f"{shares(found['staged'])} | {agreement(found['ranks'], (1, 4, 16, 64, 256))}")


def study_sketches(args, head, calibration, rows, exact):
    sketch = Sketch(head, calibration, rows)
    order = k_means(head - head.mean(0), max(2, len(head) // 192), spherical=False).argsort(stable=True)
    print("\n| bits of blocks | bytes | of a row % | greedy: rows % | top 40: rows % | greedy: units % | "
          "in clusters % | staged, bytes % | agreement % of the m best |\n|---|---|---|---|---|---|---|---|---|")
    for bits in sketch.allocations(args.row_bytes):
        n_bytes = sum(map(block_bytes, bits))
        print(f"| {' '.join(map(str, bits))} | {n_bytes:.0f} | {100 * n_bytes / args.row_bytes:.1f} | "
              f"{sketch.measure(bits, exact, order, args.row_bytes)} |", flush=True)


def main():
    args = parse_arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with torch.no_grad():
        head, calibration, rows = states(args)
        exact = Exact(head, rows)
        print(f"vocabulary and columns {tuple(head.shape)}, {len(rows)} positions, {len(calibration)} of calibration\n")
        study_clusters(args, head, rows, exact)
        study_sketches(args, head, calibration, rows, exact)


if __name__ == "__main__":
    main()
