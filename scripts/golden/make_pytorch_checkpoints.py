#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes pytorch_model.bin files with torch.save, and what torch says is in them.

    make_pytorch_checkpoints.py GOLDEN OUT

OUT receives one folder a case, in read/ those that the importer takes and in refused/ those that it
must refuse, each with pytorch_model.bin (or shards and an index). read/NAME/expected.json has for
each tensor dtype, shape, its bytes in row-major order and, for weights, its values as f32;
refused/NAME/expected.json has a part of the message. OUT/golden/NAME has the weights of
GOLDEN/NAME, bit for bit. Needs torch and safetensors.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil

import torch
from safetensors.torch import load_file

FILE = "pytorch_model.bin"
NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint64: "U64",
    torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL",
}
WEIGHTS = (torch.float32, torch.float16, torch.bfloat16)


def numbers(*shape, dtype=torch.float32, first=1):
    """Returns first, first + 1 ... by eighths, which every float type but the narrowest holds."""
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(first, first + count, dtype=torch.float32) / 8).reshape(shape).to(dtype)


def every_type():
    return {name.lower(): (torch.arange(6).reshape(2, 3) % 2 if dtype == torch.bool
                           else torch.arange(1, 7).reshape(2, 3)).to(dtype)
            for dtype, name in NAMES.items()}


def views():
    """Returns tensors that share storages and do not begin, or lie, as a new tensor would."""
    base = numbers(6, 8)
    cube = numbers(3, 4, 5, dtype=torch.float16)
    return collections.OrderedDict([
        ("base", base),
        ("tied", base),
        ("transposed", base.t()),
        ("rows", base[2:5]),
        ("columns", base[:, 3:7]),
        ("every_other", base[::2, 1::3]),
        ("transposed_rows", base.t()[1:6]),
        ("column", base[:, 5]),
        ("permuted", cube.permute(2, 0, 1)),
        ("permuted_back", cube.permute(1, 2, 0)),
        ("plane", cube[1]),
        ("one_number", base[4, 4]),
        ("scalar", torch.tensor(2.5)),
        ("empty", torch.zeros(0, 4)),
        ("one_row", base[3:4].expand(1, 8)),
        ("parameter", torch.nn.Parameter(numbers(3, first=100))),
        ("frozen", torch.nn.Parameter(numbers(2, 2).t(), requires_grad=False)),
    ])


def module():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))


def describe(tensors):
    described = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        raw = bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
        described[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                           "bytes": raw.hex()}
        if tensor.dtype in WEIGHTS:
            described[name]["values"] = tensor.float().reshape(-1).tolist()
    return described


def write(folder, content, legacy=False, protocol=2, name=FILE):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(content, folder / name, pickle_protocol=protocol,
               _use_new_zipfile_serialization=not legacy)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def write_read(out):
    weights = module().state_dict()
    legacy_types = {name: tensor for name, tensor in every_type().items()}
    for name, content, tensors, options in [
            ("types", every_type(), every_type(), {}),
            ("types_legacy", legacy_types, legacy_types, {"legacy": True}),
            ("views", views(), views(), {}),
            ("views_legacy", views(), views(), {"legacy": True}),
            ("module", weights, weights, {}),
            ("module_legacy", weights, weights, {"legacy": True}),
            ("protocol_3", weights, weights, {"protocol": 3}),
            ("protocol_4", weights, weights, {"protocol": 4}),
            ("protocol_5", weights, weights, {"protocol": 5}),
            ("protocol_4_legacy", weights, weights, {"protocol": 4, "legacy": True}),
            ("wrapped", {"epoch": 3, "loss": 0.25, "seed": 2**70, "done": None, "flags": [True],
                         "state_dict": weights}, weights, {}),
            ("wrapped_model", {"model": dict(weights)}, weights, {"legacy": True}),
    ]:
        write(out / name, content, **options)
        write_json(out / name / "expected.json", describe(tensors))
    shards = out / "shards"
    tensors = views()
    places = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(tensors)}
    for file in sorted(set(places.values())):
        write(shards, {n: t for n, t in tensors.items() if places[n] == file}, name=file)
    write_json(shards / (FILE + ".index.json"), {"metadata": {}, "weight_map": places})
    write_json(shards / "expected.json", describe(tensors))


class CallsSystem:
    def __reduce__(self):
        return os.system, ("echo this must not run",)


class CallsEval:
    def __reduce__(self):
        return eval, ("print('this must not run')",)


def write_refused(out):
    weights = module().state_dict()
    with_state = torch.nn.Parameter(numbers(2))
    with_state.note = "an attribute"
    optimizer = torch.optim.Adam(module().parameters()).state_dict()
    optimizer["state"] = {0: {"exp_avg": numbers(2)}}
    for name, content, message in [
            ("system", {"a": numbers(2), "b": CallsSystem()}, "posix.system"),
            ("eval", CallsEval(), "__builtin__.eval"),
            ("whole_module", module(), "torch.nn.modules.container.Sequential"),
            ("parameter_with_state", {"a": with_state},
             "torch._utils._rebuild_parameter_with_state"),
            ("optimizer", {"state_dict": weights, "optimizer": optimizer},
             "1 tensors are outside the state dict"),
            ("two_wrappers", {"state_dict": weights, "model": dict(weights)}, "more than one dict"),
            ("not_a_tensor", {"a": numbers(2), "step": 7}, '"step" is an integer'),
            ("list", [numbers(2)], "the file holds a list"),
            ("sparse", {"a": numbers(2, 2).to_sparse()}, "torch._utils._rebuild_sparse_tensor"),
            ("complex", {"a": torch.zeros(2, dtype=torch.complex64)}, "torch.ComplexFloatStorage"),
            ("negated", {"a": torch.zeros(2, dtype=torch.complex64).conj().imag},
             "a negated or conjugated view"),
            ("expanded", {"a": numbers(1, 3).expand(5, 3)}, "an expanded view"),
            ("attribute", with_attribute(weights), "attributes of a dict other than _metadata"),
    ]:
        write(out / name, content)
        write_json(out / name / "expected.json", {"message": message})


def with_attribute(weights):
    copy = collections.OrderedDict(weights)
    copy.note = "an attribute"
    return copy


def write_golden(golden, out):
    for name, legacy in [("qwen2", False), ("llama_linear", True)]:
        write(out / name, load_file(golden / name / "model.safetensors"), legacy=legacy)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("golden", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for part in ("read", "refused", "golden"):
        shutil.rmtree(options.out / part, ignore_errors=True)
    write_read(options.out / "read")
    write_refused(options.out / "refused")
    write_golden(options.golden, options.out / "golden")


if __name__ == "__main__":
    main()
