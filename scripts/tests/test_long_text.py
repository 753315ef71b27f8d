#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of the arithmetic behind the tables and pictures of long texts, running models and drawing aside."""

import argparse
import lzma
import os
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import attention_policies as policies
import measure_long_text
import plot_kept
import probe_retrieval
import results_file


class Visible(unittest.TestCase):
    def test_counts_what_a_row_sees(self):
        def seen(options, *positions):
            return [policies.n_visible(options, p) for p in positions]
        self.assertEqual(seen(policies.full(), 0, 9), [1, 10])
        self.assertEqual(seen(policies.window(6, 2), 0, 7, 8, 100), [1, 8, 8, 8])
        self.assertEqual(seen(policies.h2o(2, 3, 10), 9, 10, 19, 20), [10, 6, 15, 6])
        # A chunk before which there are fewer positions than a memory set has.
        self.assertEqual(seen(policies.h2o(20, 30, 10), 10), [11])
        # Blocks of 64: position 200 is in the one from 192 on, whose window begins at 92.
        self.assertEqual(seen(policies.h2o_eviction(100, 10), 63, 200), [64, 10 + 109])
        self.assertEqual(seen(policies.h2o_eviction(100, 200), 200), [201])

    def test_means_rows_of_scored_tokens(self):
        # Tokens 5 to 7 of 8 are scored; the rows before them see 5, 6 and 7 positions.
        self.assertEqual(policies.mean_visible(policies.full(), 8), 6)


class Files(unittest.TestCase):
    def test_goes_on_with_results_that_are_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            self.assertEqual(results_file.Results(path, {"model": "m"}).get("a", lambda: [1.5]), [1.5])
            self.assertEqual(results_file.Results(path, {"model": "m"}).get("a", self.fail), [1.5])
            self.assertEqual(results_file.Results(path).values, {"a": [1.5]})
            with self.assertRaisesRegex(SystemExit, "'model': 'm'.*'model': 'other'"):
                results_file.Results(path, {"model": "other"})

    def test_other_files_have_other_fingerprints(self):
        with tempfile.TemporaryDirectory() as folder:
            def of(data):
                path = os.path.join(folder, "file")
                with open(path, "wb") as file:
                    file.write(data)
                return results_file.fingerprint(path), results_file.fingerprint(folder)
            large = bytes(3 << 20)
            self.assertEqual(of(large), of(large))
            for other in (large + b"\0", large[:-1] + b"x", b"x" + large[1:]):
                for a, b in zip(of(large), of(other)):
                    self.assertNotEqual(a, b)
            self.assertNotEqual(of(b"a"), of(b"b"))

    def test_heads_of_texts_are_decompressed(self):
        with tempfile.TemporaryDirectory() as folder:
            plain, packed = os.path.join(folder, "a.txt"), os.path.join(folder, "a.txt.xz")
            with open(plain, "wb") as file:
                file.write(b"once upon a time")
            with lzma.open(packed, "wb") as file:
                file.write(b"once upon a time")
            for path in (plain, packed):
                self.assertEqual(results_file.head_of_text(path, 4), b"once")
                self.assertEqual(results_file.head_of_text(path, 0), b"once upon a time")

    def test_a_missing_tool_is_named(self):
        args = argparse.Namespace(bin="no/such/folder", model="m", context=8, threads=1)
        with self.assertRaisesRegex(SystemExit, "no/such/folder/qsf-perplexity: not found.*--bin"):
            policies.run_perplexity(args, "text", [])

    def test_errors_come_with_two_values_or_more(self):
        self.assertEqual(policies.with_error(2.0, [1.0, 3.0], "+.2f"), "+2.00 +/- 1.00")
        self.assertEqual(policies.with_error(0.5, [0.5], ".0%"), "50%")


