#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Texts of qsf-run under grammars and JSON Schemas.

Usage: qsf_run_grammar_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Converts the model of SOURCE_DIR/models with BIN_DIR/qsf-convert first.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
RUN = os.path.join(BIN_DIR, "qsf-run")
TIMEOUT_S = 120

SCHEMA = {
    "$defs": {"point": {"type": "object",
                        "properties": {"x": {"type": "integer", "minimum": -9, "maximum": 9},
                                       "y": {"type": "number", "minimum": 0, "maximum": 1}},
                        "required": ["x", "y"], "additionalProperties": False}},
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8},
                   "kind": {"enum": ["fox", "raven", None]},
                   "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
                   "path": {"type": "array", "items": {"$ref": "#/$defs/point"},
                            "minItems": 1, "maxItems": 2}},
    "required": ["name", "kind", "code", "path"],
    "additionalProperties": False,
}


def setUpModule():
    global scratch, model
    scratch = tempfile.TemporaryDirectory()
    model = os.path.join(scratch.name, "tales.qsf")
    subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "4bit",
                    os.path.join(SOURCE_DIR, "models", "tales-5M"), model], check=True)


def tearDownModule():
    scratch.cleanup()


def run(*arguments):
    done = subprocess.run([RUN, model, "--quiet", "--prompt", "Once", "--no-echo", *arguments],
                          capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def written(name, text):
    path = os.path.join(scratch.name, name)
    with open(path, "w") as file:
        file.write(text)
    return path


class Grammars(unittest.TestCase):
    def text(self, *arguments):
        code, out, err = run(*arguments)
        self.assertEqual((code, err), (0, ""))
        return out.removesuffix("\n")

    def test_a_grammar(self):
        path = written("answer.gbnf", 'root ::= ("yes" | "no") ", " [a-z]{3,5} "."  # short\n')
        for seed in range(5):
            text = self.text("--grammar", path, "--seed", str(seed))
            self.assertRegex(text, r"^(yes|no), [a-z]{3,5}\.$")
            self.assertEqual(text, self.text("--grammar", path, "--seed", str(seed)))

    def test_a_schema(self):
        path = written("schema.json", json.dumps(SCHEMA))
        for arguments in [["--temperature", "0"], ["--temperature", "1.5", "--top-k", "0", "--top-p", "1"],
                          ["--top-p", "0.5"], ["--min-p", "0.2", "--top-k", "100"]]:
            value = json.loads(self.text("--json-schema", path, "--max-tokens", "800", "--seed", "3",
                                         "--max-seq-len", "900", *arguments))
            self.assertEqual(list(value), ["name", "kind", "code", "path"])
            self.assertLessEqual(len(value["name"]), 8)
            self.assertIn(value["kind"], ["fox", "raven", None])
            self.assertTrue(re.fullmatch("[A-Z]{2}-[0-9]{3}", value["code"]))
            self.assertIn(len(value["path"]), [1, 2])
            for point in value["path"]:
                self.assertEqual(set(point), {"x", "y"})
                self.assertTrue(-9 <= point["x"] <= 9 and 0 <= point["y"] <= 1)

    def test_a_text_that_is_cut_is_a_beginning(self):
        path = written("cut.json", json.dumps(SCHEMA))
        self.assertTrue(self.text("--json-schema", path, "--max-tokens", "4").startswith("{"))

    def test_refusals(self):
        bad = {"open.gbnf": ('root ::= "a', "line 1, column 10"),
               "left.gbnf": ('root ::= root "a" | "b"', "left-recursive"),
               "none.gbnf": ("", 'no rule "root"')}
        for name, (text, expected) in bad.items():
            code, out, err = run("--grammar", written(name, text))
            self.assertEqual((code, out), (2, ""))
            self.assertIn(expected, err)
        code, _, err = run("--json-schema", written("not.json", '{"properties": {"a": {"not": {}}}}'))
        self.assertEqual(code, 1)
        self.assertIn("#/properties/a/not", err)
        code, _, err = run("--grammar", "/none/such")
        self.assertEqual(code, 1)
        self.assertIn("--grammar: /none/such", err)
        code, _, err = run("--grammar", "a", "--json-schema", "b")
        self.assertEqual(code, 2)
        self.assertIn("exclude each other", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
