#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file of random weights with the shape of a .qsf file, for comparisons of speed.

    make_random_gguf.py MODEL.qsf TYPE OUT.gguf [--head-type Q6_K] [--bin build/release/bin]

MODEL.qsf is of the LLaMA family, such as `qsf-convert --random 1b` writes. TYPE is Q4_0, Q8_0,
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ1_0, TQ2_0, F16 or IQ2_BN, which ik_llama.cpp alone reads. Needs
numpy and gguf. Speed does not depend on the values; the text of such a model is nonsense by
construction.
"""

import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCALE = 0.004  # of a block; weights of about 0.02
ROWS_AT_ONCE = 4096
IQ2_BN = 135  # of ik_llama.cpp, which the gguf package does not know: an f32, then 2-bit codes


def read_shape(inspect, model):
    done = subprocess.run([inspect, "--json", model], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(1)  # the tool has said why
    shape = json.loads(done.stdout)["model"]
    if shape["architecture"] != "llama" or shape["tied_head"]:
        sys.exit(f"make_random_gguf.py: {model}: expected the LLaMA family with a head of its own")
    return shape


class Writer:
    def __init__(self, gguf, numpy, shape, out):
        self.gguf, self.numpy, self.shape = gguf, numpy, shape
        self.rng = numpy.random.default_rng(1)
        self.file = gguf.GGUFWriter(out, "llama", use_temp_file=False)

    def header(self):
        s, file = self.shape, self.file
        file.add_block_count(s["layers"])
        file.add_context_length(s["positions"])
        file.add_embedding_length(s["hidden"])
        file.add_feed_forward_length(s["ffn"])
        file.add_head_count(s["heads"])
        file.add_head_count_kv(s["kv_heads"])
        file.add_layer_norm_rms_eps(1e-5)
        file.add_rope_dimension_count(s["head_dim"])
        file.add_vocab_size(s["vocabulary"])
        n_pieces = s["vocabulary"] - 259
        file.add_tokenizer_model("llama")
        file.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
                            + [f"t{i}" for i in range(n_pieces)])
        file.add_token_scores([0.0] * 259 + [-1.0 * i for i in range(n_pieces)])
        file.add_token_types([2, 3, 3] + [6] * 256 + [1] * n_pieces)
        file.add_bos_token_id(1)
        file.add_eos_token_id(2)

    def scale_offsets(self, kind, n_bytes):
        """Where the f16 scales of a block stand: random bytes there could be no number."""
        names = self.gguf.GGMLQuantizationType
        return {names.Q4_0: [0], names.Q8_0: [0], names.Q4_K: [0, 2], names.Q5_K: [0, 2],
                names.Q2_K: [n_bytes - 4, n_bytes - 2], names.Q3_K: [n_bytes - 2],
                names.Q6_K: [n_bytes - 2], names.TQ1_0: [n_bytes - 2],
                names.TQ2_0: [n_bytes - 2]}[kind]

    def blocks(self, kind, rows, cols):
        numpy, names = self.numpy, self.gguf.GGMLQuantizationType
        if kind == IQ2_BN:
            data = self.rng.integers(0, 256, size=(rows, 4 + cols // 4), dtype=numpy.uint8)
            data &= ~((data & (data >> 1) & 0x55) << 1)  # codes 0 to 2
            data[:, :4] = numpy.frombuffer(numpy.float32(SCALE).tobytes(), dtype=numpy.uint8)
            return data
        if kind == names.F16:
            return (self.rng.standard_normal((rows, cols), dtype=numpy.float32) * 0.02).astype(numpy.float16)
        columns, n_bytes = self.gguf.GGML_QUANT_SIZES[kind]
        if cols % columns:
            sys.exit(f"make_random_gguf.py: {kind.name}: {cols} columns are no multiple of {columns}")
        data = self.rng.integers(0, 256, size=(rows, cols // columns, n_bytes), dtype=numpy.uint8)
        if kind == names.TQ2_0:  # codes 0 to 2
            data &= ~((data & (data >> 1) & 0x55) << 1)
        scale = numpy.frombuffer(numpy.float16(SCALE).tobytes(), dtype=numpy.uint8)
        for offset in self.scale_offsets(kind, n_bytes):
            data[:, :, offset:offset + 2] = scale
        return data.reshape(rows, -1)

    def matrix(self, name, rows, cols, kind):
        parts = [self.blocks(kind, min(ROWS_AT_ONCE, rows - at), cols)
                 for at in range(0, rows, ROWS_AT_ONCE)]
        data = self.numpy.concatenate(parts)
        if kind == IQ2_BN:
            self.file.add_tensor(name, data.view(self.numpy.int8), raw_shape=(rows, cols), raw_dtype=IQ2_BN)
            return
        raw = None if kind == self.gguf.GGMLQuantizationType.F16 else kind
        self.file.add_tensor(name, data, raw_dtype=raw)

    def norm(self, name):
        self.file.add_tensor(name, self.numpy.ones(self.shape["hidden"], dtype=self.numpy.float32))

    def tensors(self, kind, head_kind):
        s = self.shape
        hidden, ffn = s["hidden"], s["ffn"]
        q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
        self.matrix("token_embd.weight", s["vocabulary"], hidden, head_kind)
        self.norm("output_norm.weight")
        self.matrix("output.weight", s["vocabulary"], hidden, head_kind)
        for layer in range(s["layers"]):
            at = f"blk.{layer}."
            self.norm(at + "attn_norm.weight")
            self.norm(at + "ffn_norm.weight")
            for name, rows, cols in (("attn_q", q, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden),
                                     ("attn_output", hidden, q), ("ffn_gate", ffn, hidden),
                                     ("ffn_up", ffn, hidden), ("ffn_down", hidden, ffn)):
                self.matrix(f"{at}{name}.weight", rows, cols, kind)

    def finish(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file(progress=False)
        self.file.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("model", metavar="MODEL.qsf")
    parser.add_argument("type", choices=["Q4_0", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0",
                                         "TQ2_0", "F16", "IQ2_BN"])
    parser.add_argument("out", metavar="OUT.gguf")
    parser.add_argument("--head-type", choices=["Q6_K", "Q8_0", "Q4_0", "F16"],
                        help="of embedding and head; default Q6_K, with F16 weights F16")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    args = parser.parse_args()
    try:
        import gguf
        import numpy
    except ImportError as missing:
        sys.exit(f"make_random_gguf.py: {missing.name} is not installed: pip install numpy gguf")
    shape = read_shape(os.path.join(args.bin, "qsf-inspect"), args.model)
    kinds = gguf.GGMLQuantizationType
    head = args.head_type or ("F16" if args.type == "F16" else "Q6_K")
    writer = Writer(gguf, numpy, shape, args.out)
    writer.header()
    writer.tensors(IQ2_BN if args.type == "IQ2_BN" else kinds[args.type], kinds[head])
    writer.finish()


if __name__ == "__main__":
    main()
