# SPDX-License-Identifier: MIT
"""Tests of what study_rotation.py and measure_rotation.py count; of rotations and outliers where torch is installed."""

import importlib.util
import math
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure_rotation  # noqa: E402
import study_rotation  # noqa: E402

HAVE_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "numpy", "safetensors", "sentencepiece"))
if HAVE_TORCH:
    import rotations
    import torch
    import train_model
    from rotations import Rotation

BASE = {"losses": [1.0, 2.0]}


def scored(increase, kld):
    return {"losses": [x + math.log(1 + increase) for x in BASE["losses"]], "kld": [kld, kld]}


class Tables(unittest.TestCase):
    def test_outliers_cost_their_bits(self):
        key = study_rotation.outlier_key("2bit-super/64", 0.01, "error", "E[x^2]")
        lines = study_rotation.outlier_table({"base": BASE, key: scored(0.1, 0.1)}).splitlines()
        self.assertEqual(lines[2:], ["| 2bit-super/64 | 1 % | error | +10.00 % +/- 0.00 | 0.1000 +/- 0.0000 | "
                                     f"{2.3125 + 0.32:.4f}, {0.1 * 4 ** 2.6325:.2f} | {2.3125 + 0.24:.4f}, "
                                     f"{0.1 * 4 ** 2.5525:.2f} |"])

    def test_planted_outliers_are_a_table_of_their_own(self):
        key = study_rotation.rotation_key("table2/16", 256, True, "none", True)
        self.assertNotEqual(key, study_rotation.rotation_key("table2/16", 256, True, "none"))
        values = {"base": BASE, key: scored(0.2, 0.3)}
        self.assertEqual(len(study_rotation.rotation_table(values, False).splitlines()), 2)
        self.assertEqual(study_rotation.rotation_table(values, True).splitlines()[2:],
                         ["| table2/16 | blocks of 256 | rotated |  |  | +20.00 % +/- 0.00 | 0.3000 +/- 0.0000 |"])

    def test_every_job_has_a_key_of_its_own(self):
        keys = [study_rotation.rotation_key(*job) for job in study_rotation.rotation_jobs(study_rotation.SETS)]
        keys += [study_rotation.outlier_key(*job) for job in study_rotation.outlier_jobs()]
        self.assertEqual(len(set(keys)), len(keys))

    def test_rotations_stand_side_by_side(self):
        row = {"losses": scored(0.1, 0)["losses"], "kld": 0.2, "kld_error": 0.01, "top": 0.75, "bits": 2.5}
        values = {"base": BASE, measure_rotation.key_of("q2_k/64", "search", "all"): row}
        self.assertEqual(measure_rotation.type_table(values, ("none", "all")).splitlines()[2:],
                         ["| q2_k/64 | 2.500 | search |  |  |  | +10.00 % +/- 0.00 | 0.2000 | 75.0 % |"])
        values[measure_rotation.kv_key(("4", "2"), "values")] = row
        self.assertIn("| 4 | 2 |  | +10.00 % +/- 0.00 |",
                      measure_rotation.kv_table(values, ("none", "values")).splitlines())


@unittest.skipUnless(HAVE_TORCH, "torch, numpy, safetensors or sentencepiece is not installed: rotations run in it")
class Rotations(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)

    @staticmethod
    def make_model():
        torch.manual_seed(1)
        model = train_model.LanguageModel({
            "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 20, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": True})
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + (1 if parameter.dim() == 1 else 0))
        return model.eval()

    def test_no_output_changes(self):
        tokens = torch.arange(1, 11)[None]
        wanted = self.make_model()(tokens)
        for rotation in (Rotation(0, True), Rotation(16, False), Rotation(4, True)):
            for planted in (False, True):
                model = self.make_model()
                before = model.model.layers[0].self_attn.v_proj.weight.clone()
                if planted:
                    rotations.plant_outliers(model)
                rotations.rotate(model, rotation)
                off = (model(tokens) - wanted).abs().max() / wanted.abs().max()
                self.assertLess(off.item(), 1e-4, (rotation, planted))
                self.assertGreater((model.model.layers[0].self_attn.v_proj.weight - before).abs().max().item(), 0.1)

    def test_blocks_divide(self):
        self.assertEqual([rotations.block_of(n, 256) for n in (48, 256, 4096, 7)], [16, 256, 256, 1])

    def test_a_rotation_spreads_and_keeps_lengths(self):
        x = torch.zeros(1, 48)
        x[0, 20] = 4.0
        turned = rotations.hadamard_rows(x, 16)
        self.assertAlmostEqual(turned.norm().item(), 4.0, places=5)
        self.assertEqual(turned.abs().max().item(), 1.0)
        self.assertEqual((turned != 0).sum().item(), 16)

    def test_outliers_are_kept_and_spoil_no_scale(self):
        torch.manual_seed(2)
        matrix = torch.randn(8, 256)
        matrix[:, 7] = 100.0
        form = study_rotation.FORMS["2bit-super/64"]
        for choice in study_rotation.CHOICES:
            kept = study_rotation.quantise_but_outliers(form, matrix, None, 8 / matrix.numel(), choice)
            if choice == "magnitude":
                self.assertTrue((kept[:, 7] == 100.0).all())
                self.assertLess((kept - matrix).square().mean().item(), 0.2)
        none = study_rotation.quantise_but_outliers(form, matrix, None, 0, "error")
        self.assertGreater((none - matrix).square().mean().item(), 0.2)


if __name__ == "__main__":
    unittest.main()