class Comparison(unittest.TestCase):
    def test_differences_are_those_of_windows(self):
        self.assertEqual(measure_long_text.rise([3.0, 5.0], [3.1, 5.1]), "+10.52 +/- 0.00 %")
        # The deviation of 0 and 0.2, by the root of 2, is 0.1 of the ratio.
        self.assertEqual(measure_long_text.rise([3.0, 5.0], [3.0, 5.2]), "+10.52 +/- 11.05 %")
        self.assertEqual(measure_long_text.rise([3.0], [2.9]), "-9.52 %")

    def test_every_line_has_options_of_its_own(self):
        for scale in (1, 4):
            lines = [" ".join(options) for group in ("types", "h2o", "window", "heavy", "ablation")
                     for _, options in measure_long_text.lines_of(group, scale)]
            self.assertEqual(len(lines), len(set(lines)))

    def test_pairs_are_lines_that_see_as_much(self):
        lines = [options for group in ("h2o", "window", "heavy", "ablation")
                 for _, options in measure_long_text.lines_of(group, 1)]
        for pair in measure_long_text.PAIRS:
            self.assertTrue(all(options in lines for options in pair), pair)
            seen = [policies.mean_visible(options, 4096) for options in pair]
            self.assertLess(abs(seen[0] - seen[1]), 2, pair)


class Retrieval(unittest.TestCase):
    def test_places_a_sentence_at_its_depth(self):
        def placed(depth, sentence="X"):
            return "".join(probe_retrieval.place("abcdefgh", [2] * 8, 10, depth, sentence))
        self.assertEqual(placed(0.0, None), "abcde")
        self.assertEqual(placed(0.0), "Xabcde")
        self.assertEqual(placed(0.5), "abcXde")
        self.assertEqual(placed(0.95), "abcdeX")

    def test_gains_are_over_the_text_without_the_sentence(self):
        windows = [[9.0, 5.0, 4.0, 2.0], [9.0, 4.0, 2.0, 1.0], [0.0, 5.0, 5.0, 3.0], [1.0, 6.0], [1.0, 2.0], [1.0, 2.0]]
        self.assertEqual(probe_retrieval.gains(windows[:3], [3]), [[(1.0, 1.5), (0.0, -1.0)]])
        self.assertEqual(probe_retrieval.gains([w[-2:] for w in windows], [2, 2])[1], [(0.0, 4.0), (0.0, 4.0)])

    def test_finds_the_name_and_who_sees_it(self):
        ids = [1, 7, 8, 3, 7, 9, 4, 7, 9]
        self.assertEqual(list(probe_retrieval.find_name(ids, 2)), [4, 5])
        window = {"ids": ids, "visible": [[[0, 4], [4, 5, 6]], [[1, 2], [5]]]}
        self.assertEqual(probe_retrieval.held_shares([{}, window], [2]), [[4 / 8]])
        with self.assertRaisesRegex(SystemExit, "at the end alone"):
            probe_retrieval.find_name(ids[:-1] + [10], 2)

    def test_cuts_a_text_into_sentences_that_are_long_enough(self):
        text = "Well. This one is long enough to be by itself, is it not? And so, as it seems, is the one that follows it. Cut o"
        self.assertEqual(policies.sentences_of(text),
                         ["Well. This one is long enough to be by itself, is it not?",
                          "And so, as it seems, is the one that follows it."])


class Kept(unittest.TestCase):
    def test_shares_of_bins(self):
        self.assertEqual(plot_kept.shares([0, 1, 5], 8, 4), [1.0, 0.0, 0.5, 0.0])

    def test_compares_adjacent_heads_of_a_layer(self):
        # Position 9 is in all sets, so that no head chose it.
        layers = [[[0, 1, 9], [0, 1, 9], [0, 2, 9]], [[3, 4, 9], [5, 6, 9], [5, 6, 9]]]
        pairs, different, shared = plot_kept.compare_heads(layers)
        self.assertEqual((pairs, different), (4, 2))
        self.assertAlmostEqual(shared, (1 + 0.5 + 0 + 1) / 4)


if __name__ == "__main__":
    unittest.main()
