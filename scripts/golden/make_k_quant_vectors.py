#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Blocks of GGUF's K-quants and of IQ4_XS, and what the gguf package decodes them to, for testdata/k_quants.

  make_k_quant_vectors.py FOLDER

Each file NAME.bin holds two blocks of 256 weights with random bits and finite d and dmin of either sign, and then
the 512 weights as f32, little-endian. Needs numpy and gguf; the same bytes every time.
"""

import pathlib
import sys

import gguf
import numpy

TYPES = {"q2_k": (gguf.GGMLQuantizationType.Q2_K, 84, (80, 82)),
         "q3_k": (gguf.GGMLQuantizationType.Q3_K, 110, (108,)),
         "q4_k": (gguf.GGMLQuantizationType.Q4_K, 144, (0, 2)),
         "q5_k": (gguf.GGMLQuantizationType.Q5_K, 176, (0, 2)),
         "q6_k": (gguf.GGMLQuantizationType.Q6_K, 210, (208,)),
         "iq4_xs": (gguf.GGMLQuantizationType.IQ4_XS, 136, (0,))}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, block_bytes, halves) in TYPES.items():
        rng = numpy.random.Generator(numpy.random.PCG64(17))
        blocks = rng.integers(0, 256, (2, block_bytes), dtype=numpy.uint8)
        for block in blocks:
            for at in halves:
                block[at:at + 2] = numpy.frombuffer(numpy.float16(rng.normal()).tobytes(), numpy.uint8)
        weights = gguf.dequantize(blocks, kind).astype("<f4")
        (folder / f"{name}.bin").write_bytes(blocks.tobytes() + weights.tobytes())


if __name__ == "__main__":
    main()
