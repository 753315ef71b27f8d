# SPDX-License-Identifier: MIT
"""Writes files of random LoRA adapters for tests, from docs/format-adapter.md alone."""

import random
import struct
import zlib

ALIGN = 64
RANK = 4
ATTN_Q, ATTN_O, FFN_DOWN = 0, 3, 6


def padded(data):
    return data + bytes(-len(data) % ALIGN)


def shapes_of(model):
    """Returns the number of layers of a .qsf file, and (kind, in, out) of some of their matrices."""
    with open(model, "rb") as file:
        header = file.read(128)
    layers, hidden, heads = struct.unpack_from("<3I", header, 16)
    ffn, head_dim = struct.unpack_from("<2I", header, 40)
    return layers, [(ATTN_Q, hidden, heads * head_dim), (ATTN_O, heads * head_dim, hidden),
                    (FFN_DOWN, ffn, hidden)]


def values(generator, count, deviation):
    return padded(struct.pack(f"<{count}f", *(generator.gauss(0, deviation) for _ in range(count))))


def write_adapter(path, model, name, seed, architecture="llama"):
    """Writes an adapter of any base that has the shapes of `model`; it changes products by about
    a half of what they are."""
    generator = random.Random(seed)
    layers, matrices = shapes_of(model)
    entries, data = b"", b""
    for layer in range(layers):
        for kind, n_in, n_out in matrices:
            pair = (values(generator, RANK * n_in, n_in ** -0.5) +
                    values(generator, n_out * RANK, 0.25))
            entries += struct.pack("<6If3I", kind, layer, 0, RANK, n_in, n_out, 1.0, 0,
                                   zlib.crc32(pair), 0)
            data += pair
    names = name.encode() + architecture.encode()
    front = padded(bytes(40) + names)
    end_of_front = len(padded(front + entries))
    head = struct.pack("<IQQII", layers * len(matrices), end_of_front + len(data), 0,
                       len(name.encode()), len(architecture))
    checked = padded(bytes(12) + head + front[40:] + entries)[12:]
    with open(path, "wb") as file:
        file.write(b"QSFA" + struct.pack("<II", 1, zlib.crc32(checked)) + checked + data)
