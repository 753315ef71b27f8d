#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the golden BitNet models: random ternary checkpoints with the logits they must give.

    make_bitnet_golden.py TESTDATA_DIR     writes TESTDATA_DIR/bitnet/ and TESTDATA_DIR/gguf/bitnet/

Every folder of bitnet/ holds config.json, model.safetensors and expected.bin (the layout is that of
make_golden_models.py). The logits are those of transformers' own BitNet and LLaMA with its own
ternary layers, in float32 with eager attention.

  wide          Microsoft's classes, 256 wide, packed codes times weight_scale, tied f16 embedding;
                gguf/bitnet/ holds the same model in six layouts
  packed        the same classes, 64 wide, 2 layers
  masters       the same weights as `packed`, as bf16 numbers whose mean magnitude is the scale
  bitnet_1bit   bf16 masters under the names of 1bitLLM, SiLU, a head of its own
  bitlinear     a llama of packed codes over weight_scale, as Falcon3-1.58

Rows are rounded to int8 in every layer, and a value halfway between two codes turns to either one
by the last bit of a float. So the tokens of each sequence are chosen, one after the other, such that
no value that the reference rounds lies nearer than MARGIN codes to such a border; two programs that
agree to 1e-6 then round alike, and logits can be held to 1e-4 and less.

