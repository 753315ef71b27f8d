#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes rows of every GGUF tensor type, and the f32 that ggml decodes them to.

    make_ggml_golden.py OUT --ggml SOURCE BUILD --ik SOURCE BUILD

SOURCE is the ggml folder of a source tree of llama.cpp (with --ik, of ik_llama.cpp), BUILD that of
its build with static libraries. OUT/NAME.bin has 4 rows of 512 columns as they stand in a file,
then their 2048 values as f32, every NaN as 7FC00000. The rows are

    0   what the reference's quantiser makes of normal weights (ternary ones for ternary types)
    1   random bytes, with scales that are zero, subnormal, large and negative
    2   the same with other scales
    3   random bytes throughout, infinities and NaN among them

The values of llama.cpp are compared with those of the Python package gguf before they are written.
Needs numpy, gguf and a C and C++ compiler.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import gguf.quants
import numpy

COLUMNS = 512
# name: number, columns of a block, bytes of a block, bytes before a row, places of f16 in a block
TYPES = {
    "F32": (0, 1, 4, 0, ()), "F16": (1, 1, 2, 0, (0,)), "BF16": (30, 1, 2, 0, ()),
    "F64": (28, 1, 8, 0, ()),
    "Q4_0": (2, 32, 18, 0, (0,)), "Q4_1": (3, 32, 20, 0, (0, 2)), "Q5_0": (6, 32, 22, 0, (0,)),
    "Q5_1": (7, 32, 24, 0, (0, 2)), "Q8_0": (8, 32, 34, 0, (0,)),
    "Q2_K": (10, 256, 84, 0, (80, 82)), "Q3_K": (11, 256, 110, 0, (108,)),
    "Q4_K": (12, 256, 144, 0, (0, 2)), "Q5_K": (13, 256, 176, 0, (0, 2)),
    "Q6_K": (14, 256, 210, 0, (208,)), "Q8_K": (15, 256, 292, 0, ()),
    "IQ4_NL": (20, 32, 18, 0, (0,)), "IQ4_XS": (23, 256, 136, 0, (0,)),
    "TQ1_0": (34, 256, 54, 0, (52,)), "TQ2_0": (35, 256, 66, 0, (64,)),
    "MXFP4": (39, 32, 17, 0, ()),
    "IQ1_BN": (134, 64, 13, 2, ()), "IQ2_BN": (135, 64, 16, 4, ()),
}
TERNARY = ("TQ1_0", "TQ2_0", "IQ1_BN", "IQ2_BN")
HALVES = numpy.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0155, 0x0400, 0x2C91, 0xAB07, 0x3C00,
                      0xB555, 0x6FFF, 0xF3C1], dtype="<u2")

