#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Generates routings of a mixture of experts, for models of random weights.

The routers of random weights choose at random; those of real models come back to the same experts.
A row here takes the experts with the largest scores, and a score is the sum of four normal parts:
the expert's popularity in the layer, the topic of the text (its correlation falls to 1/e in some
hundred tokens), the sentence (some ten tokens), and the token alone. The four weights of a profile
are fitted to what was published of a model: how often a choice comes again with the next token and
within eight, and the hit rate of an LRU cache (`--check` prints them).

The routers of random weights guess nothing either, so the file also has guesses of each choice: the
experts with the largest scores after noise, as much of it as makes the published share of guesses
come true.

The file is one that `qsf bench --routing` reads.

Example: expert_routings.py --profile qwen3-30b --tokens 512 routings.txt
"""

import argparse
import heapq
import math
import random
import sys

# layers, experts, used; weights of popularity, topic, sentence and token; the lengths of topic and
# sentence in tokens. Published: Qwen3-30B-A3B, 40 % of the experts in memory: LRU 90.0 to 95.3 %,
# 45 % of the choices come again with the next token, 80 % within eight, median distance 2
# (kekzl/imp, pull request 1359). A model of 512 experts, 10 used: LRU 67 % with 64 of them, 81 %
# with 128 (ggml-org/llama.cpp, issue 27861). OLMoE: LRU 51.4 % with a quarter
# (JustVugg/colibri, pull request 1092). gpt-oss: only the share that comes again with the next
# token is published, 18 % (BigMoeOnEdge, pull request 101), of the 120b.
PROFILES = {
    "qwen3-30b": (48, 128, 8, (0.55, 1.0, 1.25, 0.75), (300, 14)),
    "gpt-oss-20b": (24, 32, 4, (0.6, 0.6, 0.5, 1.0), (300, 10)),
    "olmoe": (16, 64, 8, (0.5, 0.5, 0.5, 1.0), (300, 10)),
    "wide-512": (48, 512, 10, (0.6, 1.0, 1.0, 0.8), (300, 14)),
}


# Standard deviation of the noise in guesses, beside scores with one of about 1.8. Published for the
# next layer's router on this layer's rows: 66 to 88 % of the choices are among as many guesses
# (BigMoeOnEdge, issue 9), 77 % where the shared expert's output is added (JustVugg/colibri, pull
# request 200).
GUESS_NOISE = 0.5


class Layer:
    """The scores of a layer's experts as they drift."""

    def __init__(self, rng, noise, n_experts, weights, lengths):
        self.rng = rng
        self.noise = noise
        self.weights = weights
        self.keep = [math.exp(-1 / length) for length in lengths]
        self.fresh = [math.sqrt(1 - keep * keep) for keep in self.keep]
        self.fixed = [rng.gauss(0, 1) for _ in range(n_experts)]
        self.topic = [rng.gauss(0, 1) for _ in range(n_experts)]
        self.sentence = [rng.gauss(0, 1) for _ in range(n_experts)]

    def choose(self, n_used):
        """Returns the experts of the next token and the guesses of them, the best first."""
        gauss = self.rng.gauss
        scores = []
        popular, of_topic, of_sentence, of_token = self.weights
        for e, fixed in enumerate(self.fixed):
            self.topic[e] = self.keep[0] * self.topic[e] + self.fresh[0] * gauss(0, 1)
            self.sentence[e] = self.keep[1] * self.sentence[e] + self.fresh[1] * gauss(0, 1)
            scores.append(
                popular * fixed
                + of_topic * self.topic[e]
                + of_sentence * self.sentence[e]
                + of_token * gauss(0, 1)
            )
        guesses = [score + GUESS_NOISE * self.noise.gauss(0, 1) for score in scores]
        return [heapq.nlargest(n_used, range(len(scores)), key=by.__getitem__)
                for by in (scores, guesses)]


def generate(profile, n_tokens, seed):
    """Returns the experts of every token, and the guesses of them: [tokens][layers][used] each, the
    best first."""
    n_layers, n_experts, n_used, weights, lengths = profile
    rng = random.Random(seed)
    noise = random.Random(seed + 1)
    layers = [Layer(rng, noise, n_experts, weights, lengths) for _ in range(n_layers)]
    both = [[layer.choose(n_used) for layer in layers] for _ in range(n_tokens)]
    return tuple([[of_layer[part] for of_layer in of_token] for of_token in both]
                 for part in (0, 1))


def write(path, tokens, guesses):
    with open(path, "w", encoding="ascii") as file:
        file.write("qsf-routing 1\n")
        for layers, guessed in zip(tokens, guesses):
            for layer, (experts, of_layer) in enumerate(zip(layers, guessed)):
                file.write(f"g {layer} {' '.join(map(str, experts))}"
                           f" > {' '.join(map(str, of_layer))}\n")


def recall(tokens, guesses):
    """The share of choices that were guessed."""
    pairs = [(set(experts), set(guessed)) for layers, of_token in zip(tokens, guesses)
             for experts, guessed in zip(layers, of_token)]
    return sum(len(a & b) for a, b in pairs) / sum(len(a) for a, _ in pairs)


def returns(tokens, within):
    """The share of choices that a layer made in one of the `within` tokens before."""
    n_same = n_all = 0
    for t in range(within, len(tokens)):
        for layer, experts in enumerate(tokens[t]):
            before = set()
            for earlier in range(t - within, t):
                before.update(tokens[earlier][layer])
            n_same += sum(e in before for e in experts)
            n_all += len(experts)
    return n_same / n_all


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file", nargs="?", help="file to write")
    parser.add_argument("--profile", choices=PROFILES, default="qwen3-30b")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="print the figures that were fitted")
    options = parser.parse_args()
    if options.tokens < 16:
        parser.error("--tokens: at least 16")
    if options.file is None and not options.check:
        parser.error("name a file, or give --check")
    tokens, guesses = generate(PROFILES[options.profile], options.tokens, options.seed)
    if options.file is not None:
        write(options.file, tokens, guesses)
    if options.check:
        print(
            f"{options.profile}: {100 * returns(tokens, 1):.1f} % of the choices come again with "
            f"the next token, {100 * returns(tokens, 8):.1f} % within eight; "
            f"{100 * recall(tokens, guesses):.1f} % are guessed"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
