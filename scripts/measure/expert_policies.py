#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replays recorded routings against caches of experts, and compares the policies that decide which
expert leaves.

Reads files of `qsf bench --record-routing` or of expert_routings.py. Every policy sees the same
accesses: token by token, layer by layer, the experts of a layer in ascending order. An expert is
in the cache as a whole; what is missing is read and takes the place of another. `belady` knows the
future and evicts what is used last: no policy has more hits.

`learned` is the policy of the engine (src/stream/expert_cache.h): it learns from the text which
experts are used again. `cyclic-H` expects uses at their rate, with a half-life of H tokens; `lrfu-H`
is that without regard to the order of layers. `segmented` keeps what was hit twice in a protected part of 80 %.
`shares` gives each layer a cache of its own, sized by the hits that one more expert would have
brought in the first quarter.

Example: expert_policies.py routings.txt --resident 25 50 75
"""

import argparse
import heapq
import math
import sys
from collections import OrderedDict, defaultdict

WARM_UP = 64  # tokens before the figures are taken: the cache is cold
ENGINE_HALF_LIFE = 24  # tokens, of the rates of uses


def read(path):
    """Returns (tokens [rows][layers] of experts or None, experts a layer, used) of generated rows."""
    rows = defaultdict(list)
    with open(path, encoding="ascii") as file:
        if file.readline().strip() != "qsf-routing 1":
            sys.exit(f"{path}: expected a file of qsf bench --record-routing")
        for line in file:
            role, layer, *words = line.split(">")[0].split(";")[0].split()
            if role == "g":
                rows[int(layer)].append(sorted(int(word.split(":")[0]) for word in words))
    if not rows:
        sys.exit(f"{path}: no generated rows")
    n_layers = max(rows) + 1
    n_tokens = min(len(of_layer) for of_layer in rows.values())
    tokens = [[rows[layer][t] if layer in rows else [] for layer in range(n_layers)]
              for t in range(n_tokens)]
    return tokens


def accesses(tokens):
    for t, layers in enumerate(tokens):
        for layer, experts in enumerate(layers):
            for expert in experts:
                yield t, (layer, expert)


class Lru:
    """The least recently used leaves."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.kept = OrderedDict()

    def use(self, _, key):
        hit = key in self.kept
        if hit:
            self.kept.move_to_end(key)
            return True
        if len(self.kept) >= self.capacity:
            self.kept.popitem(last=False)
        self.kept[key] = None
        return False


class Scores:
    """The sums of uses of all experts ever used, each halved in `half_life` tokens, as logarithms in
    units of the first token."""

    def __init__(self, half_life):
        self.growth = math.log(2) / half_life if math.isfinite(half_life) else 0.0
        self.of = {}

    def add(self, t, key):
        """Adds a use and returns the new score."""
        unit = t * self.growth
        old = self.of.get(key)
        self.of[key] = (unit if old is None
                        else max(old, unit) + math.log1p(math.exp(-abs(old - unit))))
        return self.of[key]


class Lrfu:
    """The expert with the lowest score leaves."""

    def __init__(self, capacity, half_life):
        self.capacity = capacity
        self.scores = Scores(half_life)
        self.kept = set()
        self.heap = []

    def use(self, t, key):
        score = self.scores.add(t, key)
        hit = key in self.kept
        if not hit:
            while len(self.kept) >= self.capacity:
                at, other = heapq.heappop(self.heap)
                if other in self.kept and self.scores.of[other] == at:
                    self.kept.remove(other)
            self.kept.add(key)
        heapq.heappush(self.heap, (score, key))
        return hit


class Cyclic:
    """The expert that is expected to be used last leaves: its rate of uses a token comes from the
    score, and layers come round in order."""

    def __init__(self, capacity, half_life, n_layers):
        self.capacity = capacity
        self.n_layers = n_layers
        self.scores = Scores(half_life)
        self.kept = set()
        self.heaps = [[] for _ in range(n_layers)]

    def lowest(self, layer):
        """The expert of a layer with the lowest score in the cache, or None."""
        heap = self.heaps[layer]
        while heap and (heap[0][1] not in self.kept or self.scores.of[heap[0][1]] != heap[0][0]):
            heapq.heappop(heap)
        return heap[0] if heap else None

    def evict(self, t, now):
        growth = self.scores.growth
        per_use = math.log1p(-math.exp(-growth))
        victim = longest = None
        for layer in range(self.n_layers):
            lowest = self.lowest(layer)
            if lowest is None:
                continue
            to_next = (layer - now) % self.n_layers or self.n_layers
            tokens = math.exp(-(lowest[0] - t * growth + per_use))
            expected = tokens + to_next / self.n_layers
            if longest is None or expected > longest:
                longest, victim = expected, lowest[1]
        self.kept.remove(victim)

    def use(self, t, key):
        score = self.scores.add(t, key)
        hit = key in self.kept
        if not hit:
            if len(self.kept) >= self.capacity:
                self.evict(t, key[0])
            self.kept.add(key)
        heapq.heappush(self.heaps[key[0]], (score, key))
        return hit


