# SPDX-License-Identifier: MIT
"""Tests of generated routings, and of the policies that they are replayed against."""

import math
import os
import random
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import expert_policies
import expert_routings


def random_tokens(n_tokens, n_layers, n_experts, n_used, seed):
    rng = random.Random(seed)
    return [[sorted(rng.sample(range(n_experts), n_used)) for _ in range(n_layers)]
            for _ in range(n_tokens)]


def best_hits(order, capacity):
    """The most hits of any choice of victims, by trying them all."""
    states = {frozenset(): 0}
    for key in order:
        after = {}
        for kept, hits in states.items():
            if key in kept:
                choices = [(kept, hits + 1)]
            elif len(kept) < capacity:
                choices = [(kept | {key}, hits)]
            else:
                choices = [((kept - {victim}) | {key}, hits) for victim in kept]
            for state, n in choices:
                after[state] = max(after.get(state, -1), n)
        states = after
    return max(states.values())


class Policies(unittest.TestCase):
    def test_belady_is_the_optimum(self):
        for seed in range(20):
            rng = random.Random(seed)
            order = [(0, rng.randrange(6)) for _ in range(24)]
            hits = expert_policies.belady(order, 3, 0) * len(order)
            self.assertEqual(round(hits), best_hits(order, 3), seed)

    def test_no_policy_beats_belady_and_all_have_everything_resident(self):
        tokens = random_tokens(90, 3, 12, 3, 1)
        for percent in (10, 30, 60):
            rates = expert_policies.compare(tokens, 12, percent)
            for name, rate in rates.items():
                self.assertLessEqual(rate, rates["belady"] + 1e-12, name)
        everything = expert_policies.compare(tokens, 12, 100)
        for name in ("lru", "lrfu-8", "lfu", "belady"):
            self.assertGreater(everything[name], 0.97, name)

    def test_independent_choices_hit_by_the_share_in_memory(self):
        tokens = random_tokens(1500, 2, 40, 4, 2)
        rates = expert_policies.compare(tokens, 40, 50)
        for name in ("lru", "lrfu-8", "segmented", "shares"):
            self.assertAlmostEqual(rates[name], 0.5, delta=0.05, msg=name)

    def test_a_short_half_life_is_lru_and_an_endless_one_lfu(self):
        trace = [(t, key) for t, key in enumerate("aabcd")]
        short = expert_policies.Lrfu(3, 0.01)
        endless = expert_policies.Lrfu(3, math.inf)
        for t, key in trace:
            short.use(t, key)
            endless.use(t, key)
        self.assertEqual(short.kept, set("bcd"))
        self.assertIn("a", endless.kept)

    def test_lrfu_keeps_the_largest_sums_of_halved_uses(self):
        rng = random.Random(3)
        policy = expert_policies.Lrfu(5, 4)
        scores = {}
        for t in range(400):
            key = min(rng.randrange(12), rng.randrange(12))
            before = set(policy.kept)
            scores = {k: s / 2 ** 0.25 for k, s in scores.items()}
            scores[key] = scores.get(key, 0) + 1
            policy.use(t, key)
            for gone in before - policy.kept:
                self.assertLessEqual(scores[gone], min(scores[k] for k in before & policy.kept) + 1e-9)

    def test_what_is_learned_follows_age_or_frequency(self):
        rng = random.Random(6)
        for by_age in (True, False):
            tokens = []
            last = [0, 1, 2, 3]
            for _ in range(1200):
                experts = set()
                for i in range(4):
                    usual = last[i] if by_age else rng.randrange(10)
                    experts.add(rng.randrange(64) if rng.randrange(3) == 0 else usual)
                tokens.append([sorted(experts)])
                if len(experts) == 4:
                    last = sorted(experts)
            pairs = list(expert_policies.accesses(tokens))
            learned = expert_policies.Learned(12, 1, 64).replay(tokens, 300)
            short = expert_policies.hit_rate(expert_policies.Cyclic(12, 1, 1), pairs, 300)
            long = expert_policies.hit_rate(expert_policies.Cyclic(12, 64, 1), pairs, 300)
            self.assertGreater(learned, max(short, long) - 0.02, by_age)

    def test_lru_flushes_itself_where_a_token_needs_more(self):
        tokens = [[[0, 1], [0, 1]]] * 100
        pairs = list(expert_policies.accesses(tokens))
        self.assertEqual(expert_policies.hit_rate(expert_policies.Lru(3), pairs, 10), 0.0)
        self.assertEqual(expert_policies.hit_rate(expert_policies.Lrfu(3, 8), pairs, 10), 0.0)
        self.assertEqual(expert_policies.hit_rate(expert_policies.Cyclic(3, 8, 2), pairs, 10), 0.5)


class Routings(unittest.TestCase):
    def test_files_are_read_back(self):
        tokens, guesses = expert_routings.generate((3, 10, 2, (1, 1, 1, 1), (50, 5)), 20, 1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "routings.txt")
            expert_routings.write(path, tokens, guesses)
            read = expert_policies.read(path)
            self.assertEqual(read, [[sorted(experts) for experts in layers] for layers in tokens])
            with open(path, "w", encoding="ascii") as file:
                file.write("something else\n")
            with self.assertRaises(SystemExit):
                expert_policies.read(path)

    def test_recorded_lines_with_weights_prompts_and_next_scores_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "routings.txt")
            with open(path, "w", encoding="ascii") as file:
                file.write("qsf-routing 1\np 1 3:0.5 2:0.4 ; 1:0.1\ng 1 5:0.5 4:0.4 ; 1:0.1 > 4 2\n")
            self.assertEqual(expert_policies.read(path), [[[], [4, 5]]])

    def test_choices_are_distinct_experts_and_return_as_published(self):
        profile = expert_routings.PROFILES["qwen3-30b"]
        few = (2,) + profile[1:]
        tokens, guesses = expert_routings.generate(few, 400, 4)
        for layers in tokens:
            for experts in layers:
                self.assertEqual(len(set(experts)), 8)
                self.assertLess(max(experts), 128)
        for layers in guesses:
            for experts in layers:
                self.assertEqual(len(set(experts)), 8)
        self.assertAlmostEqual(expert_routings.returns(tokens, 1), 0.48, delta=0.06)
        self.assertAlmostEqual(expert_routings.returns(tokens, 8), 0.81, delta=0.05)
        self.assertAlmostEqual(expert_routings.recall(tokens, guesses), 0.77, delta=0.03)
        again, _ = expert_routings.generate(few, 400, 4)
        self.assertEqual(tokens, again)


if __name__ == "__main__":
    unittest.main()
