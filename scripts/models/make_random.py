#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes models of random weights, for measurements of size and speed and for comparisons with other engines.

    make_random.py gguf MODEL.qsf TYPE OUT.gguf [--head-type Q6_K] [--bin build/release/bin]
    make_random.py gpt2 DIR [--vocab-gguf FILE] [--seed N]
    make_random.py bitnet OUT.gguf [--shape small|0.7b] [--text FILE] [--seed N]

gguf writes a GGUF file with the shape of MODEL.qsf, a file of the LLaMA family such as `qsf convert --random 1b`
writes, or of Qwen3-MoE, such as `--random qwen3-30b-a3b` (routers f32). TYPE is Q4_0, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ1_0, TQ2_0, F16, or IQ2_BN, which only ik_llama.cpp
reads. Speed does not depend on the values. Needs numpy and gguf.

gpt2 writes a folder with the shape, names and files of the published GPT-2 small: config.json, model.safetensors
(f32, 124 M parameters, names without prefix, with the causal-mask buffers of the published file), vocab.json,
merges.txt and, where the tokenizers package is installed, tokenizer.json. scripts/check/check_gpt2 runs on it where
the real files are not at hand. The best logit leads by 0.4 on average, far more than rounding, and depends on the
whole context. The vocabulary is that of a GGUF file, or a made-up byte-level one of the same size. Needs numpy and
safetensors, for --vocab-gguf also gguf.

bitnet writes a BitNet model in Microsoft's I2_S, which bitnet.cpp and qsf parity both read. The architecture is
`bitnet`, that of 1bitLLM's models: SwiGLU, a norm before the output and the down projection, the embedding (f16) as
head. `small` (256 wide, 3 layers, grouped heads) is for comparisons; `0.7b` has the shape of bitnet_b1_58-large and is
for speed. The vocabulary has scores: bytes, and beginnings of the words of FILE (README.md). Needs numpy.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import string
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "golden"))
try:
    import numpy as np

    import bitnet_gguf  # which imports numpy too
except ImportError:
    np = None


def need(package):
    """Imports a package that only some subcommands need; ends the program when it is absent."""
    try:
        return __import__(package)
    except ImportError:
        sys.exit(f"make_random.py: {package} is not installed: pip install {package}")


BLOCK_SCALE = 0.004  # weights of about 0.02
ROWS_AT_ONCE = 4096
IQ2_BN = 135  # of ik_llama.cpp, which the gguf package does not know: an f32, then 2-bit codes


