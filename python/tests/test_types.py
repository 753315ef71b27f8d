# SPDX-License-Identifier: MIT
"""The mirrors of C's structs and numbers, beside a C compiler's view of the headers."""

import ctypes
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

from qsf import _library, _types, config, generation


def struct_names():
    text = "".join(path.read_text() for path in (ROOT / "include" / "qsf").glob("*.h"))
    return set(re.findall(r"typedef struct (qsf_\w+) \{", text))


# qsf_chat_message and the structs of qsf/serving.h go with functions that are not bound.
UNUSED = {"qsf_chat_message", "qsf_step_options", "qsf_kv_page_counts"}

CONSTANTS = {
    "QSF_ABI_VERSION": _library.ABI_VERSION,
    "QSF_INVALID_ARGUMENT": _types.INVALID_ARGUMENT, "QSF_NOT_FOUND": _types.NOT_FOUND,
    "QSF_CORRUPT": _types.CORRUPT, "QSF_UNSUPPORTED": _types.UNSUPPORTED,
    "QSF_OUT_OF_BUDGET": _types.OUT_OF_BUDGET, "QSF_IO": _types.IO,
    "QSF_CANCELLED": _types.CANCELLED, "QSF_INTERNAL": _types.INTERNAL,
    "QSF_LOG_WARNING": _types.LOG_WARNING,
    "QSF_TOKENIZE_NO_BOS": _types.TOKENIZE_NO_BOS,
    "QSF_TOKENIZE_PARSE_SPECIAL": _types.TOKENIZE_PARSE_SPECIAL,
    "QSF_GRAMMAR_GBNF": _types.GRAMMAR_GBNF,
    "QSF_GRAMMAR_JSON_SCHEMA": _types.GRAMMAR_JSON_SCHEMA,
    "QSF_GRAMMAR_JSON_OBJECT": _types.GRAMMAR_JSON_OBJECT,
}
NAMED = {
    "QSF_STOP_": _types.STOP_REASONS, "QSF_KV_": config._KV_TYPES,
    "QSF_KV_POLICY_": config._KV_POLICIES, "QSF_ATTENTION_": config._ATTENTIONS[1:],
    "QSF_SPECULATE_": config._SPECULATIONS, "QSF_HEAD_": config._HEADS,
    "QSF_READ_": config._READ_PATHS, "QSF_H2O_": config._RANKINGS,
    "QSF_POOLING_": ("mean", "last", "first", "model"),
}


def enum_constants():
    constants = dict(CONSTANTS)
    for prefix, names in NAMED.items():
        first = 1 if prefix == "QSF_ATTENTION_" else 0
        constants |= {prefix + {"stop": "string"}.get(name, name).upper(): first + i
                      for i, name in enumerate(names)}
    return constants


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """{expression: its value in C}."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "no C compiler: install gcc"
    expressions = list(enum_constants())
    for name, mirror in _types.STRUCTS.items():
        expressions.append(f"sizeof({name})")
        for field, _ in mirror._fields_:
            expressions.append(f"offsetof({name}, {field})")
            expressions.append(f"sizeof((({name}*)0)->{field})")
    folder = tmp_path_factory.mktemp("c")
    lines = "\n".join(f'  printf("%lld\\n", (long long)({each}));' for each in expressions)
    (folder / "sizes.c").write_text("#include <qsf/qsf.h>\n#include <stddef.h>\n#include <stdio.h>\n"
                                    f"int main(void) {{\n{lines}\n  return 0;\n}}\n")
    subprocess.run([compiler, "-std=c11", "-I", ROOT / "include", folder / "sizes.c", "-o",
                    folder / "sizes"], check=True)
    out = subprocess.run([folder / "sizes"], capture_output=True, text=True, check=True).stdout
    return dict(zip(expressions, map(int, out.split()), strict=True))


def test_every_struct_of_the_headers_has_a_mirror():
    assert struct_names() == set(_types.STRUCTS) | UNUSED


@pytest.mark.parametrize("name", _types.STRUCTS)
def test_a_mirror_has_the_layout_of_its_struct(compiled, name):
    mirror = _types.STRUCTS[name]
    assert ctypes.sizeof(mirror) == compiled[f"sizeof({name})"]
    for field, _ in mirror._fields_:
        descriptor = getattr(mirror, field)
        assert descriptor.offset == compiled[f"offsetof({name}, {field})"], field
        assert descriptor.size == compiled[f"sizeof((({name}*)0)->{field})"], field


@pytest.mark.parametrize("name", _types.STRUCTS)
def test_a_mirror_has_the_fields_of_its_struct_in_order(name):
    text = "".join(path.read_text() for path in (ROOT / "include" / "qsf").glob("*.h"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    body = re.search(rf"typedef struct {name} {{(.*?)}}", text, re.S).group(1)
    declared = [re.search(r"(\w+)(\[\d+\])?$", part.strip()).group(1)
                for line in body.split(";") if line.strip() for part in line.split(",")]
    assert [field for field, _ in _types.STRUCTS[name]._fields_] == declared


def test_numbers_are_those_of_the_headers(compiled):
    assert {name: compiled[name] for name in enum_constants()} == enum_constants()


def test_stop_reasons_are_typed():
    assert set(_types.STOP_REASONS) == set(generation.StopReason.__args__)
