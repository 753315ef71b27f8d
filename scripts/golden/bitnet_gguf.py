# SPDX-License-Identifier: MIT
"""Writers of ternary models as GGUF: I2_S in its three byte orders, TQ1_0, TQ2_0 and IQ2_BN.

No library writes all of these types, so the bytes are written here. A ternary matrix is an array of codes 0, 1 and
2 (weights -1, 0 and 1 times the scale), [rows, columns], and one scale.
"""

import struct

import numpy as np

F32, F16, TQ1_0, TQ2_0, I2_S, IQ2_BN = 0, 1, 34, 35, 36, 135
ALIGNMENT = 32


def pack(fields, shifts):
    """Joins codes [..., fields, bytes] into bytes, the first field at the first shift."""
    out = np.zeros(fields.shape[:-2] + fields.shape[-1:], dtype=np.uint8)
    for index, shift in enumerate(shifts):
        out |= fields[..., index, :].astype(np.uint8) << np.uint8(shift)
    return out


def with_scale(packed, scale):
    """Behind all codes of an I2_S tensor stand its scale and 28 bytes of nothing."""
    return packed.tobytes() + struct.pack("<f", scale) + bytes(28)


def i2s_a(codes, scale):
    """Groups of 128: the order of every published file."""
    return with_scale(pack(codes.reshape(-1, 4, 32), (6, 4, 2, 0)), scale)


def i2s_b(codes, scale):
    """Groups of 64: what ARM machines have written since November 2025."""
    return with_scale(pack(codes.reshape(-1, 4, 16), (6, 4, 2, 0)), scale)


def i2s_c(codes, scale):
    """A byte holds one column of four rows: x86 without parallel activations."""
    rows, cols = codes.shape
    return with_scale(pack(codes.reshape(rows // 4, 4, cols), (6, 4, 2, 0)), scale)


def tq2_0(codes, scale):
    rows, cols = codes.shape
    packed = pack(codes.reshape(rows, cols // 256, 2, 4, 32), (0, 2, 4, 6)).reshape(rows, -1, 64)
    return block_scales(packed, scale)


def trits(codes):
    """Five codes [..., 5, bytes] to a byte, the first one the most significant."""
    value = np.zeros(codes.shape[:-2] + codes.shape[-1:], dtype=np.int64)
    for index in range(5):
        value = value * 3 + (codes[..., index, :] if index < codes.shape[-2] else 0)
    return ((value * 256 + 242) // 243).astype(np.uint8)


def tq1_0(codes, scale):
    rows, cols = codes.shape
    blocks = codes.reshape(rows, cols // 256, 256)
    packed = np.concatenate([trits(blocks[..., :160].reshape(rows, -1, 5, 32)),
                             trits(blocks[..., 160:240].reshape(rows, -1, 5, 16)),
                             trits(blocks[..., 240:].reshape(rows, -1, 4, 4))], axis=-1)
    return block_scales(packed, scale)


def block_scales(packed, scale):
    half = np.frombuffer(np.float16(scale).tobytes(), dtype=np.uint8)
    halves = np.broadcast_to(half, packed.shape[:-1] + (2,))
    return np.concatenate([packed, halves], axis=-1).tobytes()


def iq2_bn(codes, scale):
    rows, cols = codes.shape
    packed = pack(codes.reshape(rows, cols // 64, 4, 16), (0, 2, 4, 6)).reshape(rows, -1)
    head = np.frombuffer(struct.pack("<f", scale), dtype=np.uint8)
    return np.concatenate([np.broadcast_to(head, (rows, 4)), packed], axis=-1).tobytes()


# name of the file: (tensor type, general.file_type, writer)
LAYOUTS = {"i2s_a": (I2_S, 40, i2s_a), "i2s_b": (I2_S, 40, i2s_b), "i2s_c": (I2_S, 40, i2s_c),
           "tq1_0": (TQ1_0, 36, tq1_0), "tq2_0": (TQ2_0, 37, tq2_0),
           "iq2_bn": (IQ2_BN, 137, iq2_bn)}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key_value(key, value):
    """u32 for int, f32 for float, bool, string, and arrays of them."""
    def kind(v):
        return {bool: 7, int: 4, float: 6, str: 8}[type(v)]

    def body(v):
        if isinstance(v, str):
            return text(v)
        return struct.pack({bool: "<?", int: "<I", float: "<f"}[type(v)], v)

    if isinstance(value, list):
        head = struct.pack("<IIQ", 9, kind(value[0]), len(value))
        return text(key) + head + b"".join(body(v) for v in value)
    return text(key) + struct.pack("<I", kind(value)) + body(value)


def write_file(path, values, tensors):
    """Writes GGUF v3. values: {key: value}; tensors: [(name, type, shape of rows first, bytes)]."""
    head = struct.pack("<4sIqq", b"GGUF", 3, len(tensors), len(values))
    head += b"".join(key_value(k, v) for k, v in values.items())
    data, offset = [], 0
    for name, kind, shape, content in tensors:
        sizes = struct.pack(f"<I{len(shape)}q", len(shape), *reversed(shape))
        head += text(name) + sizes + struct.pack("<IQ", kind, offset)
        data += [content, bytes(-len(content) % ALIGNMENT)]
        offset += len(content) + len(data[-1])
    head += bytes(-len(head) % ALIGNMENT)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"".join(data))