# Reads rows (or weights, to quantise) of 512 columns from stdin.
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "ggml.h"
extern "C" {
#include "ggml-quants.h"
}
int main(int argc, char ** argv) {
  const bool decode = argc > 1 && std::strcmp(argv[1], "decode") == 0;
  const ggml_type type = static_cast<ggml_type>(std::atoi(argv[2]));
  const std::size_t row_bytes = std::strtoul(argv[3], nullptr, 10);
  const std::size_t front = std::strtoul(argv[4], nullptr, 10);
  ggml_init_params params = {1 << 20, nullptr, false};
  ggml_free(ggml_init(params));
  std::vector<float> weights(512);
  std::vector<char> row(row_bytes);
  if (!decode) {
    while (std::fread(weights.data(), 4, 512, stdin) == 512) {
      QUANTISE
      std::fwrite(row.data(), 1, row_bytes, stdout);
    }
    return 0;
  }
  while (std::fread(row.data(), 1, row_bytes, stdin) == row_bytes) {
    DECODE
    float scale = 1.0f;
    if (front == 2) {
      ggml_fp16_t half;
      std::memcpy(&half, row.data(), 2);
      scale = ggml_fp16_to_fp32(half);
    } else if (front == 4) {
      std::memcpy(&scale, row.data(), 4);
    }
    if (front != 0) for (float & w : weights) w *= scale;
    std::fwrite(weights.data(), 4, 512, stdout);
  }
  return 0;
}
"""
LLAMA_CPP = {
    "QUANTISE": "if (type == GGML_TYPE_Q8_K) "
                "quantize_row_q8_K_ref(weights.data(), reinterpret_cast<block_q8_K *>(row.data()), 512);"
                " else ggml_quantize_chunk(type, weights.data(), row.data(), 0, 1, 512, nullptr);",
    "DECODE": "if (type == GGML_TYPE_Q8_K) "
              "dequantize_row_q8_K(reinterpret_cast<block_q8_K *>(row.data()), weights.data(), 512);"
              " else ggml_get_type_traits(type)->to_float(row.data(), weights.data(), 512);",
}
IK = {
    "QUANTISE": "ggml_quantize_chunk(type, weights.data(), row.data(), 0, 1, 512, nullptr, nullptr);",
    "DECODE": "ggml_internal_get_type_traits(type).to_float(row.data() + front, weights.data(), 512);",
}


class Reference:
    """A program linked with a ggml that decodes rows and quantises weights."""

    def __init__(self, folder, name, source, build, fragments):
        text = PROGRAM
        for word, fragment in fragments.items():
            text = text.replace(word, fragment)
        if name == "ik":
            text = text.replace('#include "ggml-quants.h"\n', "")
        path = folder / f"{name}.cc"
        path.write_text(text)
        self.program = folder / name
        libraries = sorted(str(lib) for lib in pathlib.Path(build).glob("src/libggml*.a"))
        subprocess.run(["c++", "-std=c++17", "-w", f"-I{source}/include", f"-I{source}/src", str(path),
                        "-Wl,--start-group", *libraries, "-Wl,--end-group", "-fopenmp", "-ldl",
                        "-lpthread", "-o", str(self.program)], check=True)

    def run(self, action, type_row, data):
        number, columns, block_bytes, front, _ = type_row
        n_bytes = front + COLUMNS // columns * block_bytes
        done = subprocess.run([str(self.program), action, str(number), str(n_bytes), str(front)],
                              input=data.tobytes(), stdout=subprocess.PIPE, check=True)
        dtype = numpy.float32 if action == "decode" else numpy.uint8
        return numpy.frombuffer(done.stdout, dtype).reshape(len(data), -1)


def make_weights(name, rng):
    if name in TERNARY:
        return (rng.integers(-1, 2, (1, COLUMNS)) * 0.8125).astype("<f4")
    return rng.standard_normal((1, COLUMNS)).astype("<f4") * numpy.float32(0.02)


def quantise(name, reference, rng):
    weights = make_weights(name, rng)
    if name == "F32":
        return weights.view(numpy.uint8)
    if name == "F64":
        return rng.standard_normal((1, COLUMNS)).astype("<f8").view(numpy.uint8)
    return reference.run("quantise", TYPES[name], weights)


def random_rows(name, rng):
    """Rows 1 to 3."""
    _, columns, block_bytes, front, places = TYPES[name]
    rows = rng.integers(0, 256, (3, front + COLUMNS // columns * block_bytes), dtype=numpy.uint8)
    blocks = rows[:2, front:].reshape(2, -1, block_bytes)
    for place in places:
        halves = rng.choice(HALVES, blocks.shape[:2])
        blocks[:, :, place:place + 2] = halves[..., None].view(numpy.uint8)
    if name == "Q8_K":
        blocks[:, :, :4] = rng.standard_normal((*blocks.shape[:2], 1)).astype("<f4").view(numpy.uint8)
    rows[:2, front:] = blocks.reshape(2, -1)
    if name == "IQ1_BN":
        rows[:2, :2] = numpy.array([[0x0155], [0xB555]], "<u2").view(numpy.uint8)
    if name == "IQ2_BN":
        rows[:2, :4] = numpy.array([[1e-41], [-0.3]], "<f4").view(numpy.uint8)
    return rows


def decode(name, reference, rows):
    if name == "F32":
        return rows.view("<f4").astype("<f4")
    if name == "F64":
        with numpy.errstate(all="ignore"):
            return rows.view("<f8").astype("<f4")
    return reference.run("decode", TYPES[name], rows)


def plain_nan(values):
    bits = values.copy().view("<u4")
    bits[numpy.isnan(values)] = 0x7FC00000
    return bits


def check_against_python(name, rows, bits):
    """Compares with the gguf package, where that has the type."""
    number = TYPES[name][0]
    if number not in [int(known) for known in gguf.quants._type_traits]:
        return "not in gguf"
    with numpy.errstate(all="ignore"):
        values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(number)).astype("<f4")
    theirs = plain_nan(values.reshape(bits.shape))
    # Multiplied in another order, a zero may have another sign there.
    different = (theirs != bits) & ~((theirs | bits) & 0x7FFFFFFF == 0)
    if different.any():
        sys.exit(f"make_ggml_golden.py: {name}: llama.cpp and gguf differ in {different.sum()} values")
    return "equal to gguf"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--ggml", nargs=2, required=True, metavar=("SOURCE", "BUILD"))
    parser.add_argument("--ik", nargs=2, required=True, metavar=("SOURCE", "BUILD"))
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        llama_cpp = Reference(folder, "llama_cpp", *options.ggml, LLAMA_CPP)
        ik = Reference(folder, "ik", *options.ik, IK)
        for name in TYPES:
            reference = ik if name.endswith("_BN") else llama_cpp
            rng = numpy.random.default_rng(TYPES[name][0])
            rows = numpy.concatenate([quantise(name, reference, rng), random_rows(name, rng)])
            rows = numpy.ascontiguousarray(rows)
            bits = plain_nan(decode(name, reference, rows))
            (options.out / f"{name}.bin").write_bytes(rows.tobytes() + bits.tobytes())
            print(f"{name}: {rows.shape[1]} bytes a row, {check_against_python(name, rows, bits)}")


if __name__ == "__main__":
    main()