faults.json holds for each planted fault the largest change of a logit divided by the largest logit.
"""

import json
import os
import pathlib
import struct
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np
import safetensors.torch
import torch
from transformers import BitNetConfig, BitNetForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations import bitnet as hf_bitnet
from transformers.utils.quantization_config import BitNetQuantConfig

import bitnet_gguf

MARGIN = 5e-4
N_TOKENS = 44
CASES = [(1, 5), (2, 5), (17, 5), (40, 5)]
MIN_FAULT = 1e-3
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

SMALL = {"vocab_size": 64, "max_position_embeddings": 64, "hidden_size": 64,
         "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2}
MICROSOFT = {"architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "hidden_act": "relu2",
             "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}


def quantisation(linear_class, mode):
    return {"quant_method": "bitnet", "linear_class": linear_class, "quantization_mode": mode,
            "modules_to_not_convert": None}


MODELS = {
    "wide": {**SMALL, **MICROSOFT, "hidden_size": 256, "intermediate_size": 256,
             "num_hidden_layers": 1,
             "quantization_config": quantisation("autobitlinear", "offline")},
    "packed": {**SMALL, **MICROSOFT,
               "quantization_config": quantisation("autobitlinear", "offline")},
    "masters": {**SMALL, **MICROSOFT,
                "quantization_config": quantisation("autobitlinear", "online")},
    "bitnet_1bit": {**SMALL, "architectures": ["BitnetForCausalLM"], "model_type": "llama",
                    "hidden_act": "silu", "rope_theta": 10000.0, "rope_scaling": None,
                    "tie_word_embeddings": False, "torch_dtype": "float16",
                    "input_bits": 8, "weight_bits": 1},
    "bitlinear": {**SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
                  "hidden_act": "silu", "rope_theta": 1000042.0, "tie_word_embeddings": False,
                  "torch_dtype": "bfloat16", "attention_bias": False, "mlp_bias": False,
                  "quantization_config": {"quant_method": "bitnet",
                                          "modules_to_not_convert": ["lm_head"]}},
}


def bf16(values):
    return torch.from_numpy(values).to(torch.bfloat16).float()


def vector(rng, size, mean, spread):
    return bf16((mean + spread * rng.standard_normal(size)).astype(np.float32))


class Weights:
    """The numbers of a model, whatever file they are put into."""

    def __init__(self, config, seed):
        rng = np.random.default_rng(seed)
        hidden, ffn = config["hidden_size"], config["intermediate_size"]
        kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
        shapes = {"q_proj": (hidden, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden),
                  "o_proj": (hidden, hidden), "gate_proj": (ffn, hidden), "up_proj": (ffn, hidden),
                  "down_proj": (hidden, ffn)}
        self.config = config
        self.vectors, self.codes, self.steps = {}, {}, {}
        for layer in range(config["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            self.vectors[at + "input_layernorm"] = vector(rng, hidden, 0.5, 0.2)
            self.vectors[at + "post_attention_layernorm"] = vector(rng, hidden, 1.2, 0.3)
            if config["architectures"] != ["LlamaForCausalLM"]:
                self.vectors[at + "self_attn.attn_sub_norm"] = vector(rng, hidden, 0.8, 0.3)
                self.vectors[at + "mlp.ffn_sub_norm"] = vector(rng, ffn, 0.3, 0.3)
            for name in LINEARS:
                block = "mlp" if name in ("gate_proj", "up_proj", "down_proj") else "self_attn"
                self.codes[f"{at}{block}.{name}"] = rng.integers(0, 3, shapes[name], dtype=np.uint8)
                # The scale: a number of bf16 near 2 / sqrt(columns), in steps of 2^-k.
                exponent = 6 + int(np.log2(shapes[name][1]) // 2)
                self.steps[f"{at}{block}.{name}"] = (int(rng.integers(90, 127)), exponent)
        self.vectors["model.norm"] = vector(rng, hidden, 1.5, 0.4)
        embedding = 0.5 * rng.standard_normal((config["vocab_size"], hidden)).astype(np.float32)
        embedding[np.abs(embedding) < 2.0 ** -10] = 0  # the same numbers in f16 and bf16
        self.embedding = bf16(embedding)
        head = rng.standard_normal((config["vocab_size"], hidden)).astype(np.float32)
        self.head = None if config["tie_word_embeddings"] else bf16(head / np.float32(hidden ** 0.5))
        self.rng = rng

    def scale(self, name):
        number, exponent = self.steps[name]
        return float(number) * 2.0 ** -exponent

    def masters(self, name):
        """bf16 numbers that round to the codes and whose mean magnitude is exactly the scale."""
        number, exponent = self.steps[name]
        codes = self.codes[name].astype(np.int64) - 1
        nonzero = codes != 0
        size = np.where(nonzero, number + self.rng.integers(0, number // 2, codes.shape),
                        self.rng.integers(0, number // 3, codes.shape))
        missing = number * codes.size - int(size.sum())
        places = np.flatnonzero(nonzero)
        size.flat[places] += missing // places.size
        size.flat[places[:missing % places.size]] += 1
        assert size.sum() == number * codes.size and size.max() <= 256, "numbers of bf16"
        assert size[nonzero].min() > 0.6 * number and size[~nonzero].max() < 0.4 * number
        sign = np.where(nonzero, codes, self.rng.choice([-1, 1], codes.shape))
        return bf16((sign * size * 2.0 ** -exponent).astype(np.float32))

    def packed(self, name):
        return torch.from_numpy(bitnet_gguf.pack(
            self.codes[name].reshape(4, -1, self.codes[name].shape[1]).transpose(1, 0, 2),
            (0, 2, 4, 6)))


def parameters(weights, masters):
    """The state of the reference: every number in float32, by the names of Microsoft's class."""
    config = weights.config
    over = config["architectures"] == ["LlamaForCausalLM"]
    state = {name + ".weight": value for name, value in weights.vectors.items()}
    state["model.embed_tokens.weight"] = weights.embedding
    state["lm_head.weight"] = weights.embedding if weights.head is None else weights.head
    for name in weights.codes:
        if masters is not None:
            state[name + ".weight"] = masters[name]
            continue
        scale = torch.tensor([weights.scale(name)], dtype=torch.float32)
        state[name + ".weight_scale"] = bf16(1.0 / scale.numpy()) if over else scale
        ternary = torch.from_numpy(weights.codes[name]).float() - 1
        state[name + ".weight"] = weights.packed(name) if over else ternary
    return state