def read_shape(inspect, model):
    done = subprocess.run([inspect, "--json", model], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(1)  # the tool has said why
    shape = json.loads(done.stdout)["model"]
    if shape["architecture"] not in ("llama", "qwen3moe") or shape["tied_head"]:
        sys.exit(f"make_random.py: {model}: expected the LLaMA family or Qwen3-MoE with a head of its own")
    return shape


class GgufWriter:
    """Writes a model of the LLaMA family, or of Qwen3-MoE, with random blocks.

    Tensors are listed first and made as they are written, so that no more than one is in memory.
    """

    def __init__(self, gguf, shape, out):
        self.gguf, self.shape = gguf, shape
        self.rng = np.random.default_rng(1)
        self.file = gguf.GGUFWriter(out, shape["architecture"], use_temp_file=False)
        self.makers = []  # of the arrays of all tensors, in the order of the file

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
        if "experts" in s:
            file.add_key_length(s["head_dim"])
            file.add_value_length(s["head_dim"])
            file.add_rope_freq_base(s["rope_theta"])
            file.add_expert_count(s["experts"])
            file.add_expert_used_count(s["experts_used"])
            file.add_expert_feed_forward_length(s["expert_ffn"])
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
        names = self.gguf.GGMLQuantizationType
        if kind == IQ2_BN:
            data = self.rng.integers(0, 256, size=(rows, 4 + cols // 4), dtype=np.uint8)
            data &= ~((data & (data >> 1) & 0x55) << 1)  # codes 0 to 2
            data[:, :4] = np.frombuffer(np.float32(BLOCK_SCALE).tobytes(), dtype=np.uint8)
            return data
        if kind == names.F16:
            return (self.rng.standard_normal((rows, cols), dtype=np.float32) * 0.02).astype(np.float16)
        columns, n_bytes = self.gguf.GGML_QUANT_SIZES[kind]
        if cols % columns:
            sys.exit(f"make_random.py: {kind.name}: {cols} columns are no multiple of {columns}")
        data = self.rng.integers(0, 256, size=(rows, cols // columns, n_bytes), dtype=np.uint8)
        if kind == names.TQ2_0:  # codes 0 to 2
            data &= ~((data & (data >> 1) & 0x55) << 1)
        scale = np.frombuffer(np.float16(BLOCK_SCALE).tobytes(), dtype=np.uint8)
        for offset in self.scale_offsets(kind, n_bytes):
            data[:, :, offset:offset + 2] = scale
        return data.reshape(rows, -1)

    def add(self, name, shape, kind, make):
        """Lists a tensor: `shape` with the columns last, `make` gives its array."""
        names = self.gguf.GGMLQuantizationType
        n_weights = int(np.prod(shape))
        if kind == IQ2_BN:
            n_bytes = n_weights // shape[-1] * (4 + shape[-1] // 4)
            self.file.add_tensor_info(name, shape, np.dtype(np.int8), n_bytes, raw_dtype=IQ2_BN)
        elif kind in (names.F16, names.F32):
            dtype = np.dtype(np.float16 if kind == names.F16 else np.float32)
            self.file.add_tensor_info(name, shape, dtype, n_weights * dtype.itemsize)
        else:
            columns, of_block = self.gguf.GGML_QUANT_SIZES[kind]
            row = shape[-1] // columns * of_block
            n_bytes = n_weights // shape[-1] * row
            self.file.add_tensor_info(name, (*shape[:-1], row), np.dtype(np.uint8), n_bytes, raw_dtype=kind)
        self.makers.append(make)

    def matrix(self, name, rows, cols, kind, n_experts=0):
        n_rows = rows * max(n_experts, 1)

        def make():
            return np.concatenate([self.blocks(kind, min(ROWS_AT_ONCE, n_rows - at), cols)
                                   for at in range(0, n_rows, ROWS_AT_ONCE)])

        self.add(name, (n_experts, rows, cols) if n_experts else (rows, cols), kind, make)

    def norm(self, name, cols=None):
        cols = cols or self.shape["hidden"]
        self.add(name, (cols,), self.gguf.GGMLQuantizationType.F32, lambda: np.ones(cols, dtype=np.float32))

    def experts(self, at, kind):
        s = self.shape
        n, hidden, ffn = s["experts"], s["hidden"], s["expert_ffn"]
        self.norm(at + "attn_q_norm.weight", s["head_dim"])
        self.norm(at + "attn_k_norm.weight", s["head_dim"])
        self.add(at + "ffn_gate_inp.weight", (n, hidden), self.gguf.GGMLQuantizationType.F32,
                 lambda: self.rng.standard_normal((n, hidden), dtype=np.float32) * np.float32(0.02))
        for name, rows, cols in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
            self.matrix(f"{at}ffn_{name}_exps.weight", rows, cols, kind, n)

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
            matrices = [("attn_q", q, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden),
                        ("attn_output", hidden, q)]
            if "experts" in s:
                self.experts(at, kind)
            else:
                matrices += [("ffn_gate", ffn, hidden), ("ffn_up", ffn, hidden), ("ffn_down", hidden, ffn)]
            for name, rows, cols in matrices:
                self.matrix(f"{at}{name}.weight", rows, cols, kind)

    def finish(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_ti_data_to_file()
        for make in self.makers:
            self.file.write_tensor_data(make())
        self.file.close()


def write_gguf(args):
    gguf = need("gguf")
    shape = read_shape(os.path.join(args.bin, "qsf-inspect"), args.model)
    kinds = gguf.GGMLQuantizationType
    head = args.head_type or ("F16" if args.type == "F16" else "Q6_K")
    writer = GgufWriter(gguf, shape, args.out)
    writer.header()
    writer.tensors(IQ2_BN if args.type == "IQ2_BN" else kinds[args.type], kinds[head])
    writer.finish()


GPT2_VOCAB, GPT2_POSITIONS, GPT2_WIDTH, GPT2_LAYERS, GPT2_HEADS = 50257, 1024, 768, 12, 12
END_OF_TEXT = "<|endoftext|>"

GPT2_CONFIG = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": GPT2_VOCAB - 1, "embd_pdrop": 0.1,
    "eos_token_id": GPT2_VOCAB - 1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": GPT2_POSITIONS, "n_embd": GPT2_WIDTH, "n_head": GPT2_HEADS,
    "n_layer": GPT2_LAYERS, "n_positions": GPT2_POSITIONS, "resid_pdrop": 0.1, "vocab_size": GPT2_VOCAB,
}


def byte_symbols():
    """Returns the character that byte-level BPE writes for each byte value.

    Printable bytes stand for themselves; the 68 others take the code points from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    symbols, spare = [], 256
    for byte in range(256):
        symbols.append(chr(byte if byte in printable else spare))
        spare += byte not in printable
    return symbols


def made_up_vocabulary():
    """Returns (tokens, merges): bytes, then lower-case strings grown a letter at a time."""
    symbols = byte_symbols()
    tokens = sorted(symbols)
    merges, longest = [], [symbols[ord(" ")], *string.ascii_lowercase]
    while len(merges) < GPT2_VOCAB - 257:
        grown = [(piece, letter) for piece in longest for letter in string.ascii_lowercase]
        merges += grown[:GPT2_VOCAB - 257 - len(merges)]
        longest = [piece + letter for piece, letter in grown]
    tokens += [left + right for left, right in merges]
    return [*tokens, END_OF_TEXT], [" ".join(merge) for merge in merges]


def gguf_vocabulary(path):
    """Returns (tokens, merges) of a GGUF file with a GPT-2 vocabulary."""
    fields = need("gguf").GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    if len(tokens) != GPT2_VOCAB:
        sys.exit(f"make_random.py: {path}: {len(tokens)} tokens, expected {GPT2_VOCAB}")
    return tokens, merges


def write_vocabulary(folder, tokens, merges):
    ids = {token: i for i, token in enumerate(tokens)}
    assert len(ids) == GPT2_VOCAB
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(m + "\n" for m in merges),
                                       encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": GPT2_POSITIONS}))
    try:
        import tokenizers
    except ImportError:
        print("tokenizer.json not written: the tokenizers package is not installed")
        return
    model = tokenizers.models.BPE(ids, [tuple(m.split(" ")) for m in merges])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    tokenizer.save(str(folder / "tokenizer.json"))


def random_weights(seed):
    """Returns the tensors, at scales near those of the trained model.

    Attention scores get a standard deviation near 3 and logits near 2; the residual stream ends
    far larger than the embeddings, without which a tied head would repeat the last token.
    """
    rng = np.random.default_rng(seed)

    def normal(shape, scale, mean=0.0):
        return (mean + scale * rng.standard_normal(shape, dtype=np.float32)).astype(np.float32)

    tensors = {"wte.weight": normal((GPT2_VOCAB, GPT2_WIDTH), 0.14),
               "wpe.weight": normal((GPT2_POSITIONS, GPT2_WIDTH), 0.10)}
    mask = np.tril(np.ones((1, 1, GPT2_POSITIONS, GPT2_POSITIONS), dtype=np.float32))
    for layer in range(GPT2_LAYERS):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            tensors[h + norm + ".weight"] = normal(GPT2_WIDTH, 0.10, mean=0.5)
            tensors[h + norm + ".bias"] = normal(GPT2_WIDTH, 0.05)
        for name, rows, columns, scale in (
                ("attn.c_attn", GPT2_WIDTH, 3 * GPT2_WIDTH, 0.12), ("attn.c_proj", GPT2_WIDTH, GPT2_WIDTH, 0.10),
                ("mlp.c_fc", GPT2_WIDTH, 4 * GPT2_WIDTH, 0.13), ("mlp.c_proj", 4 * GPT2_WIDTH, GPT2_WIDTH, 0.09)):
            tensors[h + name + ".weight"] = normal((rows, columns), scale)
            tensors[h + name + ".bias"] = normal(columns, 0.2)
        tensors[h + "attn.bias"] = mask
    tensors["ln_f.weight"] = normal(GPT2_WIDTH, 0.10, mean=0.5)
    tensors["ln_f.bias"] = normal(GPT2_WIDTH, 0.05)
    return tensors


def write_gpt2(args):
    need("safetensors")
    from safetensors.numpy import save_file
    args.dir.mkdir(parents=True, exist_ok=True)
    write_vocabulary(args.dir, *(gguf_vocabulary(args.vocab_gguf) if args.vocab_gguf else made_up_vocabulary()))
    (args.dir / "config.json").write_text(json.dumps(GPT2_CONFIG, indent=2) + "\n")
    save_file(random_weights(args.seed), args.dir / "model.safetensors", {"format": "pt"})


# hidden, ffn, layers, heads, kv heads, vocabulary
BITNET_SHAPES = {"small": (256, 640, 3, 4, 2, 1024), "0.7b": (1536, 4096, 24, 16, 16, 32000)}
BITNET_CONTEXT = 2048
N_BYTES = 256
N_CONTROL = 3


def pieces_of(text, n_pieces):
    """The beginnings of words, the frequent ones first: each is a shorter one and a character, so that merges
    can reach it."""
    counts = collections.Counter()
    for word in re.findall(r"[!-~]+", text):
        marked = "\u2581" + word
        for end in range(1, len(marked) + 1):
            counts[marked[:end]] += 1
        counts.update(word)
    best = sorted(counts, key=lambda piece: (-counts[piece], piece))[:n_pieces]
    return best + [f"\u2581unused{i}" for i in range(n_pieces - len(best))]


def bitnet_tokenizer(n_vocab, text):
    n_pieces = n_vocab - N_CONTROL - N_BYTES
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(N_BYTES)] + pieces_of(text, n_pieces)
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * (N_CONTROL + N_BYTES) + [-1.0 * i for i in range(n_pieces)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * N_BYTES + [1] * n_pieces,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.add_bos_token": True,
    }


def bitnet_header(shape, text):
    hidden, ffn, layers, heads, kv_heads, n_vocab = shape
    return {
        "general.architecture": "bitnet", "general.name": "random",
        "bitnet.vocab_size": n_vocab, "bitnet.context_length": BITNET_CONTEXT, "bitnet.embedding_length": hidden,
        "bitnet.block_count": layers, "bitnet.feed_forward_length": ffn,
        "bitnet.rope.dimension_count": hidden // heads, "bitnet.attention.head_count": heads,
        "bitnet.attention.head_count_kv": kv_heads, "bitnet.attention.layer_norm_rms_epsilon": 1e-5,
        "bitnet.rope.freq_base": 10000.0, "general.file_type": 40, "general.quantization_version": 2,
        **bitnet_tokenizer(n_vocab, text),
    }


def bitnet_tensors(shape, rng):
    hidden, ffn, layers, heads, kv_heads, n_vocab = shape
    kv = hidden // heads * kv_heads

    def vector(name, size, mean, spread):
        values = (mean + spread * rng.standard_normal(size)).astype("<f4")
        return (name, bitnet_gguf.F32, values.shape, values.tobytes())

    def ternary(name, rows, cols):
        codes = rng.integers(0, 3, (rows, cols), dtype=np.uint8)
        scale = float(rng.uniform(1.0, 1.6) / cols ** 0.5)
        return (name, bitnet_gguf.I2_S, codes.shape, bitnet_gguf.i2s_a(codes, scale))

    embedding = (0.5 * rng.standard_normal((n_vocab, hidden))).astype("<f2")
    yield ("token_embd.weight", bitnet_gguf.F16, embedding.shape, embedding.tobytes())
    for layer in range(layers):
        at = f"blk.{layer}."
        yield vector(at + "attn_norm.weight", hidden, 0.5, 0.2)
        yield ternary(at + "attn_q.weight", hidden, hidden)
        yield ternary(at + "attn_k.weight", kv, hidden)
        yield ternary(at + "attn_v.weight", kv, hidden)
        yield vector(at + "attn_sub_norm.weight", hidden, 0.8, 0.3)
        yield ternary(at + "attn_output.weight", hidden, hidden)
        yield vector(at + "ffn_norm.weight", hidden, 1.2, 0.3)
        yield ternary(at + "ffn_gate.weight", ffn, hidden)
        yield ternary(at + "ffn_up.weight", ffn, hidden)
        yield vector(at + "ffn_sub_norm.weight", ffn, 0.3, 0.3)
        yield ternary(at + "ffn_down.weight", hidden, ffn)
    yield vector("output_norm.weight", hidden, 1.5, 0.4)


def write_bitnet(args):
    shape = BITNET_SHAPES[args.shape]
    text = args.text.read_text(encoding="utf-8")
    rng = np.random.default_rng(args.seed)
    bitnet_gguf.write_file(args.out, bitnet_header(shape, text), list(bitnet_tensors(shape, rng)))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    gguf = commands.add_parser("gguf", help="a GGUF file with the shape of a .qsf file")
    gguf.add_argument("model", metavar="MODEL.qsf")
    gguf.add_argument("type", choices=["Q4_0", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "F16",
                                       "IQ2_BN"])
    gguf.add_argument("out", metavar="OUT.gguf")
    gguf.add_argument("--head-type", choices=["Q6_K", "Q8_0", "Q4_0", "F16"],
                      help="type of embedding and head; default Q6_K, with F16 weights F16")
    gguf.add_argument("--bin", default=str(ROOT / "build" / "release" / "bin"), help="folder of the built tools")
    gguf.set_defaults(write=write_gguf)
    gpt2 = commands.add_parser("gpt2", help="a Hugging Face folder with the shape of GPT-2 small")
    gpt2.add_argument("dir", type=pathlib.Path, metavar="DIR", help="folder to write")
    gpt2.add_argument("--vocab-gguf", type=pathlib.Path, metavar="FILE", help="take the vocabulary of this GGUF file")
    gpt2.add_argument("--seed", type=int, default=1)
    gpt2.set_defaults(write=write_gpt2)
    bitnet = commands.add_parser("bitnet", help="a BitNet model in I2_S")
    bitnet.add_argument("out", metavar="OUT.gguf", type=pathlib.Path)
    bitnet.add_argument("--shape", choices=sorted(BITNET_SHAPES), default="small")
    bitnet.add_argument("--text", metavar="FILE", type=pathlib.Path, default=ROOT / "README.md")
    bitnet.add_argument("--seed", metavar="N", type=int, default=1)
    bitnet.set_defaults(write=write_bitnet)
    return parser.parse_args()


def main():
    args = parse_arguments()
    need("numpy")
    args.write(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
