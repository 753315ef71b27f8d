# SPDX-License-Identifier: MIT
"""Tests of what compare_quantisers.py counts and computes, with files and losses made here."""

import json
import math
import os
import random
import struct
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import compare_quantisers
import markdown_tables
import quantiser_figures as figures
import results_file
import scored_models

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(tensors):
    """A GGUF head with keys of every kind of value and these tensors (name, shape, number of the type)."""
    keys = [gguf_text("a") + struct.pack("<Ib", 7, 1), gguf_text("b") + struct.pack("<I", 8) + gguf_text("text"),
            gguf_text("c") + struct.pack("<IIQ", 9, 8, 2) + gguf_text("x") + gguf_text("yz"),
            gguf_text("d") + struct.pack("<IIQ", 9, 5, 3) + struct.pack("<3i", 1, 2, 3),
            gguf_text("e") + struct.pack("<Id", 12, 0.5)]
    data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys)
    for name, shape, number in tensors:
        data += gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, 0)
    return data


class Files(unittest.TestCase):
    def test_gguf_bits_are_those_of_blocks(self):
        matrices = figures.GgufHead(gguf([("token_embd.weight", (256, 10), 1), ("blk.0.attn_norm.weight", (256,), 0),
                                          ("blk.0.ffn_up.weight", (256, 30), 12), ("blk.0.ffn_gate.weight", (256, 10), 10)])).matrices
        self.assertEqual([(m.name, m.kind, m.n_weights) for m in matrices],
                         [("token_embd.weight", "F16", 2560), ("blk.0.ffn_up.weight", "Q4_K", 7680),
                          ("blk.0.ffn_gate.weight", "Q2_K", 2560)])
        self.assertEqual(figures.bits_per_weight(matrices[1:2]), 4.5)
        self.assertEqual(figures.bits_per_weight(figures.quantised(matrices)), (3 * 4.5 + 2.625) / 4)
        self.assertEqual([m.in_layer() for m in matrices], [False, True, True])

    def test_other_gguf_is_refused(self):
        for data in (b"GGML" + bytes(20), gguf([("blk.0.x.weight", (256, 2), 99)])):
            with self.assertRaises(ValueError):
                figures.GgufHead(data)

    def test_qsf_bits_are_those_of_the_file(self):
        matrices = figures.qsf_matrices(os.path.join(ROOT, "models", "tales-5M-4bit.qsf"))
        self.assertEqual(len(matrices), 1 + 6 * 7)
        self.assertEqual({m.kind for m in matrices}, {"4bit"})
        self.assertEqual(figures.bits_per_weight([m for m in matrices if m.in_layer()]), 4.5)


class Losses(unittest.TestCase):
    def test_windows_are_means(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "losses")
            with open(path, "w", encoding="ascii") as file:
                for losses in ([1, 2, 3], [4, 5, 9]):
                    file.write(json.dumps({"window": 0, "losses": losses}) + "\n")
            self.assertEqual(figures.read_window_losses(path), [2, 6])

    def test_jackknife_of_a_mean_is_its_standard_error(self):
        sample = [1.0, 2.0, 4.0, 9.0]
        value, error = figures.jackknife(lambda s: sum(s) / len(s), sample)
        self.assertEqual(value, 4.0)
        self.assertAlmostEqual(error, math.sqrt(sum((x - 4) ** 2 for x in sample) / 3 / 4))

    def test_what_windows_have_in_common_cancels(self):
        numbers = random.Random(1)
        base = [numbers.gauss(3.7, 0.5) for _ in range(60)]
        theirs = [x + 0.02 for x in base]
        ours = [x + 0.01 + numbers.gauss(0, 0.001) for x in base]
        apart, error = figures.difference(ours, theirs, base)
        self.assertAlmostEqual(apart, math.exp(0.01) - math.exp(0.02), delta=0.0005)
        self.assertLess(error, 0.0003)
        self.assertGreater(figures.jackknife(figures.perplexity, ours)[1], 1)

    def test_samples_have_the_same_windows(self):
        for samples in (([1.0, 2.0], [1.0]), ([1.0],)):
            with self.assertRaises(ValueError):
                figures.jackknife(lambda *s: 0.0, *samples)

    def test_best_takes_no_more_bits(self):
        rows = [{"bits": 4.5, "losses": [1.0]}, {"bits": 4.375, "losses": [1.5]}, {"bits": 4.25, "losses": [2.0]}]
        self.assertIs(figures.best_within(rows, 4.5), rows[0])
        self.assertIs(figures.best_within(rows, 4.4), rows[1])
        self.assertIsNone(figures.best_within(rows, 4.0))