def reference(weights, state, **changes):
    config = {k: v for k, v in weights.config.items()
              if k not in ("architectures", "quantization_config", "model_type", "torch_dtype")}
    config.update(changes)
    llama = weights.config["architectures"] == ["LlamaForCausalLM"]
    online = not any(name.endswith("weight_scale") for name in state)
    kind = (LlamaConfig, LlamaForCausalLM) if llama else (BitNetConfig, BitNetForCausalLM)
    model = kind[1](kind[0](**config, attn_implementation="eager")).float().eval()
    quantiser = BitNetQuantConfig(linear_class="bitlinear" if llama else "autobitlinear",
                                  quantization_mode="online" if online else "offline")
    model = hf_bitnet.replace_with_bitnet_linear(model, ["lm_head"], quantiser)
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    assert not missing and not unexpected, (missing, unexpected)
    return model.float() if not llama else model


class Margins:
    """Watches the inputs of every ternary layer: how near a value comes to the border of a code."""

    def __init__(self, model):
        self.nearest = None
        for name, module in model.named_modules():
            if name.endswith(LINEARS):
                module.register_forward_pre_hook(self.look)

    def look(self, _, inputs):
        x = inputs[0].detach().double()
        codes = x * 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        distance = ((codes - codes.floor()) - 0.5).abs().amin(-1)  # [batch, position]
        self.nearest = distance if self.nearest is None else torch.minimum(self.nearest, distance)


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens).reshape(-1, np.shape(tokens)[-1])).logits.float()


def choose_tokens(model, n_vocab, rng):
    """A sequence whose every row stays MARGIN away from every border."""
    margins = Margins(model)
    tokens = []
    for _ in range(N_TOKENS):
        margins.nearest = None
        logits_of(model, [tokens + [candidate] for candidate in range(n_vocab)])
        good = torch.flatten((margins.nearest[:, -1] >= MARGIN).nonzero()).tolist()
        if not good:
            sys.exit("make_bitnet_golden.py: no token keeps its distance; choose another seed")
        tokens.append(int(rng.choice(good)))
    return tokens


def write_expected(path, logits, tokens):
    n_vocab = logits.shape[1]
    out = [b"QSFGOLD1", struct.pack("<III", n_vocab, len(tokens), len(CASES)),
           struct.pack(f"<{len(tokens)}I", *tokens)]
    for prompt, n_rows in CASES:
        rows = logits[prompt - 1:prompt - 1 + n_rows]
        assert rows.shape[0] == n_rows
        out += [struct.pack("<II", prompt, n_rows), rows.numpy().astype("<f4").tobytes()]
    path.write_bytes(b"".join(out))


def write_folder(folder, weights, state, masters):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(weights.config, indent=2) + "\n")
    stored = {}
    for name, value in state.items():
        if name == "lm_head.weight" and weights.head is None:
            continue
        if masters is None and name.removesuffix(".weight") in weights.codes:
            value = weights.packed(name.removesuffix(".weight"))
        elif name == "model.embed_tokens.weight":
            value = value.half()
        else:
            value = value.to(torch.bfloat16)
        if weights.config["architectures"] == ["BitnetForCausalLM"]:
            name = name.replace("attn_sub_norm", "inner_attn_ln")
            name = name.replace("ffn_sub_norm", "ffn_layernorm")
        stored[name] = value.contiguous()
    safetensors.torch.save_file(stored, folder / "model.safetensors", {"format": "pt"})


GGUF_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
              "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
              "self_attn.attn_sub_norm": "attn_sub_norm", "self_attn.o_proj": "attn_output",
              "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.ffn_sub_norm": "ffn_sub_norm",
              "mlp.down_proj": "ffn_down"}


