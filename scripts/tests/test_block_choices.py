# SPDX-License-Identifier: MIT
"""Tests of the forms of blocks under study and of the search for their fields; the latter where torch is installed."""

import importlib.util
import math
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import study_block_choices
from block_forms import Form, forms_of_codes, forms_of_grid

HAVE_TORCH = importlib.util.find_spec("torch") is not None
if HAVE_TORCH:
    import torch
    from block_search import Search, quantise


class Forms(unittest.TestCase):
    def test_bits_are_those_of_known_types(self):
        for bits, form in ((2.625, Form("min", 4, 16, 4)), (4.5, Form("min", 16, 32, 6)), (2.3125, Form("min", 4, 64, 6)),
                           (3.4375, Form("whole", 8, 16, 6)), (3.5625, Form("whole", 8, 16, 8)), (2.5, Form("min", 4, 64, 0)),
                           (1.85, Form("half", 3, 32, 6)), (4.625, Form("min", 16, 32, 6, 32))):
            self.assertAlmostEqual(form.bits, bits)

    def test_levels_are_what_formats_define(self):
        self.assertEqual(Form("half", 4, 64, 0).values(), (-1.5, -0.5, 0.5, 1.5))
        self.assertEqual(Form("whole", 8, 16, 8).values(), tuple(range(-4, 4)))
        self.assertEqual(Form("min", 4, 16, 4).values(), (0, 1, 2, 3))

    def test_tables_ascend_and_have_their_number_of_levels(self):
        for form in forms_of_grid() + forms_of_codes():
            values = form.values()
            self.assertEqual(len(values), form.n_levels, form.name)
            self.assertEqual(sorted(set(values)), list(values), form.name)

    def test_names_tell_forms_apart(self):
        forms = set(forms_of_grid() + forms_of_codes())
        self.assertEqual(len({form.name for form in forms}), len(forms))


class Tables(unittest.TestCase):
    def test_a_line_has_both_weighings(self):
        form, other = Form("min", 4, 16, 4), Form("min", 4, 64, 6)
        base = {"losses": [1.0, 2.0]}
        key = study_block_choices.key_of
        values = {"base": base, key(form, "E[x^2]"): {"losses": [x + math.log(1.1) for x in base["losses"]], "kld": [0.1, 0.3]},
                  key(form, "none"): {"losses": [x + math.log(1.2) for x in base["losses"]], "kld": [0.5, 0.7]}}
        lines = study_block_choices.form_table([form, other], values).splitlines()
        self.assertEqual(lines[2:], ["| 2.6250 | 4 min | 16 | 4 | q2_k | +10.00 % +/- 0.00 | 0.2000 +/- 0.1000 | 7.61 | "
                                     "+20.00 % +/- 0.00 | 0.6000 +/- 0.1000 |"])

    def test_a_bit_more_is_worth_half_the_error(self):
        few, many = Form("min", 4, 16, 4), Form("min", 8, 16, 4)
        self.assertAlmostEqual(study_block_choices.at_equal_bits(few, {"kld": [0.1, 0.3]}),
                               study_block_choices.at_equal_bits(many, {"kld": [0.05]}))

    def test_jobs_are_those_of_the_sets_asked_for(self):
        jobs = study_block_choices.jobs_of(["grid"], [16])
        self.assertEqual({(form.n_levels, way) for form, way in jobs}, {(16, "E[x^2]")})
        self.assertEqual({way for _, way in study_block_choices.jobs_of(["plain"], None)}, {"none"})


@unittest.skipUnless(HAVE_TORCH, "torch is not installed: the search runs in it")
class Searches(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.x = torch.randn(4, 512, generator=torch.Generator().manual_seed(1))

    def test_finds_weights_that_a_form_can_hold(self):
        for form in (Form("min", 4, 16, 4), Form("whole", 8, 32, 6), Form("half", 4, 64, 6), Form("iq4nl", 16, 32, 6)):
            once = quantise(form, self.x)
            again = quantise(form, once)
            off = ((again - once) ** 2).sum() / (once ** 2).sum()
            self.assertLess(off, 0.2 * ((once - self.x) ** 2).sum() / (self.x ** 2).sum(), form.name)

    def test_weights_are_few_levels_under_whole_fields(self):
        values = quantise(Form("min", 4, 16, 4), self.x).reshape(-1, 16)
        for group in values:
            self.assertLessEqual(len(set(group.tolist())), 4)
        values = quantise(Form("half", 4, 64, 6), self.x).reshape(-1, 4, 64)
        for of_super in values:
            steps = of_super.abs().amin(1) * 2  # scales d * n, n from 0 to 63
            d = min((steps.max() / n for n in range(1, 64)), key=lambda d: ((steps / d - (steps / d).round()).abs().max()))
            self.assertLess((steps / d - (steps / d).round()).abs().max(), 1e-3)

    def test_is_better_than_the_smallest_and_largest_weight(self):
        form = Form("min", 4, 32, 6)
        groups = self.x.reshape(-1, 32)
        low = groups.amin(1, keepdim=True)
        scale = (groups.amax(1, keepdim=True) - low) / 3
        plain = Search(form).levels(groups, scale, low) * scale + low
        searched = quantise(form, self.x)
        self.assertLess(((searched - self.x) ** 2).sum(), 0.8 * ((plain - groups) ** 2).sum())

    def test_spends_precision_on_important_columns(self):
        importance = torch.ones(512)
        importance[::8] = 50.0
        form = Form("min", 4, 16, 4)
        off = [((quantise(form, self.x, how) - self.x) ** 2)[:, ::8].sum() for how in (None, importance)]
        self.assertLess(off[1], 0.5 * off[0])

    def test_zeros_stay(self):
        for form in (Form("min", 4, 16, 4), Form("whole", 8, 16, 6), Form("table3", 8, 32, 6), Form("min", 4, 64, 0)):
            self.assertTrue((quantise(form, torch.zeros(2, 256)) == 0).all(), form.name)


if __name__ == "__main__":
    unittest.main()
