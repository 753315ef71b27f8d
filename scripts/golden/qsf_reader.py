#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A second, tiny reader of .qsf files, written from docs/format.md and docs/format-blocks.md alone.

It shares no code with the C++ reader and needs nothing but Python's standard library (and, for
tensors compressed with ZSTD, the package zstandard or the system's libzstd). Slow and simple: it shows what the pages say
and serves to compare.

  qsf_reader.py FILE                      header, metadata, sections and tensors as JSON
  qsf_reader.py FILE --tensor layer.0/attn_q   the weights of one tensor, a row a line
"""

import argparse
import ctypes
import ctypes.util
import json
import struct
import sys
import zlib

try:
    import zstandard
except ImportError:
    zstandard = None

ALIGN = 4096
ONE_ROW = 0xFFFFFFFF
WEIGHT_TYPES = {0: "2bit-sym", 1: "2bit", 2: "3bit", 3: "4bit", 4: "ternary",
                6: "f32", 7: "f16", 8: "bf16", 9: "8bit", 10: "qk256", 11: "ternary-base3", 12: "ternary-row",
                13: "q2_k", 14: "q3_k", 15: "q5_k", 16: "q6_k", 17: "mxfp4",
                32: "2bit-super", 33: "3bit-super", 34: "4bit-super",
                35: "2bit-table", 36: "3bit-table", 37: "4bit-table", 38: "2bit-trellis", 39: "3bit-trellis"}
CODE_BITS = {0: 2, 1: 2, 2: 3, 3: 4, 4: 2, 6: 32, 7: 16, 8: 16, 9: 8, 10: 2, 11: 2, 12: 2, 13: 2, 14: 3, 15: 5,
             16: 6, 17: 4, 32: 2, 33: 3, 34: 4, 35: 2, 36: 3, 37: 4, 38: 2, 39: 3}
HAS_MIN = {1, 2, 3}
FLOATS = {6, 7, 8}
QK256, TERNARY_BASE3, TERNARY_ROW = 10, 11, 12
Q2_K, Q3_K, Q5_K, Q6_K = 13, 14, 15, 16
MXFP4 = 17
SUPER_CODES = {32: 1, 33: 2, 34: 3, Q5_K: Q5_K}  # the type whose codes the sub-blocks have
BYTE_CODES = {Q2_K: 1, Q3_K: 2, Q6_K: Q6_K}  # the same, of sub-blocks with one byte of fields
TABLE_CODES = {35: 1, 36: 2, 37: 3}  # the same, of tables
LEVELS = {35: (-127, -43, 18, 90), 36: (-127, -77, -45, -18, 7, 34, 65, 108),
          37: (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)}
TRELLIS_CODES = {38: 1, 39: 2}  # the same, of trellis types
TRELLIS_NEWEST = (11, 3, 12, 14, 15, 7, 8, 10, 3, 11, 4, 6, 7, 15, 0, 2)
TRELLIS_MIDDLE = (6, 5, 11, 14, 7, 3, 2, 12, 0, 4, 1, 8, 9, 13, 10, 15)
TRELLIS_OLDEST = (13, 9, 5, 12, 1, 11, 2, 4, 10, 8, 6, 15, 0, 7, 3, 14)
TRELLIS_LEVELS = {38: (0, 10, 15, 19, 22, 25, 27, 30, 33, 35, 38, 41, 44, 48, 53, 63),
                  39: (2, 8, 13, 16, 19, 21, 24, 26, 29, 31, 34, 36, 39, 42, 47, 54)}
FIXED_BLOCK = {6: 4, 7: 4, 8: 4, QK256: 64, TERNARY_BASE3: 80, TERNARY_ROW: 64, Q2_K: 16, Q3_K: 16, Q5_K: 32,
               Q6_K: 16, MXFP4: 32, 35: 16, 36: 16, 37: 32, 38: 64, 39: 64}
KINDS = {0: "attn_q", 1: "attn_k", 2: "attn_v", 3: "attn_o", 4: "ffn_gate", 5: "ffn_up",
         6: "ffn_down", 7: "attn_norm", 8: "ffn_norm", 9: "attn_q_bias", 10: "attn_k_bias",
         11: "attn_v_bias", 12: "attn_o_bias", 13: "ffn_biases", 16: "ffn_up_bias",
         17: "ffn_down_bias", 18: "ffn_gate_bias", 19: "attn_norm_bias", 20: "ffn_norm_bias",
         21: "q_norm", 22: "k_norm", 23: "attn_sub_norm", 24: "ffn_sub_norm", 25: "router",
         26: "expert_gate", 27: "expert_up", 28: "expert_down", 29: "attn_post_norm",
         30: "ffn_post_norm", 31: "token_embedding", 32: "position_embedding", 33: "embedding_norm", 34: "embedding_norm_bias",
         35: "final_norm", 36: "final_norm_bias", 37: "head", 38: "head_bias", 39: "shared_gate",
         40: "shared_up", 41: "shared_down", 42: "shared_weight", 43: "router_correction",
         48: "mixer_in", 49: "mixer_in_bias", 50: "mixer_out", 51: "mixer_out_bias",
         52: "conv_taps", 53: "conv_bias", 70: "latent_query", 71: "latent_query_norm",
         72: "latent_norm", 73: "latent_keys", 74: "latent_values", 75: "dense_up", 76: "dense_down",
         56: "attn_sinks", 57: "router_bias", 58: "expert_gate_bias", 59: "expert_up_bias",
         60: "expert_down_bias", 61: "scan_decay", 62: "scan_bias", 63: "scan_skip",
         64: "scan_norm", 80: "mixer_gate", 81: "delta_rate", 82: "delta_step",
         83: "delta_norm", 84: "attn_gate", 85: "laurel_norm", 90: "layer_scale", 91: "router_norm",
         92: "expert_scales", 93: "expert_norm", 94: "dense_post_norm", 95: "expert_post_norm",
         96: "layer_embedding", 97: "layer_input", 98: "layer_input_norm", 99: "layer_input_gate",
         100: "layer_input_out", 101: "layer_input_post_norm", 102: "stream_in",
         103: "stream_out", 104: "stream_router", 105: "stream_predict", 106: "stream_correct",
         107: "stream_scale", 108: "laurel_left", 109: "laurel_right", 110: "mtp_projection",
         111: "mtp_token_norm", 112: "mtp_hidden_norm"}
COMPRESSIONS = {0: "none", 1: "lz4", 2: "lz4hc", 3: "zstd"}
HEADER_FIELDS = [("architecture", 12, "I"), ("layers", 16, "I"), ("hidden", 20, "I"),
                 ("heads", 24, "I"), ("kv_heads", 28, "I"), ("vocabulary", 32, "I"),
                 ("positions", 36, "I"), ("ffn", 40, "I"), ("head_dim", 44, "I"),
                 ("weight_type", 48, "B"), ("activation", 49, "B"), ("norm", 50, "B"),
                 ("position_encoding", 51, "B"), ("rope_theta", 52, "f"),
                 ("layer_index_offset", 56, "Q"), ("embedding_offset", 64, "Q"),
                 ("final_offset", 72, "Q"), ("bos", 80, "I"), ("eos", 84, "I"), ("pad", 88, "I"),
                 ("file_bytes_low", 92, "I"), ("tokenizer_offset", 100, "Q"),
                 ("metadata_offset", 108, "Q"), ("block", 116, "H"), ("flags", 118, "H")]


class FormatError(Exception):
    """The file is not what docs/format.md describes."""


class MissingPackage(Exception):
    """A tensor needs a package that is not installed."""


def require(condition, message):
    if not condition:
        raise FormatError(message)


def unpack(data, offset, code):
    size = struct.calcsize("<" + code)
    require(offset + size <= len(data), f"field at byte {offset} passes the end")
    return struct.unpack_from("<" + code, data, offset)[0]


def round_up(value, to):
    return (value + to - 1) // to * to


def ceil_div(a, b):
    return (a + b - 1) // b


def decompress_lz4(data, raw_bytes):
    """One LZ4 block: sequences of literals and of copies from what was written before."""
    out = bytearray()
    at = 0

    def length(start, nibble):
        position, total = start, nibble
        if nibble == 15:
            while True:
                extra = data[position]
                position += 1
                total += extra
                if extra != 255:
                    break
        return position, total

    while at < len(data):
        token = data[at]
        at, n_literals = length(at + 1, token >> 4)
        out += data[at:at + n_literals]
        at += n_literals
        if at >= len(data):
            break
        distance = data[at] | data[at + 1] << 8
        at, n_copied = length(at + 2, token & 15)
        require(0 < distance <= len(out), "LZ4 copy from before the start")
        for _ in range(n_copied + 4):
            out.append(out[-distance])
    require(len(out) == raw_bytes, f"LZ4 gives {len(out)} bytes, expected {raw_bytes}")
    return bytes(out)


def decompress(compression, data, raw_bytes):
    if compression in (1, 2):
        return decompress_lz4(data, raw_bytes)
    if zstandard is not None:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=raw_bytes)
    return decompress_zstd_library(data, raw_bytes)


def decompress_zstd_library(data, raw_bytes):
    name = ctypes.util.find_library("zstd")
    if name is None:
        raise MissingPackage("neither zstandard nor libzstd is installed; ZSTD tiles cannot be read")
    function = ctypes.CDLL(name).ZSTD_decompress
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(raw_bytes)
    require(function(out, raw_bytes, data, len(data)) == raw_bytes, "ZSTD data are damaged")
    return out.raw


# Weights. Values are Python floats; f32() rounds once, as docs/format-blocks.md asks.

def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def element(weight_type, data, offset):
    if weight_type == 6:
        return struct.unpack_from("<f", data, offset)[0]
    if weight_type == 7:
        return struct.unpack_from("<e", data, offset)[0]
    return struct.unpack("<f", b"\0\0" + data[offset:offset + 2])[0]


def value_of(weight_type, scale, minimum, code):
    if weight_type == 0:
        return scale * (code - 1.5)
    if weight_type == 4:
        return scale * (code - 1)
    if weight_type == 9:
        return scale * (code - 256 if code > 127 else code)
    return f32(scale * code + minimum)


def code_bytes(weight_type, block):
    return block * CODE_BITS[weight_type] // 8


def super_head_bytes(block):
    return 4 + 256 // block * 3 // 2


def super_value(d_at, dmin_at, low, high, k, data, code):
    """The weight of sub-block k: `low` is its byte, `high` the number of all high bits."""
    scale = low & 15 | (high >> 4 * k & 3) << 4
    minimum = low >> 4 | (high >> 4 * k + 2 & 3) << 4
    d, dmin = struct.unpack_from("<e", data, d_at)[0], struct.unpack_from("<e", data, dmin_at)[0]
    return f32(d * scale * code + dmin * minimum)


def byte_head_bytes(weight_type):
    return 20 if weight_type == Q2_K else 18


def byte_value(weight_type, d_at, dmin_at, byte, data, code):
    """The weight of a sub-block whose fields are one byte."""
    d = struct.unpack_from("<e", data, d_at)[0]
    if weight_type == Q2_K:
        return f32(d * (byte & 15) * code + struct.unpack_from("<e", data, dmin_at)[0] * (byte >> 4))
    return d * (byte - 256 if byte > 127 else byte) * (code - (32 if weight_type == Q6_K else 4))


def table_head_bytes(block):
    return 10 if block == 16 else 8


def table_value(weight_type, d_at, low, high, k, data, code):
    """The weight of sub-block k: `low` is the number of four bytes that has its low bits, `high` that of the high ones."""
    if weight_type == 37:
        scale = low >> (4 * (k // 2) + 16 * (k % 2)) & 15 | (high >> (2 * (k // 2) + 8 * (k % 2)) & 3) << 4
        scale -= 64 if scale >= 32 else 0
    else:
        scale = low >> (8 * (k % 4) + 4 * (k // 4 % 2)) & 15
        scale -= 16 if scale >= 8 else 0
    return struct.unpack_from("<e", data, d_at)[0] * scale * LEVELS[weight_type][code]


def trellis_row(weight_type, scale_of, codes):
    """The weights of a row: scale_of(c) is that of column c, codes are those of all columns."""
    row, windows = [], [[0] * 6 for _ in range(4)]
    for c, code in enumerate(codes):
        symbol, refinement = (code, 0) if weight_type == 38 else (code >> 1, code & 1)
        s = windows[c % 4] = [symbol] + windows[c % 4][:5]
        level = TRELLIS_NEWEST[4 * s[0] + s[1]] ^ TRELLIS_MIDDLE[4 * s[2] + s[3]] ^ TRELLIS_OLDEST[4 * s[4] + s[5]]
        value = TRELLIS_LEVELS[weight_type][level] + 8 * refinement
        row.append(f32(scale_of(c) * (value - 31.5)))
    return row


def mxfp4_value(exponent, code):
    if exponent > 252:
        raise ValueError(f"an mxfp4 scale of {exponent}")
    value = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)[code % 8]
    return (value if code < 8 else 0.0 - value) * 2.0 ** (exponent - 127)


def row_major_row_bytes(weight_type, block, cols):
    if weight_type in FLOATS:
        return cols * CODE_BITS[weight_type] // 8
    if weight_type == MXFP4:
        return ceil_div(cols, 32) * 17
    if weight_type == QK256:
        return ceil_div(cols, 256) * 64
    if weight_type == TERNARY_ROW:
        return 4 + ceil_div(cols, 64) * 16
    if weight_type == TERNARY_BASE3:
        return 4 + ceil_div(cols, 80) * 16
    if weight_type in SUPER_CODES:
        return (ceil_div(cols, 256) * super_head_bytes(block) +
                ceil_div(cols, block) * code_bytes(weight_type, block))
    if weight_type in BYTE_CODES:
        return (ceil_div(cols, 256) * byte_head_bytes(weight_type) +
                ceil_div(cols, 16) * code_bytes(weight_type, 16))
    if weight_type in TABLE_CODES:
        return ceil_div(cols, 256) * table_head_bytes(block) + ceil_div(cols, block) * code_bytes(weight_type, block)
    if weight_type in TRELLIS_CODES:
        return 4 + 4 * ceil_div(cols, 512) + ceil_div(cols, 64) * code_bytes(weight_type, 64)
    head = 4 if weight_type in HAS_MIN else 2
    return ceil_div(cols, block) * (head + block * CODE_BITS[weight_type] // 8)


def plane_bit(data, offset, i):
    return data[offset + i // 8] >> (i % 8) & 1


def two_bits(data, offset, block, i):
    quarter = block // 4
    return data[offset + i % quarter] >> (2 * (i // quarter)) & 3


def row_major_code(weight_type, data, at, block, i):
    """Code i of the block whose packed codes start at `at`."""
    if weight_type in (0, 1):
        return two_bits(data, at, block, i)
    if weight_type == 2:
        return plane_bit(data, at, i) | two_bits(data, at + block // 8, block, i) << 1
    if weight_type == 3:
        half = block // 2
        return data[at + i % half] >> (4 * (i // half)) & 15
    if weight_type in (Q5_K, Q6_K):
        half = block // 2
        low = data[at + i % half] >> (4 * (i // half)) & 15
        high = plane_bit(data, at + half, i) if weight_type == Q5_K else two_bits(data, at + half, block, i)
        return low | high << 4
    if weight_type == 4:
        if plane_bit(data, at + block // 8, i):
            return 1
        return 0 if plane_bit(data, at, i) else 2
    return data[at + i]


def qk256_value(code):
    return (-2.0, -1.0, 1.0, 2.0)[code]


def base3_code(byte, t):
    """Code t of the five in a byte, the first in the highest place."""
    return byte * 243 // 256 // 3 ** (4 - t) % 3


def row_major_super_row(weight_type, block, cols, data, start):
    subs, size = 256 // block, code_bytes(weight_type, block)
    row = []
    for c in range(cols):
        at = start + c // 256 * (super_head_bytes(block) + subs * size)
        k = c % 256 // block
        high = int.from_bytes(data[at + 4 + subs:at + 4 + subs + subs // 2], "little")
        code = row_major_code(SUPER_CODES[weight_type], data,
                              at + super_head_bytes(block) + k * size, block, c % block)
        row.append(super_value(at, at + 2, data[at + 4 + k], high, k, data, code))
    return row


def row_major_byte_row(weight_type, cols, data, start):
    head, size = byte_head_bytes(weight_type), code_bytes(weight_type, 16)
    row = []
    for c in range(cols):
        at = start + c // 256 * (head + 16 * size)
        k = c % 256 // 16
        code = row_major_code(BYTE_CODES[weight_type], data, at + head + k * size, 16, c % 16)
        row.append(byte_value(weight_type, at, at + 2, data[at + head - 16 + k], data, code))
    return row


def row_major_table_row(weight_type, block, cols, data, start):
    head, size = table_head_bytes(block), code_bytes(weight_type, block)
    row = []
    for c in range(cols):
        at = start + c // 256 * (head + 256 // block * size)
        k = c % 256 // block
        low = unpack(data, at + 4 if block == 32 else at + 2 + k // 8 * 4, "I")
        code = row_major_code(TABLE_CODES[weight_type], data, at + head + k * size, block, c % block)
        row.append(table_value(weight_type, at, low, unpack(data, at + 2, "H"), k, data, code))
    return row


def row_major_trellis_row(weight_type, cols, data, start):
    size = code_bytes(weight_type, 64)

    def word_at(c):
        return start + 4 + c // 512 * (4 + 8 * size)

    def scale_of(c):
        return f32(unpack(data, start, "f") * (unpack(data, word_at(c), "I") >> 4 * (c // 64 % 8) & 15))

    codes = [row_major_code(TRELLIS_CODES[weight_type], data, word_at(c) + 4 + c // 64 % 8 * size, 64, c % 64)
             for c in range(cols)]
    return trellis_row(weight_type, scale_of, codes)


def row_major_row(weight_type, block, cols, data, start):
    if weight_type in FLOATS:
        size = CODE_BITS[weight_type] // 8
        return [element(weight_type, data, start + c * size) for c in range(cols)]
    if weight_type == QK256:
        return [qk256_value(data[start + c // 4] >> 2 * (c % 4) & 3) for c in range(cols)]
    if weight_type == TERNARY_ROW:
        scale = struct.unpack_from("<f", data, start)[0]
        return [scale * (two_bits(data, start + 4 + c // 64 * 16, 64, c % 64) - 1)
                for c in range(cols)]
    if weight_type == TERNARY_BASE3:
        scale = struct.unpack_from("<f", data, start)[0]
        return [scale * (base3_code(data[start + 4 + c // 80 * 16 + c % 16], c % 80 // 16) - 1)
                for c in range(cols)]
    if weight_type == MXFP4:
        return [mxfp4_value(data[start + c // 32 * 17], row_major_code(3, data, start + c // 32 * 17 + 1, 32, c % 32))
                for c in range(cols)]
    if weight_type in SUPER_CODES:
        return row_major_super_row(weight_type, block, cols, data, start)
    if weight_type in BYTE_CODES:
        return row_major_byte_row(weight_type, cols, data, start)
    if weight_type in TABLE_CODES:
        return row_major_table_row(weight_type, block, cols, data, start)
    if weight_type in TRELLIS_CODES:
        return row_major_trellis_row(weight_type, cols, data, start)
    head = 4 if weight_type in HAS_MIN else 2
    block_bytes = head + block * CODE_BITS[weight_type] // 8
    row = []
    for c in range(cols):
        at = start + c // block * block_bytes
        scale = struct.unpack_from("<e", data, at)[0]
        minimum = struct.unpack_from("<e", data, at + 2)[0] if weight_type in HAS_MIN else 0.0
        code = row_major_code(weight_type, data, at + head, block, c % block)
        row.append(value_of(weight_type, scale, minimum, code))
    return row


def line_code(bits, data, lines, r, c):
    """The code of row r, column c (counted from the first line) in lines of `bits`-bit codes."""
    columns = 32 // bits
    line = lines + c // columns * 64
    c %= columns
    return data[line + 4 * r + c % 4] >> (bits * (c // 4)) & ((1 << bits) - 1)


def group_bytes(weight_type, block, cols):
    if weight_type in FLOATS:
        return round_up(cols, 4) * CODE_BITS[weight_type] // 8 * 16
    blocks = ceil_div(cols, block)
    if weight_type == MXFP4:
        return blocks * 256 + ceil_div(blocks, 4) * 64
    lines = 16 * block * CODE_BITS[weight_type] // 8
    if weight_type in (QK256, TERNARY_ROW):
        return blocks * 256 + (64 if weight_type == TERNARY_ROW else 0)
    if weight_type == TERNARY_BASE3:
        return 64 + blocks * 256
    if weight_type in SUPER_CODES:
        supers = ceil_div(cols, 256)
        return blocks * lines + (supers * 256 if block == 32 else
                                 supers * 128 + ceil_div(supers, 2) * 64)
    if weight_type in BYTE_CODES:
        supers = ceil_div(cols, 256)
        fields = supers * 5 if weight_type == Q2_K else supers * 4 + ceil_div(supers, 2)
        return ceil_div(cols, 64) * 4 * lines + fields * 64
    if weight_type in TRELLIS_CODES:
        return 64 + 64 * ceil_div(cols, 512) + ceil_div(cols, 64) * 16 * code_bytes(weight_type, 64)
    if weight_type in TABLE_CODES:
        supers = ceil_div(cols, 256)
        fields = supers * 2 + (ceil_div(supers, 2) if block == 16 else 0)
        return ceil_div(cols, 64) * (64 // block) * lines + fields * 64
    if weight_type in HAS_MIN:
        return blocks * (64 + lines)
    return blocks * lines + ceil_div(blocks, 2) * 64


def block_code(weight_type, block, data, codes, r, i):
    """Column i of row r of the block whose code lines begin at `codes`."""
    if CODE_BITS[weight_type] == 3:
        return (line_code(2, data, codes, r, i) << 1 |
                line_code(1, data, codes + block // 16 * 64, r, i))
    if weight_type in (Q5_K, Q6_K):
        return (line_code(4, data, codes, r, i) |
                line_code(CODE_BITS[weight_type] - 4, data, codes + block // 8 * 64, r, i) << 4)
    return line_code(CODE_BITS[weight_type], data, codes, r, i)


def group_super_row(weight_type, block, cols, data, start, r):
    subs = 256 // block
    lines = 16 * code_bytes(weight_type, block)
    row = []
    for c in range(cols):
        s, k = c // 256, c % 256 // block
        if block == 32:
            line_d = start + s * (256 + subs * lines)
            codes = line_d + 256
            high = int.from_bytes(data[line_d + 192 + 4 * r:line_d + 196 + 4 * r], "little")
        else:
            line_h = start + s // 2 * (64 + 2 * (128 + subs * lines))
            line_d = line_h + 64 + s % 2 * (128 + subs * lines)
            codes = line_d + 128
            at = line_h + s % 2 * 32 + 2 * r
            high = int.from_bytes(data[at:at + 2], "little")
        low = data[line_d + 64 + k // 4 * 64 + 4 * r + k % 4]
        code = block_code(weight_type, block, data, codes + k * lines, r, c % block)
        row.append(super_value(line_d + 2 * r, line_d + 32 + 2 * r, low, high, k, data, code))
    return row


def group_byte_row(weight_type, cols, data, start, r):
    lines = 16 * code_bytes(weight_type, 16)
    unit = 4 * 64 + 16 * lines  # of a super-block, behind its line of d
    row = []
    for c in range(cols):
        s, k = c // 256, c % 256 // 16
        if weight_type == Q2_K:
            d_at = start + s * (64 + unit) + 2 * r
            fields = d_at - 2 * r + 64
        else:
            pair = start + s // 2 * (64 + 2 * unit)
            d_at = pair + s % 2 * 32 + 2 * r
            fields = pair + 64 + s % 2 * unit
        codes = fields + 256 + k * lines
        if weight_type == Q3_K:  # lines of a pair of sub-blocks
            code = block_code(2, 32, data, codes - k % 2 * lines, r, k % 2 * 16 + c % 16)
        else:
            code = block_code(weight_type, 16, data, codes, r, c % 16)
        row.append(byte_value(weight_type, d_at, d_at + 32, data[fields + k // 4 * 64 + 4 * r + k % 4], data, code))
    return row


def group_table_row(weight_type, block, cols, data, start, r):
    lines = 16 * code_bytes(weight_type, block)
    unit = 128 + 256 // block * lines  # of a super-block, where block is 16 behind its line of d
    row = []
    for c in range(cols):
        s, k = c // 256, c % 256 // block
        if block == 32:
            d_at = start + s * unit + 2 * r
            low_at, high = d_at - 2 * r + 64 + 4 * r, unpack(data, d_at + 32, "H")
            codes = d_at - 2 * r + 128 + k * lines
        else:
            pair = start + s // 2 * (64 + 2 * unit)
            fields = pair + 64 + s % 2 * unit
            d_at, low_at, high = pair + s % 2 * 32 + 2 * r, fields + k // 8 * 64 + 4 * r, 0
            codes = fields + 128 + k * lines
        if weight_type == 36:  # lines of a pair of sub-blocks
            code = block_code(2, 32, data, codes - k % 2 * lines, r, k % 2 * 16 + c % 16)
        else:
            code = line_code(CODE_BITS[weight_type], data, codes, r, c % block)
        row.append(table_value(weight_type, d_at, unpack(data, low_at, "I"), high, k, data, code))
    return row


def group_trellis_row(weight_type, cols, data, start, r):
    lines = 16 * code_bytes(weight_type, 64)

    def line_at(c):
        return start + 64 + c // 512 * (64 + 8 * lines)

    def scale_of(c):
        word = unpack(data, line_at(c) + 4 * r, "I")
        return f32(unpack(data, start + 4 * r, "f") * (word >> 4 * (c // 64 % 8) & 15))

    codes = [block_code(TRELLIS_CODES[weight_type], 64, data, line_at(c) + 64 + c // 64 % 8 * lines, r, c % 64)
             for c in range(cols)]
    return trellis_row(weight_type, scale_of, codes)


def group_row(weight_type, block, cols, data, start, r):
    if weight_type == QK256:
        return [qk256_value(line_code(2, data, start, r, c)) for c in range(cols)]
    if weight_type == TERNARY_ROW:
        scale = struct.unpack_from("<f", data, start + 4 * r)[0]
        return [scale * (line_code(2, data, start + 64, r, c) - 1) for c in range(cols)]
    if weight_type == TERNARY_BASE3:
        scale = struct.unpack_from("<f", data, start + 4 * r)[0]
        return [scale * (base3_code(data[start + 64 + c // 80 * 256 + c % 16 // 4 * 64 + 4 * r + c % 4],
                                    c % 80 // 16) - 1)
                for c in range(cols)]
    if weight_type == MXFP4:
        row = []
        for c in range(cols):
            four, k = start + c // 128 * (64 + 4 * 256), c % 128 // 32
            row.append(mxfp4_value(data[four + 4 * r + k], line_code(4, data, four + 64 + k * 256, r, c % 32)))
        return row
    if weight_type in SUPER_CODES:
        return group_super_row(weight_type, block, cols, data, start, r)
    if weight_type in BYTE_CODES:
        return group_byte_row(weight_type, cols, data, start, r)
    if weight_type in TABLE_CODES:
        return group_table_row(weight_type, block, cols, data, start, r)
    if weight_type in TRELLIS_CODES:
        return group_trellis_row(weight_type, cols, data, start, r)
    if weight_type in FLOATS:
        size = CODE_BITS[weight_type] // 8
        per_line = 4 // size
        return [element(weight_type, data, start + c // per_line * 64 + 4 * r + c % per_line * size)
                for c in range(cols)]
    lines = 16 * block * CODE_BITS[weight_type] // 8
    row = []
    for c in range(cols):
        b, i = c // block, c % block
        if weight_type in HAS_MIN:
            base = start + b * (64 + lines)
            scale = struct.unpack_from("<e", data, base + 2 * r)[0]
            minimum = struct.unpack_from("<e", data, base + 32 + 2 * r)[0]
            codes = base + 64
        else:
            base = start + b // 2 * (64 + 2 * lines)
            scale = struct.unpack_from("<e", data, base + b % 2 * 32 + 2 * r)[0]
            minimum = 0.0
            codes = base + 64 + b % 2 * lines
        code = block_code(weight_type, block, data, codes, r, i)
        row.append(value_of(weight_type, scale, minimum, code))
    return row


class QsfFile:
    def __init__(self, data):
        self.data = data
        self.read_header()
        self.read_metadata()
        self.read_sections()

    def read_header(self):
        data = self.data
        require(data[:4] == b"QSF1", "not a QSF file")
        require(unpack(data, 4, "I") == 1, f"format version {unpack(data, 4, 'I')}")
        require(unpack(data, 8, "I") == 128, "header size")
        require(zlib.crc32(data[:96]) == unpack(data, 96, "I"), "header CRC")
        require(zlib.crc32(data[100:120]) == unpack(data, 120, "I"), "second header CRC")
        require(data[124:128] == bytes(4), "reserved header bytes")
        self.header = {name: unpack(data, offset, code) for name, offset, code in HEADER_FIELDS}
        self.header["kv_heads"] = self.header["kv_heads"] or self.header["heads"]
        self.header["block"] = self.header["block"] or 64
        require(len(data) % ALIGN == 0, "file length")
        require(self.header["file_bytes_low"] == len(data) & 0xFFFFFFFF, "file size")

    def read_metadata(self):
        data, start = self.data, self.header["metadata_offset"]
        crc, payload, n_keys, n_sections = struct.unpack_from("<IIII", data, start)
        end = start + 16 + payload
        require(zlib.crc32(data[start + 4:end]) == crc, "metadata CRC")
        at = start + 16
        self.metadata = {}
        for _ in range(n_keys):
            key_bytes, value_type, _flags, value_bytes = struct.unpack_from("<HBBI", data, at)
            at += 8
            key = data[at:at + key_bytes].decode()
            value = data[at + key_bytes:at + key_bytes + value_bytes]
            at += key_bytes + value_bytes
            self.metadata[key] = self.metadata_value(value_type, value)
        require(self.metadata["file.bytes"] == len(data), "file.bytes")
        self.section_entries = {}
        for _ in range(n_sections):
            name = data[at:at + 32].rstrip(b"\0").decode()
            fields = struct.unpack_from("<QQIIIBBH", data, at + 32)
            self.section_entries[name] = dict(zip(
                ("offset", "bytes", "crc", "flags", "tensors", "compression", "type"), fields))
            at += 64
        require(at == end, "bytes after the section directory")

    @staticmethod
    def metadata_value(value_type, value):
        scalars = {2: "<I", 3: "<Q", 4: "<f"}
        if value_type == 1:
            return value != b"\0"
        if value_type in scalars:
            return struct.unpack(scalars[value_type], value)[0]
        if value_type == 5:
            return value.decode()
        if value_type in (6, 7):
            return list(struct.unpack(f"<{len(value) // 4}{'I' if value_type == 6 else 'f'}", value))
        return value.hex()

    def read_sections(self):
        entries, header = self.section_entries, self.header
        for name, field in (("layer_index", "layer_index_offset"),
                            ("embedding", "embedding_offset"), ("final", "final_offset")):
            require(entries[name]["offset"] == header[field], f"offset of {name}")
        for name, entry in entries.items():
            stored = self.data[entry["offset"]:entry["offset"] + entry["bytes"]]
            require(zlib.crc32(stored) == entry["crc"], f"CRC of section {name}")
        self.sections = {"embedding": self.read_tensors("embedding", entries["embedding"])}
        for layer in range(header["layers"]):
            at = header["layer_index_offset"] + 32 * layer
            offset, stored, raw, weight_type, compression, tensors, crc, importance, high, raw_high = (
                struct.unpack_from("<QIIBBHIfHH", self.data, at))
            entry = {"offset": offset, "bytes": stored | high << 32, "crc": crc, "type": weight_type,
                     "tensors": tensors, "compression": compression, "importance": importance}
            data = self.data[offset:offset + entry["bytes"]]
            require(zlib.crc32(data) == crc, f"CRC of layer {layer}")
            section = self.read_tensors(f"layer.{layer}", entry)
            require(sum(t["raw"] for t in section["tiles"]) == raw | raw_high << 32,
                    f"raw size of layer {layer}")
            self.sections[f"layer.{layer}"] = section
        self.sections["final"] = self.read_tensors("final", entries["final"])

    def read_tensors(self, name, entry):
        data, start = self.data, entry["offset"]
        tensors, at = [], start
        for _ in range(entry["tensors"]):
            kind, rows, cols, weight_type, layout, expert = struct.unpack_from("<IIIBBH", data, at)
            weight_type = entry["type"] if weight_type == 0xFF else weight_type
            require(kind in KINDS and weight_type in WEIGHT_TYPES, f"{name}: code not known")
            require(layout & 15 < 2 and layout >> 4 < 5, f"{name}: layout not known")
            block = 16 << (layout >> 4) if layout >> 4 else self.header["block"]
            require(weight_type not in FIXED_BLOCK or layout >> 4 == 0, f"{name}: block size")
            require(weight_type not in SUPER_CODES or block in (32, 64), f"{name}: block size")
            tensors.append({"kind": KINDS[kind], "rows": rows, "cols": cols, "type": weight_type,
                            "layout": layout & 15, "expert": expert,
                            "block": FIXED_BLOCK.get(weight_type, block)})
            at += 16
        n_tiles = unpack(data, at, "I")
        at += 4
        names = ("offset", "stored", "raw", "crc", "tensor", "first_row", "rows")
        tiles = []
        for _ in range(n_tiles):
            tiles.append(dict(zip(names, struct.unpack_from("<QIIIIII", data, at))))
            at += 32
        require(zlib.crc32(data[start:at]) == unpack(data, at, "I"), f"{name}: directory CRC")
        end = at + 4 - start
        for tile in tiles:
            require(tile["offset"] == round_up(end, ALIGN), f"{name}: place of a tile")
            end = tile["offset"] + tile["stored"]
            tile["offset"] += start
        require(end == entry["bytes"], f"{name}: end of the last tile")
        return {"compression": entry["compression"], "importance": entry.get("importance", 0.0),
                "tensors": tensors, "tiles": tiles}

    def tile_data(self, section, tile):
        data = self.data[tile["offset"]:tile["offset"] + tile["stored"]]
        require(zlib.crc32(data) == tile["crc"], f"CRC of the tile at {tile['offset']}")
        if tile["stored"] == tile["raw"]:
            return data
        return decompress(section["compression"], data, tile["raw"])

    def values(self, section_name, index):
        """Rows of a tensor as lists of floats."""
        section = self.sections[section_name]
        tensor = section["tensors"][index]
        shape = tensor["type"], tensor["block"], tensor["cols"]
        rows = []
        for tile in section["tiles"]:
            if tile["tensor"] == ONE_ROW and tensor["rows"] == 1:
                offset = sum(round_up(row_major_row_bytes(t["type"], t["block"], t["cols"]), 64)
                             for t in section["tensors"][:index] if t["rows"] == 1)
                rows.append(row_major_row(*shape, self.tile_data(section, tile), offset))
            if tile["tensor"] != index:
                continue
            require(tile["first_row"] == len(rows), f"{section_name}: order of tiles")
            data = self.tile_data(section, tile)
            for r in range(tile["rows"]):
                if tensor["layout"] == 0:
                    rows.append(row_major_row(*shape, data, r * row_major_row_bytes(*shape)))
                else:
                    rows.append(group_row(*shape, data, r // 16 * group_bytes(*shape), r % 16))
        require(len(rows) == tensor["rows"], f"{section_name}: rows missing")
        return rows

    def describe(self):
        sections = {}
        for name, section in self.sections.items():
            tensors = [dict(t, type=WEIGHT_TYPES[t["type"]]) for t in section["tensors"]]
            sections[name] = {"compression": COMPRESSIONS[section["compression"]],
                              "importance": section["importance"],
                              "tiles": len(section["tiles"]), "tensors": tensors}
        return {"header": self.header, "metadata": self.metadata, "sections": sections}


def main():
    parser = argparse.ArgumentParser(description="Reads a .qsf file, slowly and independently.")
    parser.add_argument("file")
    parser.add_argument("--tensor", metavar="SECTION/KIND[/EXPERT]", help="print a tensor's weights")
    options = parser.parse_args()
    try:
        with open(options.file, "rb") as file:
            qsf = QsfFile(file.read())
        if options.tensor is None:
            json.dump(qsf.describe(), sys.stdout, indent=1)
            print()
            return 0
        section, kind, *expert = options.tensor.split("/")
        for index, tensor in enumerate(qsf.sections.get(section, {"tensors": []})["tensors"]):
            if tensor["kind"] == kind and tensor["expert"] == int(expert[0] if expert else 0):
                for row in qsf.values(section, index):
                    print(*(f"{value:.9g}" for value in row))
                return 0
        raise FormatError(f"there is no tensor {options.tensor}")
    except (FormatError, MissingPackage, OSError, struct.error) as error:
        print(f"qsf_reader.py: {options.file}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
