#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the models of testdata/mtp: tiny ones with a block for multi-token prediction.

    make_mtp_golden.py OUT_DIR

Each folder holds config.json, model.safetensors with the block behind the layers, a byte-level
tokenizer and expected.bin. transformers does not run such blocks. So the block is put together
here: its layer, last norm and head are a model of one layer of transformers, whose input is
eh_proj [enorm(embedding of the next token); hnorm(row)], with the row of the model behind its final
norm, or of the block behind its own where the model has none (DeepSeek-V3 report, section 2.2).

The model is random. The block is trained for some seconds to predict what the model says, so that
drafts are accepted; embedding and head are the model's (glm4_moe) or copies that differ a little
(deepseek_v3), as files have either. The former is there as a GGUF file too.

expected.bin, little-endian

  size                 field      meaning
  8                    magic      "QSFMTP01"
  4 + 4 + 4 + 4        vocab, hidden, n_tokens, n_drafts    u32
  4 * n_tokens         tokens     u32
  4 * n_tokens * hidden           rows of the model behind its final norm, f32
  then of block row i, made of row i and token i + 1, for n_tokens - 1 rows
  4 * vocab            logits     f32, of token i + 2
  4 * hidden           row        f32, behind the block's last norm
  then of the text and its most likely next token, n_drafts times
  4                    draft      u32, the most likely token, with the drafts before it
