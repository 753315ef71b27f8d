# SPDX-License-Identifier: MIT
"""gpt-oss as GGUF: what converters make of its experts."""

import numpy as np


def mxfp4_blocks(blocks, scales):
    """Returns blocks of 17 bytes, [experts, rows, bytes]: a scale, then byte j with element j below
    and j + 16 above, where the folder's byte b has element 2b below and 2b + 1 above."""
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    packed = codes[..., :16] | codes[..., 16:] << 4
    both = np.concatenate([scales[..., None], packed], axis=-1)
    return both.reshape(*both.shape[:2], -1)


def split_experts(tensors, names):
    """Puts gates and ups, which alternate, into tensors of their own, and matrices the right way.
    Returns the names of those that are bytes of MXFP4."""
    mxfp4 = set()

    def put(layer, kind, suffix, values):
        name = f"blk.{layer}.ffn_{kind}_exps.{suffix}"
        tensors[name], names[name] = np.ascontiguousarray(values), name

    for name in [name for name in tensors if ".mlp.experts." in name and not name.endswith("_scales")]:
        layer = name.split(".layers.")[1].split(".")[0]
        values = tensors.pop(name)
        if name.endswith("_blocks"):
            values = mxfp4_blocks(values, tensors.pop(name.removesuffix("_blocks") + "_scales"))
        elif not name.endswith("_bias"):
            values = values.swapaxes(1, 2)
        suffix = "bias" if name.endswith("_bias") else "weight"
        parts = {"down": values}
        if ".gate_up_proj" in name:
            parts = {"gate": values[:, 0::2], "up": values[:, 1::2]}
        for kind, part in parts.items():
            put(layer, kind, suffix, part)
            if name.endswith("_blocks"):
                mxfp4.add(f"blk.{layer}.ffn_{kind}_exps.{suffix}")
    for name in names:
        if name.endswith(".sinks"):
            names[name] += ".weight"
    return mxfp4
