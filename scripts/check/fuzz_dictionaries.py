#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes libFuzzer dictionaries of the keys that readers know, each for the targets that read them.

    fuzz_dictionaries.py FOLDER

Keys and short texts of configurations are those of the golden models; keys of GGUF files those of
their headers; keys of .qsf files those of spec_keys.h; markers of answers those of the server's
table. Written to FOLDER/TARGET.dict.
"""

import json
import pathlib
import re
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGEST = 48  # bytes of an entry

# Of GGUF's types by number; texts and arrays have sizes of their own.
GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
GGUF_TEXT, GGUF_ARRAY = 8, 9


def config_words(value):
    """Returns the keys, and the texts, of a JSON value."""
    if isinstance(value, dict):
        return set(value).union(*map(config_words, value.values()))
    if isinstance(value, list):
        return set().union(*map(config_words, value[:8]))
    return {value} if isinstance(value, str) else set()


def gguf_keys(content):
    """Returns the keys of a GGUF file."""

    def skip(kind, at):
        if kind == GGUF_TEXT:
            return at + 8 + struct.unpack_from("<Q", content, at)[0]
        if kind != GGUF_ARRAY:
            return at + GGUF_SIZES[kind]
        element, n = struct.unpack_from("<IQ", content, at)
        at += 12
        if element in GGUF_SIZES:
            return at + n * GGUF_SIZES[element]
        for _ in range(n):
            at = skip(element, at)
        return at

    keys = set()
    at = 24
    for _ in range(struct.unpack_from("<Q", content, 16)[0]):
        n_bytes = struct.unpack_from("<Q", content, at)[0]
        keys.add(content[at + 8:at + 8 + n_bytes].decode())
        at = skip(struct.unpack_from("<I", content, at + 8 + n_bytes)[0], at + 12 + n_bytes)
    return keys


def literals(source):
    """Returns the texts in quotes of C++ source, those side by side joined."""
    found = set()
    for group in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
        text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', group))
        found.add(re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text))
    return found


def entry(word):
    """Returns the line of a word."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}"
                         for b in word.encode()) + '"'


def golden(*patterns):
    """Returns the files of testdata that match."""
    return sorted(path for pattern in patterns for path in (ROOT / "testdata").glob(pattern))


def words_by_target():
    configs = set()
    for path in golden("golden/*/config.json", "embedding/*/*.json",
                       "embedding/*/*/config.json"):
        configs |= config_words(json.loads(path.read_text(encoding="utf-8")))
    headers = set()
    for path in golden("gguf/*.gguf", "embedding/*.gguf"):
        headers |= gguf_keys(path.read_bytes())
    metadata = literals((ROOT / "src/format/spec_keys.h").read_text(encoding="utf-8"))
    markers = literals((ROOT / "tools/serve/syntax/chat_syntax.cc").read_text(encoding="utf-8"))
    return {"fuzz_hf_config": configs, "fuzz_gguf": headers, "fuzz_gguf_model": headers,
            "fuzz_qsf_file": metadata, "fuzz_model": metadata, "fuzz_chat_answer": markers}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for target, words in words_by_target().items():
        lines = [entry(word) for word in sorted(words) if 0 < len(word.encode()) <= LONGEST]
        (folder / f"{target}.dict").write_text("\n".join(lines) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