class Keeping(unittest.TestCase):
    def test_goes_on_with_what_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            self.assertEqual(results_file.Results(path).get("a", lambda: [1.5]), [1.5])
            results_file.Results(path).put("b", 2)
            self.assertEqual(results_file.Results(path).get("a", self.fail), [1.5])
            self.assertEqual(results_file.Results(path).values, {"a": [1.5], "b": 2})


def row(by, width, kind, way, bits, loss):
    return {"by": by, "width": width, "type": kind, "way": way, "bits": bits, "bits_of_all": bits + 1,
            "losses": [loss, loss + 1.0, loss + 0.5], "kld": 0.1, "kld_error": 0.01, "top": 0.8}


class CrossCheck(unittest.TestCase):
    def test_a_log_that_ends_early_says_nothing(self):
        log = "perplexity: calculating perplexity over 3 chunks, n_ctx=512\n[1]47.5,[2]44.25,"
        self.assertIsNone(compare_quantisers.last_perplexity(log))
        self.assertEqual(compare_quantisers.last_perplexity(log + "[3]40.125,"), 40.125)
        self.assertIsNone(compare_quantisers.last_perplexity("Killed"))


class Lists(unittest.TestCase):
    def test_every_width_has_a_target_and_types_of_ours_in_both_scopes(self):
        for theirs in (compare_quantisers.THEIRS, compare_quantisers.THEIRS_OF_WHOLE):
            self.assertLessEqual(set(compare_quantisers.TARGETS.items()), {(width, kind) for width, _, kind in theirs})
        self.assertEqual({o[0] for o in compare_quantisers.OURS}, set(compare_quantisers.TARGETS))
        self.assertLessEqual({"2bit-table", "3bit-table", "4bit-table"}, {o[1] for o in compare_quantisers.OURS})
        self.assertEqual([o for o in compare_quantisers.OURS if o[1:] not in scored_models.TYPES], [])

    def test_whole_models_are_asked_for_types_that_need_no_importance(self):
        self.assertEqual([t[2] for t in compare_quantisers.THEIRS_OF_WHOLE], ["Q4_0", "Q4_K", "IQ4_XS", "Q3_K", "IQ3_S", "Q2_K"])


class Tables(unittest.TestCase):
    BASE = [1.0, 2.0, 1.5]

    def test_verdict_sets_the_best_of_no_more_bits_beside_each_type(self):
        rows = [row("llama.cpp", 4, "Q4_K", "plain", 4.5, 1 + math.log(1.02)),
                row("llama.cpp", 4, "Q4_0", "plain", 4.5, 1 + math.log(1.04)),
                row("qsf-convert", 4, "big", "search", 4.6, 1.0),
                row("qsf-convert", 4, "small", "search", 4.4, 1 + math.log(1.01)),
                row("qsf-convert", 2, "two", "search", 2.4, 1.2)]
        lines = compare_quantisers.verdict_table(rows, self.BASE).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn("| Q4_0, plain | 4.5000 | +4.00 % | 0.1000 | small, search | 4.4000 | +1.00 %", lines[3])
        self.assertIn("| Q4_K, plain | 4.5000 | +2.00 % | 0.1000 | small, search | 4.4000 | +1.00 % | 0.1000 | -1.00 % +/- 0.00 | 0.50",
                      lines[2])

    def test_measured_table_goes_from_many_bits_to_few(self):
        rows = [row("qsf-convert", 2, "two", "search", 2.4, 1.2), row("llama.cpp", 4, "Q4_K", "plain", 4.5, 1.1)]
        lines = compare_quantisers.measured_table(rows, self.BASE).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[2].startswith("| llama.cpp | Q4_K | plain | 4.5000 | 5.500 |"))

    def test_tables_go_between_their_marks(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w", encoding="utf-8") as file:
                file.write("head\n<!-- begin a -->\nold\n<!-- end a -->\ntail\n")
            markdown_tables.replace_tables(page, {"a": "new\\1"})
            with open(page, encoding="utf-8") as file:
                self.assertEqual(file.read(), "head\n<!-- begin a -->\nnew\\1\n<!-- end a -->\ntail\n")
            with self.assertRaises(markdown_tables.NoMark):
                markdown_tables.replace_tables(page, {"b": ""})
            with open(page, "w", encoding="utf-8") as file:
                file.write("<!-- end b --><!-- begin b -->\n")
            with self.assertRaises(markdown_tables.NoMark):
                markdown_tables.replace_tables(page, {"b": ""})


if __name__ == "__main__":
    unittest.main()
