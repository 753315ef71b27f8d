#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of measure_speculation.py: the tokens of a session file, and a whole recording with a program that pretends."""

import contextlib
import io
import json
import os
import stat
import struct
import tempfile
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import measure_speculation

FAKE_QSF = """#!/usr/bin/env python3
import shutil, sys
shutil.copy(SESSION, sys.argv[sys.argv.index("--session-save") + 1])
if not sys.stdin.read().endswith("/stats\\n"):
    sys.exit("no statistics")
print("qsf run: computed 3 tokens, 1.0 tokens/s", file=sys.stderr)
print("qsf run: drafted 10 tokens, 4 of them accepted; 2.50 tokens a pass", file=sys.stderr)
"""


def session_bytes(sections):
    """Returns a session file of (name, bytes), without checksums."""
    table = b"".join(struct.pack("<16sIIQ", name, 1, 0, len(data)) for name, data in sections)
    header = struct.pack("<4sIIIQII", b"QSFS", 0x01020304, 1, len(sections), 0, 0, 0)
    return header + table + b"".join(data for _, data in sections)


class MeasureSpeculationTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.session = os.path.join(self.folder, "a.session")
        with open(self.session, "wb") as file:
            file.write(session_bytes([(b"model", b"12345678"), (b"tokens", struct.pack("<7I", 4, 5, 1, 2, 3, 4, 5))]))

    def test_tokens_of_a_session(self):
        self.assertEqual(measure_speculation.session_tokens(self.session), [1, 2, 3, 4, 5])
        with open(self.session, "wb") as file:
            file.write(session_bytes([(b"model", b"12345678")]))
        with self.assertRaisesRegex(SystemExit, "has no section of tokens"):
            measure_speculation.session_tokens(self.session)

    def test_recording(self):
        program = os.path.join(self.folder, "qsf")
        with open(program, "w", encoding="ascii") as file:
            file.write(FAKE_QSF.replace("SESSION", repr(self.session)))
        os.chmod(program, stat.S_IRWXU)
        texts, results = (os.path.join(self.folder, name) for name in ("texts.tsv", "results.json"))
        arguments = ["measure_speculation.py", "model", texts, "--bin", self.folder, "--results", results,
                     "--prompts", self.folder]
        out = io.StringIO()
        with mock.patch("sys.argv", arguments), contextlib.redirect_stdout(out):
            measure_speculation.main()
        with open(texts, encoding="ascii") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "edit\t1 2 3\t4 5")
        self.assertEqual([line.split("\t")[0] for line in lines], ["edit", "summary", "code", "chat", "story"])
        with open(results, encoding="utf-8") as file:
            figures = json.load(file)["texts"]
        self.assertEqual({figure["tokens_per_pass"] for figure in figures}, {2.5})
        self.assertIn("2.50", out.getvalue())
        with open(os.path.join(self.folder, "chat.txt"), encoding="utf-8") as file:
            self.assertIn("bicycle", file.read())


if __name__ == "__main__":
    unittest.main()
