# SPDX-License-Identifier: MIT
"""Tests of tiers.py: what is expected of processors, by their flags."""

import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import tiers

AVX2 = "fpu sse2 sse4_2 popcnt avx avx2 fma f16c"
AVX512 = AVX2 + " avx512f avx512bw avx512dq avx512vl"


def cpuinfo(flags, name="flags\t\t"):
    return f"processor\t: 0\nmodel name\t: a CPU\n{name}: {flags}\n\nprocessor\t: 1\n{name}: fpu\n"


class TiersTest(unittest.TestCase):
    def best(self, flags):
        return tiers.covered_tiers("x86_64", cpuinfo(flags))[-1]

    def test_x86(self):
        self.assertEqual(self.best("fpu sse2"), "scalar")
        self.assertEqual(self.best("fpu sse2 sse4_2 popcnt"), "sse42")
        self.assertEqual(self.best(AVX2), "avx2")
        self.assertEqual(self.best(AVX512), "avx512")
        self.assertEqual(self.best(AVX512 + " avx512_vnni"), "avx512vnni")
        vbmi = AVX512 + " avx512_vnni avx512vbmi"
        self.assertEqual(self.best(vbmi), "avx512vbmi")
        self.assertEqual(self.best(vbmi + " amx_tile amx_int8 amx_bf16"), "amx")

    def test_a_tier_needs_all_the_lower_ones(self):
        self.assertEqual(self.best(AVX512.replace("fma", "")), "sse42")
        self.assertEqual(self.best(AVX2 + " avx512_vnni"), "avx2")
        self.assertEqual(tiers.covered_tiers("x86_64", cpuinfo(AVX2)), ["scalar", "sse42", "avx2"])

    def test_a_branch_may_be_missing(self):
        self.assertEqual(self.best(AVX2 + " avx_vnni"), "avxvnni")
        self.assertEqual(tiers.covered_tiers("x86_64", cpuinfo(AVX512 + " avx_vnni"))[-2:],
                         ["avxvnni", "avx512"])
        self.assertNotIn("avxvnni", tiers.covered_tiers("x86_64", cpuinfo(AVX512)))

    def test_arm(self):
        arm = cpuinfo("fp asimd asimddp", "Features\t")
        self.assertEqual(tiers.covered_tiers("aarch64", arm), ["scalar", "neon", "neondot"])
        self.assertEqual(tiers.covered_tiers("aarch64", arm.replace(" asimddp", ""))[-1], "neon")
        both = arm.replace("asimddp", "asimddp i8mm")
        self.assertEqual(tiers.covered_tiers("aarch64", both)[-1], "neoni8mm")

    def test_other_machines_have_the_scalar_tier(self):
        self.assertEqual(tiers.covered_tiers("riscv64", cpuinfo(AVX2)), ["scalar"])


if __name__ == "__main__":
    unittest.main()