class Learned:
    """The expert that is expected to be used last leaves. The chance of a use in a token is learned:
    it is the share of those experts used that had been used as lately and as often."""

    N_AGES = 8
    N_RATES = 10
    PRIOR = 20.0
    FORGET = 0.99  # a token

    def __init__(self, capacity, n_layers, n_experts, half_life=ENGINE_HALF_LIFE):
        self.capacity = capacity
        self.n_layers = n_layers
        self.n_experts = n_experts
        self.keep = 2 ** (-1 / half_life)
        n = n_layers * n_experts
        self.rates = [0.0] * n
        self.last = [-(1 << 20)] * n
        self.cells = [self.N_AGES * self.N_RATES - 1] * n
        self.seen = [0.0] * (self.N_AGES * self.N_RATES)
        self.used = list(self.seen)
        self.waits = self.waits_of_cells()
        self.of_expert = [self.waits[-1]] * n
        self.kept = set()

    def waits_of_cells(self):
        waits = []
        for cell, (seen, used) in enumerate(zip(self.seen, self.used)):
            guess = 2 ** -((cell % self.N_RATES + 0.5) / 1.5)
            waits.append((seen + self.PRIOR) / (used + self.PRIOR * guess))
        return waits

    def start_token(self):
        self.waits = self.waits_of_cells()
        self.seen = [seen * self.FORGET for seen in self.seen]
        self.used = [used * self.FORGET for used in self.used]

    def start_layer(self, t, layer, experts):
        chosen = set(experts)
        for e in range(self.n_experts):
            i = layer * self.n_experts + e
            self.seen[self.cells[i]] += 1
            self.rates[i] *= self.keep
            if e in chosen:
                self.used[self.cells[i]] += 1
                self.rates[i] += 1 - self.keep
                self.last[i] = t
            age = min((t + 1 - self.last[i]).bit_length() - 1, self.N_AGES - 1)
            rate = int(-1.5 * math.log2(max(self.rates[i], 1e-9)))
            self.cells[i] = age * self.N_RATES + min(rate, self.N_RATES - 1)
            self.of_expert[i] = self.waits[self.cells[i]]

    def replay(self, tokens, warm_up):
        """Returns the hit rate behind the first tokens."""
        hits = n = 0
        for t, layers in enumerate(tokens):
            self.start_token()
            for layer, experts in enumerate(layers):
                if not experts:
                    continue
                self.start_layer(t, layer, experts)
                for expert in experts:
                    hit = self.use(layer, layer * self.n_experts + expert)
                    if t >= warm_up:
                        hits += hit
                        n += 1
        return hits / n

    def use(self, layer, i):
        if i in self.kept:
            return True
        if len(self.kept) >= self.capacity:
            to_next = [((own - layer) % self.n_layers or self.n_layers) / self.n_layers
                       for own in range(self.n_layers)]
            self.kept.remove(max(self.kept, key=lambda other: self.of_expert[other] +
                                 to_next[other // self.n_experts]))
        self.kept.add(i)
        return False


class Segmented:
    """LRU in two parts: a second hit protects."""

    def __init__(self, capacity):
        self.protected_size = max(1, capacity * 4 // 5)
        self.capacity = capacity
        self.fresh = OrderedDict()
        self.protected = OrderedDict()

    def use(self, _, key):
        if key in self.protected:
            self.protected.move_to_end(key)
            return True
        hit = key in self.fresh
        if hit:
            del self.fresh[key]
            self.protected[key] = None
            if len(self.protected) > self.protected_size:
                self.fresh[self.protected.popitem(last=False)[0]] = None
            return True
        if len(self.fresh) + len(self.protected) >= self.capacity:
            (self.fresh or self.protected).popitem(last=False)
        self.fresh[key] = None
        return False


class Shares:
    """An LRU cache for each layer."""

    def __init__(self, sizes):
        self.layers = [Lru(max(1, size)) for size in sizes]

    def use(self, t, key):
        return self.layers[key[0]].use(t, key)


def marginal_shares(tokens, capacity):
    """Sizes of the layers' caches: one expert at a time to the layer that it brings most hits."""
    n_layers = len(tokens[0])
    by_distance = [defaultdict(int) for _ in range(n_layers)]  # LRU stack distances
    for layer in range(n_layers):
        stack = []
        for experts in (token[layer] for token in tokens):
            for expert in experts:
                if expert in stack:
                    by_distance[layer][len(stack) - stack.index(expert)] += 1
                    stack.remove(expert)
                stack.append(expert)
    least = min(capacity // n_layers, max(len(experts) for experts in tokens[0]))
    sizes = [least] * n_layers
    heap = [(-by_distance[layer][sizes[layer] + 1], layer) for layer in range(n_layers)]
    heapq.heapify(heap)
    for _ in range(capacity - sum(sizes)):
        _, layer = heapq.heappop(heap)
        sizes[layer] += 1
        # Of the next distances together: single ones are noise.
        ahead = sum(by_distance[layer][sizes[layer] + i] for i in range(1, 5)) / 4
        heapq.heappush(heap, (-ahead, layer))
    return sizes


def belady(order, capacity, first):
    """Hits and accesses of the optimum from access `first` on."""
    next_use = [0] * len(order)
    seen = {}
    for i in range(len(order) - 1, -1, -1):
        next_use[i] = seen.get(order[i], len(order))
        seen[order[i]] = i
    kept = {}
    heap = []
    hits = 0
    for i, key in enumerate(order):
        if key in kept:
            hits += i >= first
        else:
            while len(kept) >= capacity:
                at, other = heapq.heappop(heap)
                if kept.get(other) == -at:
                    del kept[other]
        kept[key] = next_use[i]
        heapq.heappush(heap, (-next_use[i], key))
    return hits / (len(order) - first)


def hit_rate(policy, pairs, warm_up):
    hits = n = 0
    for t, key in pairs:
        hit = policy.use(t, key)
        if t >= warm_up:
            hits += hit
            n += 1
    return hits / n


def compare(tokens, n_experts, percent):
    """Returns {policy: hit rate} of a cache with so many percent of all experts."""
    pairs = list(accesses(tokens))
    n_layers = sum(1 for experts in tokens[0] if experts)
    capacity = max(3, round(n_layers * n_experts * percent / 100))
    warm_up = min(WARM_UP, len(tokens) // 2)
    first = sum(1 for t, _ in pairs if t < warm_up)
    rates = {"lru": hit_rate(Lru(capacity), pairs, warm_up)}
    for half_life in (1, 2, 4, 8, 16, 32, 64, 128):
        rates[f"lrfu-{half_life}"] = hit_rate(Lrfu(capacity, half_life), pairs, warm_up)
    rates["learned"] = Learned(capacity, len(tokens[0]), n_experts).replay(tokens, warm_up)
    for half_life in (2, 4, 8, 16, 32, 64):
        policy = Cyclic(capacity, half_life, len(tokens[0]))
        rates[f"cyclic-{half_life}"] = hit_rate(policy, pairs, warm_up)
    rates["lfu"] = hit_rate(Lrfu(capacity, math.inf), pairs, warm_up)
    rates["segmented"] = hit_rate(Segmented(capacity), pairs, warm_up)
    sizes = marginal_shares(tokens[: max(warm_up, len(tokens) // 4)], capacity)
    rates["shares"] = hit_rate(Shares(sizes), pairs, warm_up)
    rates["belady"] = belady([key for _, key in pairs], capacity, first)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--experts", type=int, help="of a layer; default: the largest seen, plus 1")
    parser.add_argument("--resident", type=float, nargs="+", default=[5, 10, 25, 50, 75],
                        help="percent of all experts in memory")
    options = parser.parse_args()
    for path in options.files:
        tokens = read(path)
        n_experts = options.experts or 1 + max(
            max(experts) for layers in tokens for experts in layers if experts)
        print(f"{path}: {len(tokens)} tokens, hits in percent after {WARM_UP} tokens")
        table = {percent: compare(tokens, n_experts, percent) for percent in options.resident}
        names = list(next(iter(table.values())))
        print(f"{'resident':>10}" + "".join(f"{percent:>9g}" for percent in table))
        for name in names:
            print(f"{name:>10}" + "".join(f"{100 * table[p][name]:9.1f}" for p in table))
        for percent, rates in table.items():
            best = max(rate for name, rate in rates.items() if name != "belady")
            print(f"{percent:g} %: learned has {100 * rates['learned'] / best:.1f} % of the best "
                  f"online policy's hits, {100 * rates['learned'] / rates['belady']:.1f} % of "
                  "Belady's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
