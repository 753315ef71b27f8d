# SPDX-License-Identifier: MIT
"""Rotations folded into the weights of a LLaMA-shaped model of train_model.py, which change no output. Needs torch.

Two are possible without any work at run time. The residual stream: what its vectors are multiplied with is orthogonal, so
that RMSNorm does not notice once its gains stand in the matrices behind it (SliceGPT, Ashkboos et al., 2024; QuaRot,
Ashkboos et al., 2024). The values of a head: attention sums them, and the output matrix takes them back. A rotation is
a Hadamard matrix over blocks of columns after signs that a seed draws.
"""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Rotation:
    """stream: columns of a block of the residual stream's rotation, 0: none; values: whether heads' values are rotated;
    seed: of its signs."""

    stream: int = 0
    values: bool = False
    seed: int = 1

    @property
    def name(self):
        parts = [f"stream by {self.stream}"] if self.stream else []
        return " and ".join(parts + (["values"] if self.values else [])) or "none"


def block_of(n_columns, most):
    """Returns the largest power of two that divides n_columns and is at most `most`."""
    block = 1
    while 2 * block <= most and n_columns % (2 * block) == 0:
        block *= 2
    return block


def signs_of(n_columns, seed):
    draw = torch.randint(0, 2, (n_columns,), generator=torch.Generator().manual_seed(seed))
    return 2.0 * draw.double() - 1


def hadamard_rows(vectors, block, seed=1):
    """Returns the rows of vectors [n, columns] rotated: signs, then a Hadamard matrix over each block of columns."""
    n_columns = vectors.shape[1]
    x = vectors.double() * signs_of(n_columns, seed)
    stride = 1
    while stride < block:
        x = x.reshape(-1, n_columns // (2 * stride), 2, stride)
        x = torch.stack((x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]), 2)
        stride *= 2
    return x.reshape(vectors.shape) / block ** 0.5


def rotate_values(layer, head_dim, seed):
    """Rotates what the value matrix of a layer gives, head by head, and takes it back in the output matrix."""
    attention = layer.self_attn
    block = block_of(head_dim, head_dim)
    values = attention.v_proj.weight
    heads = values.double().reshape(-1, head_dim, values.shape[1]).transpose(1, 2)
    turned = hadamard_rows(heads.reshape(-1, head_dim), block, seed).reshape(heads.shape)
    values.copy_(turned.transpose(1, 2).reshape(values.shape))
    out = attention.o_proj.weight
    out.copy_(hadamard_rows(out.reshape(-1, head_dim), block, seed).reshape(out.shape))


def rotate_stream(model, most, seed):
    """Rotates the residual stream in blocks of at most `most` columns. A head that is the embedding becomes a matrix of
    its own, since the gains of the last norm go into the one and not into the other."""
    block = block_of(model.config["hidden_size"], most)
    embedding = model.model.embed_tokens.weight
    if model.config["tie_word_embeddings"]:
        model.lm_head = torch.nn.Linear(embedding.shape[1], embedding.shape[0], bias=False)
        model.lm_head.weight.copy_(embedding)
        model.config = {**model.config, "tie_word_embeddings": False}

    def read_by(matrices, norm):
        for matrix in matrices:
            matrix.weight.copy_(hadamard_rows(matrix.weight.double() * norm.weight.double(), block, seed))
        norm.weight.fill_(1)

    embedding.copy_(hadamard_rows(embedding, block, seed))
    for layer in model.model.layers:
        attention, ffn = layer.self_attn, layer.mlp
        read_by((attention.q_proj, attention.k_proj, attention.v_proj), layer.input_layernorm)
        read_by((ffn.gate_proj, ffn.up_proj), layer.post_attention_layernorm)
        for writer in (attention.o_proj, ffn.down_proj):
            writer.weight.copy_(hadamard_rows(writer.weight.T, block, seed).T)
    read_by((model.lm_head,), model.model.norm)


def plant_outliers(model, factor=16.0):
    """Makes columns of matrices outliers without changing an output, as larger models have them and the bundled one has
    not: two gains of every norm in front of a layer's matrices `factor` times as large and the columns that read them as
    much smaller; two columns of the values of every KV head as much larger and those of the output matrix smaller."""
    for layer in model.model.layers:
        attention, ffn = layer.self_attn, layer.mlp
        for norm, readers in ((layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
                              (layer.post_attention_layernorm, (ffn.gate_proj, ffn.up_proj))):
            columns = [norm.weight.numel() // 16 + 1, norm.weight.numel() // 2 + 2]
            norm.weight[columns] *= factor
            for reader in readers:
                reader.weight[:, columns] /= factor
        head_dim = attention.head_dim
        for column in (head_dim // 8 + 1, head_dim // 2 + 2):
            attention.v_proj.weight[column::head_dim] *= factor
            attention.o_proj.weight[:, column::head_dim] /= factor


def rotate(model, rotation):
    """Folds a rotation into the weights of `model`."""
    if rotation.values:
        for layer in model.model.layers:
            rotate_values(layer, layer.self_attn.head_dim, rotation.seed + 1)
    if rotation.stream:
        rotate_stream(model, rotation.stream, rotation.seed)
