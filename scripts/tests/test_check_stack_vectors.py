# SPDX-License-Identifier: MIT
"""Tests of check_stack_vectors.py on what objdump says about functions."""

import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_stack_vectors

GOOD = """
0000000000000000 <matvec_avx2>:
   0:\tvmovups %ymm1,0x20(%rsp)
   4:\tvmovdqu64 -0x40(%rbp),%zmm3
   8:\tvmovaps %xmm6,0x10(%rsp)
   c:\tvmovaps (%rax),%ymm0
  10:\tvmovdqa64 %zmm2,%zmm4
"""


def found(text):
    return check_stack_vectors.violations(text, "kernel.obj")


class StackVectorsTest(unittest.TestCase):
    def test_code_that_is_right_anywhere(self):
        self.assertEqual(found(GOOD), ([], 4))

    def test_aligned_moves_of_wide_vectors(self):
        for move in ("vmovaps %ymm1,0x20(%rsp)", "vmovapd -0x60(%rbp),%ymm1", "vmovdqa (%rsp),%ymm9",
                     "vmovdqa64 %zmm31,0x40(%rsp)", "vmovdqa32 0x40(%rsp,%rax,8),%zmm1",
                     "vmovdqa64 %zmm31,0x40(%rsp){%k1}"):
            lines, _ = found(GOOD + f"  16:\t{move}\n")
            self.assertEqual(len(lines), 1, move)
            self.assertIn("matvec_avx2: " + move, lines[0])

    def test_a_function_is_named_once(self):
        self.assertEqual(len(found(GOOD + "  16:\tvmovaps %ymm1,(%rsp)\n" * 3)[0]), 1)

    def test_nothing_to_look_at(self):
        self.assertEqual(found("0000000000000000 <f>:\n   0:\tret\n"), ([], 0))


if __name__ == "__main__":
    unittest.main()
