#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares chains and trees of drafted tokens on recorded texts, by counting passes.

    study_draft_trees.py TEXTS [--nodes 15,31]

TEXTS is a file of measure_speculation.py. A chain copies what followed the last occurrence of the longest
repeated end of the text, as the engine does. A tree has as many tokens: those of greatest chance by all
occurrences of that end and, with less weight, of shorter ends. Prints the tokens a pass of both for each
text and number of drafted tokens. What a drafted row costs is not counted.
"""

import argparse
import collections
import heapq

MAX_END = 16  # tokens of a repeated end
MAX_OCCURRENCES = 32  # of an end, the last ones
AGE_FACTOR = 0.7  # of the weight from an occurrence to the one before it
LENGTH_FACTOR = 0.25  # the same to ends of half the length
GO_ON = 0.95  # chance that a guess is followed by another good one


class Text:
    """Tokens, and where every end of up to MAX_END tokens occurred before."""

    def __init__(self, tokens):
        self.tokens = []
        self.followers = collections.defaultdict(list)  # end -> indices of the tokens behind it
        for token in tokens:
            self.append(token)

    def append(self, token):
        at = len(self.tokens)
        for length in range(1, min(MAX_END, at) + 1):
            self.followers[tuple(self.tokens[at - length:])].append(at)
        self.tokens.append(token)

    def occurrences(self, length):
        return self.followers.get(tuple(self.tokens[-length:]), [])

    def longest_end(self):
        """Returns the length of the longest end that occurred before; 0 without one."""
        longest = min(MAX_END, len(self.tokens))
        return next((n for n in range(longest, 0, -1) if self.occurrences(n)), 0)


def draft_chain(text, n_nodes):
    """Returns the drafted paths: every beginning of one continuation."""
    length = text.longest_end()
    if length == 0:
        return set()
    at = text.occurrences(length)[-1]
    draft = []
    while len(draft) < n_nodes:
        draft.append(text.tokens[at] if at < len(text.tokens) else draft[at - len(text.tokens)])
        at += 1
    return {tuple(draft[:n + 1]) for n in range(n_nodes)}


def weighted_occurrences(text):
    weights = {}
    length = text.longest_end()
    factor = 1.0
    while length > 0:
        weight = factor
        for at in reversed(text.occurrences(length)[-MAX_OCCURRENCES:]):
            if at not in weights:
                weights[at] = weight
                weight *= AGE_FACTOR
        factor *= LENGTH_FACTOR
        length //= 2
    return list(weights.items())


def next_nodes(text, occurrences, chance):
    """Returns (chance, token, occurrences) of each token that follows."""
    groups = collections.defaultdict(list)
    for at, weight in occurrences:
        if at < len(text.tokens):
            groups[text.tokens[at]].append((at + 1, weight))
    total = sum(weight for _, weight in occurrences)
    return [(chance * GO_ON * sum(weight for _, weight in group) / total, token, group)
            for token, group in groups.items()]


def draft_tree(text, n_nodes):
    """Returns the drafted paths: the n_nodes of greatest chance."""
    paths = set()
    heap = []
    n_pushed = 0
    path, chance, occurrences = (), 1.0, weighted_occurrences(text)
    while len(paths) < n_nodes:
        for next_chance, token, group in next_nodes(text, occurrences, chance):
            heapq.heappush(heap, (-next_chance, n_pushed, path + (token,), group))
            n_pushed += 1
        if not heap:
            break
        negative, _, path, occurrences = heapq.heappop(heap)
        chance = -negative
        paths.add(path)
    return paths


def tokens_a_pass(prompt, answer, draft, n_nodes):
    text = Text(prompt)
    done = 0
    n_passes = 0
    while done < len(answer):
        paths = draft(text, n_nodes)
        n_right = 0
        while done + n_right < len(answer) and tuple(answer[done:done + n_right + 1]) in paths:
            n_right += 1
        for token in answer[done:done + n_right + 1]:  # the last one is drawn from the pass's logits
            text.append(token)
        done += n_right + 1
        n_passes += 1
    return len(answer) / n_passes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", metavar="TEXTS")
    parser.add_argument("--nodes", default="15,31", help="drafted tokens of a pass; default: 15,31")
    args = parser.parse_args()
    with open(args.texts, encoding="ascii") as file:
        for line in file:
            name, prompt, answer = line.rstrip("\n").split("\t")
            prompt = [int(token) for token in prompt.split()]
            answer = [int(token) for token in answer.split()]
            for n_nodes in (int(n) for n in args.nodes.split(",")):
                chain = tokens_a_pass(prompt, answer, draft_chain, n_nodes)
                tree = tokens_a_pass(prompt, answer, draft_tree, n_nodes)
                print(f"{name}: {n_nodes} drafted: chain {chain:.2f}, tree {tree:.2f} tokens a pass, {tree / chain:.2f}x",
                      flush=True)


if __name__ == "__main__":
    main()