"""

import copy
import json
import pathlib
import struct
import sys

import numpy as np
import safetensors.torch
import torch

import make_gguf_golden
import make_golden_models as golden
from golden_expert_configs import glm4_moe_config
from golden_latent_configs import deepseek_v3_config
from golden_layouts import published_experts
from make_chat_model import byte_symbols

VOCAB, N_TOKENS, N_DRAFTS = 257, 40, 6
CONTEXT = 512
PROMPTS = ["A poor woodcutter lived", "The king said: ", "Once upon a time", "Of three sons"]
TRAINED_TOKENS, STEPS = 80, 250
MODELS = {
    "glm4_moe": (glm4_moe_config(VOCAB, max_position_embeddings=CONTEXT), 41),
    "deepseek_v3": (
        deepseek_v3_config(VOCAB, hidden_size=48, max_position_embeddings=CONTEXT,
                           num_nextn_predict_layers=1, rope_theta=100.0), 43),
}


class Block(torch.nn.Module):
    """The block: `one` has its layer, last norm and head."""

    def __init__(self, config):
        super().__init__()
        own = {**copy.deepcopy(config), "num_hidden_layers": 1, "first_k_dense_replace": 0}
        self.one = golden.new_model(own)
        eps = config["rms_norm_eps"]
        hidden = config["hidden_size"]
        self.enorm = torch.nn.RMSNorm(hidden, eps=eps)
        self.hnorm = torch.nn.RMSNorm(hidden, eps=eps)
        self.eh_proj = torch.nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, tokens, rows):
        """Returns (logits, rows behind the last norm) of tokens [n] behind rows [n, hidden]."""
        embedded = self.one.model.embed_tokens(tokens)
        joined = torch.cat([self.enorm(embedded), self.hnorm(rows)], dim=-1)
        out = self.one.model(inputs_embeds=self.eh_proj(joined)[None]).last_hidden_state[0]
        return self.one.lm_head(out), out


def rows_of(model, tokens):
    """Returns the rows of the model behind its final norm."""
    with torch.no_grad():
        return model.model(torch.as_tensor(tokens)[None]).last_hidden_state[0]


def said(model, prompt):
    """Returns a prompt and what the model says to it."""
    tokens = list(prompt.encode())
    with torch.no_grad():
        for _ in range(TRAINED_TOKENS):
            tokens.append(int(model(torch.tensor(tokens)[None]).logits[0, -1].argmax()))
    return torch.tensor(tokens)


def train(block, model):
    texts = [said(model, prompt) for prompt in PROMPTS]
    known = [(text, rows_of(model, text)) for text in texts]
    fixed = {id(block.one.model.embed_tokens.weight), id(block.one.lm_head.weight)}
    learned = [p for p in block.parameters() if id(p) not in fixed]
    optimiser = torch.optim.Adam(learned, lr=3e-3)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = sum(torch.nn.functional.cross_entropy(block(text[1:-1], rows[:-2])[0], text[2:])
                   for text, rows in known)
        loss.backward()
        optimiser.step()


def rounded(module):
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.copy_(tensor.to(torch.bfloat16))


def make_block(config, model, own_vocabulary, rng):
    block = Block(config)
    with torch.no_grad():
        for name, tensor in block.state_dict().items():
            plain = name.removeprefix("one.")
            tensor.copy_(golden.draw(plain, tuple(tensor.shape), config, rng))
        for own, of_model in ((block.one.model.embed_tokens, model.model.embed_tokens),
                              (block.one.lm_head, model.lm_head)):
            own.weight.copy_(of_model.weight)
            if own_vocabulary:
                own.weight += 0.02 * torch.randn(own.weight.shape)
    train(block, model)
    rounded(block)
    return block.eval()


def published(config, model, block, own_vocabulary):
    """Returns the tensors of model and block under their published names."""
    at = f"model.layers.{config['num_hidden_layers']}."
    state = dict(model.state_dict())
    for name, tensor in block.state_dict().items():
        if name.startswith("one.model.layers.0."):
            state[at + name.removeprefix("one.model.layers.0.")] = tensor
        elif not name.startswith("one."):
            state[at + name] = tensor
    state[at + "shared_head.norm.weight"] = block.one.model.norm.weight
    if own_vocabulary:
        state[at + "embed_tokens.weight"] = block.one.model.embed_tokens.weight
        state[at + "shared_head.head.weight"] = block.one.lm_head.weight
    state = {n: t.detach().to(torch.bfloat16).contiguous() for n, t in state.items()}
    return published_experts(config, state)


def tokenizer():
    bytes_alike = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                   "use_regex": True}
    end = {"id": 256, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": False, "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
            "normalizer": None, "pre_tokenizer": bytes_alike, "post_processor": None,
            "decoder": bytes_alike,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {symbol: byte for byte, symbol in enumerate(byte_symbols())},
                      "merges": []}}


def drafts_behind(block, rows, tokens, n_drafts):
    """Returns the most likely tokens behind tokens[n + 1), with the rows of tokens[n)."""
    drafts = []
    with torch.no_grad():
        for _ in range(n_drafts):
            logits, out = block(tokens[1:], rows)
            drafts.append(int(logits[-1].argmax()))
            tokens = torch.cat([tokens, torch.tensor(drafts[-1:])])
            rows = torch.cat([rows, out[-1:]])
    return drafts


def write_expected(path, model, block, tokens):
    rows = rows_of(model, tokens)
    with torch.no_grad():
        logits, out = block(tokens[1:], rows[:-1])
        last = model.lm_head(rows[-1]).argmax()
    drafts = drafts_behind(block, rows, torch.cat([tokens, last[None]]), N_DRAFTS)
    with open(path, "wb") as to:
        to.write(b"QSFMTP01")
        to.write(struct.pack("<IIII", VOCAB, rows.shape[1], len(tokens), N_DRAFTS))
        to.write(tokens.numpy().astype("<u4").tobytes())
        to.write(rows.numpy().astype("<f4").tobytes())
        for values in zip(logits, out):
            for value in values:
                to.write(value.numpy().astype("<f4").tobytes())
        to.write(struct.pack(f"<{N_DRAFTS}I", *drafts))


def make(name, folder):
    config, seed = MODELS[name]
    config = {**config, "eos_token_id": 256, "bos_token_id": None, "pad_token_id": None}
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    tokens = np.frombuffer(PROMPTS[0].encode(), np.uint8).astype(np.int64)
    tokens = np.concatenate([tokens, rng.integers(0, 256, N_TOKENS - len(tokens))])
    model = golden.random_model(config, {}, torch.bfloat16, tokens, rng)
    own_vocabulary = name == "deepseek_v3"
    block = make_block(config, model, own_vocabulary, rng)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()) + "\n")
    safetensors.torch.save_file(published(config, model, block, own_vocabulary),
                                folder / "model.safetensors", {"format": "pt"})
    write_expected(folder / "expected.bin", model, block, torch.from_numpy(tokens))
    if not own_vocabulary:
        make_gguf_golden.convert(folder, "glm4moe", folder.with_suffix(".gguf"))
    for prompt in PROMPTS:
        text = said(model, prompt)
        with torch.no_grad():
            right = block(text[1:-1], rows_of(model, text)[:-2])[0].argmax(-1) == text[2:]
        print(f"{name}: {right[len(prompt):].float().mean():.2f} of the tokens behind "
              f"\"{prompt}\" are predicted; {len(set(text[len(prompt):].tolist()))} different ones")


def main():
    torch.set_num_threads(1)
    for name in MODELS:
        make(name, pathlib.Path(sys.argv[1]) / name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