def write_gguf(path, weights, layout):
    kind, file_type, encode = bitnet_gguf.LAYOUTS[layout]
    config, arch = weights.config, "bitnet-b1.58"
    values = {
        "general.architecture": arch, "general.name": "golden",
        f"{arch}.vocab_size": config["vocab_size"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.rope.dimension_count": config["hidden_size"] // config["num_attention_heads"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{arch}.rope.freq_base": config["rope_theta"], "general.file_type": file_type,
        "general.quantization_version": 2,
    }
    embedding = weights.embedding.half().numpy()
    tensors = [("token_embd.weight", bitnet_gguf.F16, embedding.shape, embedding.tobytes())]
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours in GGUF_NAMES.items():
            name = f"model.layers.{layer}.{theirs}"
            if name in weights.vectors:
                norm = weights.vectors[name].numpy()
                entry = (bitnet_gguf.F32, norm.shape, norm.astype("<f4").tobytes())
            else:
                codes = weights.codes[name]
                entry = (kind, codes.shape, encode(codes, weights.scale(name)))
            tensors.append((f"blk.{layer}.{ours}.weight", *entry))
    norm = weights.vectors["model.norm"].numpy()
    tensors.append(("output_norm.weight", bitnet_gguf.F32, norm.shape, norm.tobytes()))
    bitnet_gguf.write_file(path, values, tensors)


def per_block(activation):
    """What an engine does that rounds activations in blocks of 32."""
    blocks = activation.float().unflatten(-1, (-1, 32))
    scale = 127 / blocks.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return ((blocks * scale).round() / scale).flatten(-2)


def faults(weights, state):
    """Yields (name, logits of a reference with the fault) for a sequence of tokens."""
    def run(tokens, changed=None, **config):
        return logits_of(reference(weights, changed or state, **config), tokens)[0]

    def with_scales(change):
        return {n: change(v) if n.endswith("weight_scale") else v for n, v in state.items()}

    yield "weight_scale inverted", lambda t: run(t, with_scales(lambda v: 1 / v))
    for kind in ("attn_sub_norm", "ffn_sub_norm"):
        if any(kind in name for name in state):
            def leave_out(tokens, kind=kind):
                model = reference(weights, state)
                for name, module in model.named_modules():
                    if name.endswith(kind):
                        module.forward = lambda x: x
                return logits_of(model, tokens)[0]
            yield f"{kind} left out", leave_out
    if weights.config["hidden_act"] == "relu2":
        yield "SiLU for squared ReLU", lambda t: run(t, hidden_act="silu")
        yield "ReLU for squared ReLU", lambda t: run(t, hidden_act="relu")

        def in_blocks(tokens):
            plain = hf_bitnet.ActQuant.apply
            hf_bitnet.ActQuant.apply = staticmethod(per_block)
            try:
                return run(tokens)
            finally:
                hf_bitnet.ActQuant.apply = plain
        yield "activation scale per block", in_blocks

        def floats(tokens):
            plain = hf_bitnet.ActQuant.apply
            hf_bitnet.ActQuant.apply = staticmethod(lambda x: x)
            try:
                return run(tokens)
            finally:
                hf_bitnet.ActQuant.apply = plain
        yield "activations not rounded", floats


def make(name, out, measured):
    seed = 7 if name == "masters" else 3 + len(name)
    if name == "packed":
        seed = 7  # the same weights
    weights = Weights(MODELS[name], seed)
    masters = None
    if name in ("masters", "bitnet_1bit"):
        masters = {linear: weights.masters(linear) for linear in weights.codes}
    state = parameters(weights, masters)
    model = reference(weights, state)
    tokens = choose_tokens(model, MODELS[name]["vocab_size"], np.random.default_rng(5))
    logits = logits_of(reference(weights, state), tokens)[0]
    write_folder(out / "bitnet" / name, weights, state, masters)
    write_expected(out / "bitnet" / name / "expected.bin", logits, tokens)
    largest = logits.abs().max().item()
    if masters is None:
        measured[name] = {}
        for fault, run in faults(weights, state):
            change = (run(tokens) - logits).abs().max().item() / largest
            measured[name][fault] = round(change, 4)
            if not change > MIN_FAULT:
                sys.exit(f"make_bitnet_golden.py: {name}: {fault} moves logits by {change:.1e} alone")
    if name == "wide":
        for layout in bitnet_gguf.LAYOUTS:
            write_gguf(out / "gguf" / "bitnet" / f"{layout}.gguf", weights, layout)
    print(f"{name}: largest logit {largest:.3f}", measured.get(name, ""), flush=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    measured = {}
    for name in MODELS:
        make(name, out, measured)
    (out / "bitnet" / "faults.json").write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
