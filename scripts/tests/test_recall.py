#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of planted facts, and of what measure_recall.py makes of the losses of texts that have them."""

import contextlib
import io
import random
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import measure_recall
import planted_facts


class WordTokenizer:
    """A token for every word and for every full stop."""

    def __init__(self):
        self.pieces = (["\u2581" + word for word in ("castle", "bridge", "river", "queen", "cat", "and")] +
                       ["\u2581Mor", "\u2581Bal", "\u2581Mordor", "van", "del", "x", "\u2581or"])
        self.ids = {}

    def id_to_piece(self, i):
        return self.pieces[i]

    def vocab_size(self):
        return len(self.pieces)

    def encode(self, text):
        return [self.ids.setdefault(word, 100 + len(self.ids)) for word in text.replace(".", " .").split()]

    def text(self, ids):
        words = {i: word for word, i in self.ids.items()}
        return [words[i] if i in words else None for i in ids]


class Facts(unittest.TestCase):
    def setUp(self):
        self.tokenizer = WordTokenizer()
        self.words = planted_facts.Words(self.tokenizer)

    def test_words_are_whole_pieces(self):
        self.assertEqual(self.words.owners, ["castle", "bridge", "river", "queen"])
        self.assertEqual(self.words.heads, ["Mor", "Bal"])
        self.assertEqual(self.words.tails, ["van", "del"])

    def test_every_fact_has_an_owner_of_its_own_and_a_name_at_its_end(self):
        facts = planted_facts.make_facts(self.words, random.Random(1), 4)
        owners = [owner for said, _ in facts for owner in self.words.owners if f" {owner}" in said]
        self.assertEqual(sorted(owners), sorted(self.words.owners))
        for said, name in facts:
            self.assertNotIn("{", said + name)
            self.assertRegex(name, "^(Mor|Bal)((van)|(del)){1,3}$")

    def test_plants_whole_sentences_and_tells_first_from_again(self):
        tokens, roles = planted_facts.plant([1] + [0] * 299, self.tokenizer, self.words, random.Random(3), 28)
        self.assertEqual(len(tokens), 300)
        self.assertEqual(tokens[0], 1)
        text = self.tokenizer.text(tokens)
        names = [(text[i], roles[i]) for i in range(300) if roles[i]]
        self.assertGreater(len(names), 6)  # one word each, as names are here
        told = set()
        for name, role in names:
            self.assertRegex(name, "^(Mor|Bal)")
            self.assertEqual(role, planted_facts.AGAIN if name in told else planted_facts.FIRST)
            told.add(name)
        self.assertEqual(len(told), 2)
        for i in range(300):
            if roles[i]:
                self.assertEqual(text[i + 1], ".")
        self.assertEqual(sum(word in ("The", "They", "It", "Once") for word in text), len(names))

    def test_leaves_the_first_token_whatever_the_share(self):
        for seed in range(40):
            tokens = planted_facts.plant([1] + [0] * 99, self.tokenizer, self.words, random.Random(seed), 4)[0]
            self.assertEqual(tokens[0], 1)

    def test_tells_a_fact_in_every_so_many_tokens(self):
        for seed in range(20):
            tokens = planted_facts.plant([0] * 1000, self.tokenizer, self.words, random.Random(seed), 50)[0]
            ends = self.tokenizer.text(tokens).count(".")
            self.assertTrue(19 <= ends <= 20, ends)


class Recall(unittest.TestCase):
    def test_sows_facts_at_their_distance(self):
        tokenizer = WordTokenizer()
        text = measure_recall.sow(["one two three four."] * 100, [("It was the cat", "Mor")], tokenizer, 100, 20.0,
                                  random.Random(1))
        self.assertLessEqual(len(tokenizer.encode(text)), 100)
        self.assertGreater(len(tokenizer.encode(text)), 90)
        self.assertEqual(text.count("It was the cat Mor."), 5)

    def test_finds_names_and_how_long_ago_they_were_told(self):
        ids = [9, 1, 2, 7, 8, 0, 1, 3, 5, 0, 1, 2, 7, 8, 1, 2, 7]
        facts = [([1, 2], [1, 2, 7, 8]), ([1, 3], [1, 3, 5])]
        self.assertEqual(measure_recall.recalls(ids, facts), [(3, 2, None), (8, 1, None), (12, 2, 9)])

    def test_losses_are_those_of_names_in_what_is_scored(self):
        ids = [9, 1, 7, 7, 1, 7, 7, 0, 1, 7, 7, 2, 5]
        window = {"ids": ids, "first": 5, "losses": [10.0, 20.0, 1.0, 1.0, 3.0, 5.0, 1.0, 7.0]}
        rows = measure_recall.summarise([window], [[([1], [1, 7, 7]), ([2], [2, 5])]])
        self.assertEqual(rows, [{"again": [[3, 15.0, 2], [4, 4.0, 2]], "first": 7.0, "all": 6.0}])

    def test_bins_end_with_their_number(self):
        self.assertEqual([measure_recall.bin_of(n) for n in (1, 256, 257, 512, 513, 4096)], [0, 0, 1, 1, 2, 4])

    def test_table_weighs_tokens_and_pairs_windows(self):
        base = [{"again": [[100, 1.0, 1], [200, 4.0, 2]], "first": 9.0, "all": 0.0},
                {"again": [[600, 2.0, 2]], "first": None, "all": 0.0}]
        other = [{"again": [[100, 2.0, 1], [200, 5.0, 2]], "first": 9.0, "all": 0.0},
                 {"again": [[600, 5.0, 2]], "first": None, "all": 0.0}]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            measure_recall.print_table(4096, [("full", [], base), ("other", [], other)])
        lines = out.getvalue().splitlines()
        self.assertIn("| full | 3,072 | 3.00 |  | 2.00 |  |  |  | 1.00 |", lines)
        self.assertIn("| other | 3,072 | 4.00 |  | 5.00 |  |  | +2.00 +/- 1.00 | 1.00 |", lines)
        self.assertIn("A name told for the first time: 9.00 nats a token under full attention.", lines)

    def test_pairs_see_as_much_and_differences_are_those_of_windows(self):
        for (label, options), (last, others) in measure_recall.pairs(1):
            seen = [measure_recall.mean_visible(o, 4096) for o in (options, others)]
            if last not in ("window 124, 4 sinks", "window 508, 4 sinks"):  # as many as in the memory set alone
                self.assertLess(abs(seen[0] - seen[1]), 2, label)
        base = [{"again": [[9, 1.0, 1], [9, 4.0, 2]], "all": 1.0}, {"again": [], "all": 1.0},
                {"again": [[9, 2.0, 2]], "all": 1.0}]
        other = [{"again": [[9, 2.0, 1], [9, 5.0, 2]], "all": 1.1}, {"again": [], "all": 1.1},
                 {"again": [[9, 5.0, 2]], "all": 1.1}]
        self.assertEqual(measure_recall.difference(base, other), "+2.00 +/- 1.00")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            measure_recall.print_pairs(1, [("kv h2o 64 + 64", [], other), ("window 156, 4 sinks", [], base)])
        self.assertIn("| kv h2o 64 + 64 | window 156, 4 sinks | +2.00 +/- 1.00 | +10.52 +/- 0.00 % |", out.getvalue())


if __name__ == "__main__":
    unittest.main()
