# SPDX-License-Identifier: MIT
"""The file of results that a measuring script continues, and the head of a text to measure on."""

import hashlib
import json
import lzma
import os
import sys

ENDS = 1 << 20  # bytes of each end of a file that tell it from others


def fingerprint(path):
    """Returns what tells a file, or a folder of files, from others: its size and a hash of both ends."""
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if os.path.isfile(os.path.join(path, name)))
        whole = "\n".join(f"{name}: {fingerprint(os.path.join(path, name))}" for name in names)
        return f"{len(names)} files, {hashlib.sha256(whole.encode()).hexdigest()[:16]}"
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        hashed = hashlib.sha256(file.read(ENDS))
        file.seek(max(0, size - ENDS))
        hashed.update(file.read())
    return f"{size} bytes, {hashed.hexdigest()[:16]}"


def about_of(args):
    """Returns what results are of, by a script's arguments; others change no figure."""
    return {"model": fingerprint(args.model), "text": fingerprint(args.text), "bytes": args.bytes,
            "calibration": fingerprint(args.calibration), "calibration bytes": args.calibration_bytes,
            "context": args.context}


def head_of_text(path, n_bytes):
    """Returns the first n_bytes of a text, 0: all, decompressed where its name ends in .xz."""
    with (lzma.open if str(path).endswith(".xz") else open)(path, "rb") as file:
        return file.read(n_bytes or -1)


class Results:
    """A JSON file of what was measured, by key; written whole after every addition, so that a run can be ended at any
    time and goes on where it was. `about` (None: not checked) says what was measured; a file that says otherwise ends
    the script."""

    def __init__(self, path, about=None):
        self.path = path
        self.about = about
        self.values = {}
        if not os.path.exists(path):
            return
        with open(path, encoding="utf-8", errors="replace") as file:
            try:
                stored = json.load(file)
                measured, self.values = stored["about"], stored["values"]
            except (ValueError, KeyError, TypeError):
                sys.exit(f"{path}: not a file of results, which is JSON with \"about\" and \"values\": give another name")
        if about is not None and measured != about:
            sys.exit(f"{path}: measured with {measured}, asked for {about}: give another file, or remove this one")

    def get(self, key, compute):
        if key not in self.values:
            self.put(key, compute())
        return self.values[key]

    def put(self, key, value):
        self.values[key] = value
        with open(self.path + ".part", "w", encoding="utf-8") as file:
            json.dump({"about": self.about, "values": self.values}, file, indent=0)
        os.replace(self.path + ".part", self.path)
