# SPDX-License-Identifier: MIT
"""Arithmetic of compare_quantisers.py and study_block_choices.py: bits of weights, losses of windows, standard errors.

Nothing here runs a model or needs more than Python's standard library. Losses are means of windows: a window is one
sample, since its tokens depend on each other. Two quantisers that scored the same windows are compared window by window,
which removes the variance of the text, most of the standard error of a perplexity.
"""

import json
import math
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden"))
import qsf_reader  # noqa: E402  (the path has to be there first)

# GGUF: weights in a block and bytes of it, by the number and name of the type.
GGML_BLOCKS = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
               6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84),
               11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
               16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 20: ("IQ4_NL", 32, 18),
               21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136)}
GGUF_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value, by type
GGUF_TEXT, GGUF_ARRAY = 8, 9
FLOATS = ("F32", "F16", "BF16", "f32", "f16", "bf16")


class Matrix:
    """A matrix of weights in a file: its name, type, number of weights and bytes."""

    def __init__(self, name, kind, n_weights, n_bytes):
        self.name, self.kind, self.n_weights, self.n_bytes = name, kind, n_weights, n_bytes

    def in_layer(self):
        return self.name.startswith(("blk.", "layer."))


class GgufHead:
    """Walks the head of a GGUF file: keys are passed over, of tensors names, shapes and types are kept."""

    def __init__(self, data):
        self.data, self.at = data, 0
        magic, version, n_tensors, n_keys = self.take("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError("not a GGUF file of version 2 or 3")
        for _ in range(n_keys):
            self.text()
            self.skip_value(self.take("<I")[0])
        self.matrices = [m for m in (self.matrix() for _ in range(n_tensors)) if m]

    def take(self, layout):
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def text(self):
        length = self.take("<Q")[0]
        self.at += length
        return self.data[self.at - length:self.at].decode("utf-8", "replace")

    def skip_value(self, kind):
        if kind == GGUF_TEXT:
            self.text()
        elif kind == GGUF_ARRAY:
            of, count = self.take("<IQ")
            if of in GGUF_SCALARS:
                self.at += count * GGUF_SCALARS[of]
            else:
                for _ in range(count):
                    self.skip_value(of)
        else:
            self.at += GGUF_SCALARS[kind]

    def matrix(self):
        """Returns the next tensor, or None where it has one dimension alone."""
        name = self.text()
        shape = self.take(f"<{self.take('<I')[0]}Q")
        number, _ = self.take("<IQ")
        if len(shape) < 2 or shape[1] == 1:
            return None
        if number not in GGML_BLOCKS:
            raise ValueError(f"{name}: type {number} is not one of {', '.join(b[0] for b in GGML_BLOCKS.values())}")
        kind, block, size = GGML_BLOCKS[number]
        n_weights = math.prod(shape)
        return Matrix(name, kind, n_weights, n_weights // block * size)


def gguf_matrices(path):
    with open(path, "rb") as file:
        return GgufHead(file.read()).matrices


def qsf_matrices(path):
    """Bytes are those of the interleaved groups of 16 rows: what an engine reads."""
    with open(path, "rb") as file:
        sections = qsf_reader.QsfFile(file.read()).sections
    found = []
    for section, content in sections.items():
        for tensor in content["tensors"]:
            if tensor["rows"] == 1:
                continue
            groups = qsf_reader.ceil_div(tensor["rows"], 16)
            n_bytes = groups * qsf_reader.group_bytes(tensor["type"], tensor["block"], tensor["cols"])
            found.append(Matrix(f"{section}/{tensor['kind']}", qsf_reader.WEIGHT_TYPES[tensor["type"]],
                                tensor["rows"] * tensor["cols"], n_bytes))
    return found


def bits_per_weight(matrices):
    return 8 * sum(m.n_bytes for m in matrices) / sum(m.n_weights for m in matrices)


def quantised(matrices):
    return [m for m in matrices if m.kind not in FLOATS]


def read_window_losses(path, what="losses"):
    """Returns the mean loss, or divergence, of each window that qsf-perplexity --losses wrote."""
    with open(path, encoding="ascii") as file:
        windows = [json.loads(line)[what] for line in file]
    return [sum(losses) / len(losses) for losses in windows]


def perplexity(losses):
    return math.exp(math.fsum(losses) / len(losses))


def increase(losses, base):
    """Increase of perplexity over that of `base` on the same windows, as a share."""
    return perplexity(losses) / perplexity(base) - 1


def jackknife(statistic, *samples):
    """Returns statistic(*samples) and its standard error, found by leaving out one window after the other of all
    samples at once, so that what windows have in common cancels where the statistic is a difference or a ratio."""
    n = len(samples[0])
    if n < 2 or any(len(s) != n for s in samples):
        raise ValueError(f"windows: got {', '.join(str(len(s)) for s in samples)}, expected the same number, at least 2")
    without = [statistic(*(s[:i] + s[i + 1:] for s in samples)) for i in range(n)]
    mean = math.fsum(without) / n
    return statistic(*samples), math.sqrt((n - 1) / n * math.fsum((x - mean) ** 2 for x in without))


def difference(ours, theirs, base):
    """Returns how far the increase of `ours` lies above that of `theirs` over `base`, and the standard error."""
    return jackknife(lambda a, b, f: increase(a, f) - increase(b, f), ours, theirs, base)


def best_within(rows, bits):
    """Returns the row of lowest perplexity of those that take at most `bits` a weight, or None."""
    within = [row for row in rows if row["bits"] <= bits + 1e-9]
    return min(within, key=lambda row: sum(row["losses"]), default=None)

