#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf-parity as a user runs it: references that are right, wrong, dead, slow and lying; receipts that were
changed after they were written; traces and records.

Usage: qsf_parity_test.py BIN_DIR SOURCE_DIR [unittest arguments]
"""

import copy
import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
PARITY = os.path.join(BIN_DIR, "qsf-parity")
MODEL = os.path.join(SOURCE_DIR, "models", "tales-5M-4bit.qsf")
PROMPT = "Once upon a time there was a little girl"
TIMEOUT_S = 120

# Speaks the protocol and answers from recorded logits, each mode with a fault of its own.
FAKE_CHILD = r'''#!/usr/bin/env python3
import os, signal, struct, sys, time
mode = os.environ.get("FAKE_MODE", "right")
with open(os.environ["FAKE_LOGITS"], "rb") as file:
    data = file.read()
n_vocab, n_tokens, n_rows, n_source = struct.unpack_from("<4I", data, 12)
tokens = list(struct.unpack_from(f"<{n_tokens}I", data, 32 + n_source))
body = 32 + n_source + 4 * n_tokens
out, inp = sys.stdout.buffer, sys.stdin.buffer

def send(kind, payload, magic=0x50465351, size=None):
    out.write(struct.pack("<IIQ", magic, kind, len(payload) if size is None else size) + payload)
    out.flush()

def row(i):
    return data[body + 4 * n_vocab * i:body + 4 * n_vocab * (i + 1)]

if mode == "dead":
    sys.exit("no model for me")
if mode == "deaf":
    time.sleep(600)
if mode == "chatter":
    sys.stderr.write("words " * 200000)
if mode == "no magic":
    send(1, b"{}", magic=7)
if mode == "refuses":
    sys.stderr.write("of another architecture")
    sys.stderr.flush()
    send(6, b"this model is not for me")
hello_vocab = n_vocab + 1 if mode == "other vocabulary" else n_vocab
if mode == "no json":
    send(1, b"hello")
elif mode == "old":
    send(1, b'{"protocol": 9, "n_vocab": 4}')
elif mode == "huge":
    send(1, b"", size=1 << 60)
else:
    traces = "true" if mode.startswith("point") else "false"
    send(1, f'{{"protocol": 1, "name": "fake", "commit": "c0ffee", "n_vocab": {hello_vocab}, "trace": {traces}}}'.encode())

def send_points(past, n):
    def point(name, layer, cols, rows=n, cut=0, value=lambda i: 0.5 * i - 3):
        name = name.encode()
        numbers = [value(i) for i in range(rows * cols)]
        send(7, (struct.pack("<i3I", layer, rows, cols, len(name)) + name +
                 struct.pack(f"<{len(numbers)}f", *numbers))[:-cut or None])
    if mode == "point unasked" or "--trace" in sys.argv:
        point("attn_norm", 0, 5)
        point("attn_q", 0, 7, value=lambda i: 9.0)
        point("attn_q", 0, 7)  # behind its bias
        point("ffn_out", 0, 5, value=lambda i: -3 + 0.5 * (i + (i == 2 and mode == "points changed")))
        if mode == "point of other rows":
            point("ffn_out", 1, 5, rows=n + 1)
        if mode == "point cut":
            point("ffn_out", 1, 5, cut=4)
        if mode == "point without a name":
            point("", 1, 5)
        if mode == "point with a long name":
            point("x" * 65, 1, 5)
        if mode == "point of no layer":
            point("ffn_out", -2, 5)
        if mode == "point without a head":
            send(7, b"abc")
        if mode == "point nan":
            point("output_norm", 2, 5, value=lambda i: float("nan"))

while True:
    head = inp.read(16)
    if len(head) < 16:
        break
    magic, kind, size = struct.unpack("<IIQ", head)
    payload = inp.read(size)
    if kind == 2:
        ids = list(tokens)
        if mode == "wrong ids":
            ids[3] += 1
        if mode == "fewer ids":
            ids.pop()
        send(3, struct.pack(f"<{len(ids)}I", *ids))
    if kind == 4:
        past, n = struct.unpack_from("<2I", payload)
        if mode.startswith("point"):
            send_points(past, n)
        for i in range(n):
            values = row(past + i)
            here = past + i
            if mode == "crash" and here == 2:
                os.kill(os.getpid(), signal.SIGSEGV)
            if mode == "leaves" and here == 2:
                sys.exit(5)
            if mode == "hangs" and here == 2:
                time.sleep(600)
            if mode == "short" and here == 2:
                out.write(struct.pack("<IIQ", 0x50465351, 5, 8 + len(values)) + values[:100])
                out.flush()
                sys.exit(0)
            if mode == "wrong row size" and here == 2:
                values = values[:-4]
            if mode == "wrong row number" and here == 2:
                i += 1
            if mode == "wrong kind" and here == 2:
                send(3, b"")
                continue
            numbers = list(struct.unpack(f"<{len(values) // 4}f", values))
            if mode == "nan" and here == 4:
                numbers[17] = float("nan")
            if mode == "infinity" and here == 4:
                numbers[17] = float("inf")
            if mode == "nan later" and here == n_tokens:
                numbers[0] = float("nan")
            if mode == "zeros":
                numbers = [0.0] * len(numbers)
            if mode == "wrong logits" and here == 4:
                numbers = numbers[1:] + numbers[:1]
            if mode == "negated" and here == 4:
                numbers = [-x for x in numbers]
            if mode == "other tokens" and here >= n_tokens - 1:
                top = max(range(len(numbers)), key=lambda k: numbers[k])
                numbers[(top + 1) % len(numbers)] = numbers[top] + 0.01
            values = struct.pack(f"<{len(numbers)}f", *numbers)
            send(5, struct.pack("<2I", i, n_vocab) + values)
'''


class Number(str):
    """A number as it was written."""


def canonical(value):
    """Returns JSON without blanks, with sorted keys and numbers as they were written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{canonical(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(value)


def load(name):
    with open(path(name), encoding="utf-8") as file:
        return json.load(file, parse_float=Number)


def save(name, receipt, digest=True):
    """Writes a receipt, with the digest that its content has now or the one it had."""
    receipt = copy.deepcopy(receipt)
    if digest:
        receipt.pop("receipt_sha256", None)
        receipt["receipt_sha256"] = hashlib.sha256(canonical(receipt).encode()).hexdigest()
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(canonical(receipt))


def setUpModule():
    global scratch
    scratch = tempfile.TemporaryDirectory()
    with open(path("fake"), "w", encoding="ascii") as file:
        file.write(FAKE_CHILD)
    os.chmod(path("fake"), stat.S_IRWXU)
    code, _, err = call(MODEL, "--prompt", PROMPT, "--steps", "6", "--record", path("own.logits"))
    assert code == 0, err


def tearDownModule():
    scratch.cleanup()


def path(name):
    return os.path.join(scratch.name, name)


def call(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if name != "QSF_PARITY_CHILD"}
    done = subprocess.run([PARITY, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S,
                          stdin=subprocess.DEVNULL, env={**clean, **environment}, check=False)
    return done.returncode, done.stdout, done.stderr


def compare(*arguments, **environment):
    return call(MODEL, "--prompt", PROMPT, *arguments, **environment)


def fake(mode, *arguments):
    return compare("--reference", "llama", "--reference-model", "any.gguf", "--child", path("fake"), *arguments,
                   FAKE_MODE=mode, FAKE_LOGITS=path("own.logits"))


class Usage(unittest.TestCase):
    def test_help_and_version(self):
        code, out, _ = call("--help")
        self.assertEqual(code, 0)
        for option in ("--reference", "--receipt", "--cos-tol", "--trace", "--kernel-records", "--timeout"):
            self.assertIn(option, out)
        self.assertEqual(call("--version")[1].split()[0], "qsf-parity")
        self.assertEqual(call("verify", "--help")[0], 0)
        self.assertEqual(call("diff", "--help")[0], 0)

    def test_refusals(self):
        for arguments, word in (
                ((MODEL, "--reference", "exact"), "--prompt"),
                ((MODEL, "--prompt", "a", "--ids", "1", "--reference", "exact"), "one of"),
                ((MODEL, "--prompt", "a"), "--reference"),
                ((MODEL, "--prompt", "a", "--record", path("x"), "--receipt", path("y")), "--reference"),
                ((MODEL, "--ids", "1,,2", "--reference", "exact"), "token ids"),
                ((MODEL, "--ids", "1,-2", "--reference", "exact"), "token ids"),
                ((MODEL, "--prompt", "a", "--reference", "exact", "--cos-tol", "1.5"), "1.5"),
                ((MODEL, "--prompt", "a", "--reference", "exact", "--child", "x"), "llama"),
                ((MODEL, "--prompt", "a", "--reference", "llama", "--child", "x"), "--reference-model"),
                ((MODEL, "--prompt", "a", "--reference", "llama"), "build_parity_shim"),
                ((MODEL, "--prompt", "a", "--reference", "x", "--trace-reference", "y"), "exact")):
            code, out, err = call(*arguments, XDG_CACHE_HOME=path("none"))
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(word, err)
            self.assertEqual(err.count("\n"), 1, err)


class References(unittest.TestCase):
    def test_recorded_logits_of_the_same_run_are_the_same(self):
        code, out, err = compare("--reference", path("own.logits"), "--steps", "6", "--cos-tol", "1",
                                 "--max-error", "0", "--kl-tol", "0", "--top1")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("largest error: 0\n", out)
        self.assertIn("greedy tokens equal: 6 of 6", out)
        self.assertIn("status: ok", out)

    def test_exact_is_near_but_not_the_same(self):
        code, _, err = compare("--reference", "exact")
        self.assertEqual((code, err), (0, ""))
        code, out, err = compare("--reference", "exact", "--max-error", "0")
        self.assertEqual(code, 1, out)
        self.assertIn("position 0", err)
        code, out, err = compare("--exact", "--reference", "exact", "--max-error", "0", "--steps", "8")
        self.assertEqual((code, err), (0, ""), out)

    def test_receipts_name_the_types_of_keys_and_of_values(self):
        for options, name in ((("--kv-type", "4"), "4"), (("--kv-type", "8", "--kv-type-v", "2"), "8 for keys, 2 for values"),
                              (("--kv-type-k", "2"), "2 for keys, f16 for values")):
            code, out, err = compare(*options, "--exact", "--reference", "exact", "--max-error", "0", "--receipt", path("kv.json"))
            self.assertEqual((code, err), (0, ""), out)
            receipt = load("kv.json")
            self.assertEqual([receipt[side]["kv_type"] for side in ("ours", "reference")], [name, name])

    def test_ids_instead_of_a_prompt(self):
        code, out, _ = call(MODEL, "--ids", "1,5,7,9", "--reference", "exact", "--steps", "0", "--exact")
        self.assertEqual(code, 0, out)
        self.assertIn("rows compared: 4 of 4", out)
        code, _, err = call(MODEL, "--ids", "1,99999999", "--reference", "exact")
        self.assertEqual(code, 3)
        self.assertIn("token 99999999", err)

    def test_positions_bound_what_is_compared(self):
        code, out, _ = compare("--reference", "exact", "--positions", "2", "--steps", "0")
        self.assertEqual(code, 0)
        self.assertIn("rows compared: 2 of 2", out)

    def test_files_that_are_no_reference(self):
        with open(path("own.logits"), "rb") as file:
            good = file.read()
        changed = bytearray(good)
        changed[-5] ^= 1
        for name, content in (("empty", b""), ("cut", good[:-4]), ("head", good[:40]), ("changed", changed),
                              ("text", b"QSFLOGIT" + b"x" * 100), ("longer", good + b"\0"),
                              ("sizes", good[:12] + struct.pack("<4I", *[0xFFFFFFFF] * 4) + good[28:])):
            with open(path(name), "wb") as file:
                file.write(content)
            code, out, err = compare("--reference", path(name), "--receipt", path("bad.json"))
            self.assertEqual(code, 3, (name, err))
            self.assertIn("status: not_compared", out)
            self.assertEqual(load("bad.json")["status"], "not_compared")
            self.assertEqual(call("verify", path("bad.json"))[0], 3, name)
        code, _, err = compare("--reference", path("own.logits"), "--steps", "20")
        self.assertEqual(code, 3)
        self.assertIn("fewer --steps", err)
        code, _, err = call(MODEL, "--prompt", "Another text", "--reference", path("own.logits"))
        self.assertEqual(code, 1)
        self.assertIn("token ids differ at", err)

    def test_a_model_that_is_not_there(self):
        code, out, err = call(path("no.qsf"), "--prompt", "a", "--reference", "exact", "--receipt", path("r.json"))
        self.assertEqual(code, 3, err)
        self.assertIn("no.qsf", err)
        self.assertIn("status: not_compared", out)
        self.assertEqual(call("verify", path("r.json"))[0], 3)

    def test_recording_leaves_no_file_when_it_fails(self):
        code, _, _ = fake("crash", "--record", path("never.logits"))
        self.assertEqual(code, 3)
        self.assertFalse(os.path.exists(path("never.logits")))


class Children(unittest.TestCase):
    def test_right(self):
        for mode in ("right", "chatter"):
            code, out, err = fake(mode, "--steps", "6", "--max-error", "0", "--record", path("of-child.logits"))
            self.assertEqual((code, err), (0, ""), mode)
            self.assertIn("status: ok", out)
        code, out, _ = compare("--reference", path("of-child.logits"), "--max-error", "0", "--steps", "6")
        self.assertEqual(code, 0, out)

    def test_divergence(self):
        for mode, word in (("wrong logits", "position 4"), ("negated", "position 4: cosine -1"),
                           ("nan", "position 4: a logit is not finite"), ("infinity", "not finite"),
                           ("nan later", "not finite"), ("wrong ids", "token ids differ at 3: ours "),
                           ("fewer ids", "the reference's none"), ("other vocabulary", "vocabulary"),
                           ("other tokens", "greedy tokens differ from step 0")):
            code, out, err = fake(mode, "--receipt", path("child.json"))
            self.assertEqual(code, 1, (mode, out, err))
            self.assertIn("status: divergence", out)
            self.assertIn(word, err, mode)
            self.assertEqual(load("child.json")["status"], "divergence")
            self.assertEqual(call("verify", path("child.json"))[0], 1, mode)

    def test_a_child_that_fails_compares_nothing(self):
        for mode, word in (("dead", "no model for me"), ("crash", "signal 11"), ("leaves", "exit code 5"),
                           ("short", "ended with exit code 0"), ("wrong row size", "expected"),
                           ("wrong row number", "expected"), ("wrong kind", "expected logits"),
                           ("no magic", "0x00000007"), ("refuses", "this model is not for me; it said: of another architecture"),
                           ("no json", "JSON"), ("old", "protocol 9"), ("huge", "expected hello")):
            code, out, err = fake(mode, "--receipt", path("child.json"))
            self.assertEqual(code, 3, (mode, out, err))
            self.assertIn("status: not_compared", out)
            self.assertIn(word, err, mode)
            receipt = load("child.json")
            self.assertEqual((receipt["status"], receipt["failure"]), ("not_compared", receipt["reason"]))
            self.assertEqual(call("verify", path("child.json"))[0], 3, mode)

    def test_zeros_are_no_logits(self):
        # Beside numbers they are wrong; only two sides of zeros would be nothing.
        code, _, err = fake("zeros")
        self.assertEqual(code, 1, err)
        self.assertIn("zeros", err)

    def test_waiting_ends(self):
        for mode in ("deaf", "hangs"):
            start = time.monotonic()
            code, out, err = fake(mode, "--timeout", "0.5")
            self.assertEqual(code, 3, out)
            self.assertIn("--timeout", err)
            self.assertLess(time.monotonic() - start, 60)

    def test_a_program_that_is_not_there(self):
        code, _, err = compare("--reference", "llama", "--reference-model", "x.gguf", "--child", path("nothing"))
        self.assertEqual(code, 3)
        self.assertIn("cannot be run", err)


class Receipts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        code, _, err = compare("--reference", path("own.logits"), "--steps", "6", "--receipt", path("good.json"))
        assert code == 0, err
        code, _, _ = fake("wrong logits", "--receipt", path("diverged.json"))
        assert code == 1
        cls.good = load("good.json")
        cls.diverged = load("diverged.json")

    def verify(self, receipt, digest=True):
        save("tampered.json", receipt, digest)
        return call("verify", path("tampered.json"))

    def test_right_receipts(self):
        code, out, err = call("verify", path("good.json"))
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("receipt: right", out)
        self.assertEqual(call("verify", path("diverged.json"))[0], 1)
        # The digest of this test is the tool's, so what follows is refused for what it says.
        self.assertEqual(self.verify(self.good)[0], 0)
        self.assertEqual(self.verify(self.good, digest=False)[0], 0)

    def test_content(self):
        good = self.good
        self.assertEqual(len(good["rows"]), good["tokenization"]["n_ours"] + 5)
        self.assertEqual(good["rows"][-1]["role"], "generated")
        with open(MODEL, "rb") as file:
            self.assertEqual(good["model"]["sha256"], hashlib.sha256(file.read()).hexdigest())
        self.assertEqual(good["ours"]["backend"], "cpu")
        ids = [kernel["kernel_id"] for kernel in good["kernels"]]
        self.assertTrue(any(name.startswith("matmul_q4") for name in ids), ids)
        self.assertTrue(any(name.startswith("attend_") for name in ids), ids)
        self.assertTrue(any(name.startswith("norm_") for name in ids), ids)
        self.assertTrue(good["environment"]["cpu"])

    def test_the_kernels_are_those_that_ran(self):
        code, _, _ = compare("--exact", "--reference", "exact", "--receipt", path("scalar.json"), QSF_ISA="scalar")
        self.assertEqual(code, 0)
        for kernel in load("scalar.json")["kernels"]:
            self.assertTrue(kernel["kernel_id"].endswith("_scalar"), kernel)
            if kernel["kernel_id"].startswith("matmul_"):
                self.assertIn("_f32_", kernel["kernel_id"])

    def test_an_exact_run_of_a_bitnet_rounds_its_rows(self):
        # That is the model's own rounding: its receipt is right, and that of another model would not be.
        model = os.path.join(SOURCE_DIR, "testdata", "gguf", "bitnet", "i2s_a.gguf")
        code, _, err = call(model, "--ids", "1,5,7,9", "--exact", "--reference", "exact", "--receipt",
                            path("bitnet.json"), XDG_CACHE_HOME=path("cache"))
        self.assertEqual(code, 0, err)
        receipt = load("bitnet.json")
        products = [k["kernel_id"] for k in receipt["kernels"] if k["kernel_id"].startswith("matmul_")]
        self.assertTrue(any("ternaryrow_i8" in name for name in products), products)
        self.assertTrue(receipt["model"]["int8_rows"])
        self.assertEqual(call("verify", path("bitnet.json"))[0], 0)
        self.tampered(receipt, lambda r: r["model"].update(int8_rows=False), "rounds")

    def test_any_change_without_a_new_digest(self):
        for change in (lambda r: r["environment"].update(cpu="another"), lambda r: r.update(timestamp="2" * 20),
                       lambda r: r["timing"].update(ours_seconds=Number("1.5"))):
            receipt = copy.deepcopy(self.good)
            change(receipt)
            code, _, err = self.verify(receipt, digest=False)
            self.assertEqual(code, 1)
            self.assertIn("receipt_sha256", err)

    def tampered(self, base, change, word):
        receipt = copy.deepcopy(base)
        change(receipt)
        code, out, err = self.verify(receipt)
        self.assertEqual(code, 1, (word, out, err))
        self.assertIn("receipt: wrong", out, word)
        self.assertIn(word, err)

    def test_a_divergence_cannot_be_called_ok(self):
        def hide(receipt):
            receipt["status"] = "ok"
            receipt["reason"] = ""
        self.tampered(self.diverged, hide, "status")
        self.tampered(self.diverged, lambda r: r["rows"][4].update(outcome="ok"), "rows/4/outcome")
        self.tampered(self.diverged, lambda r: r["thresholds"].update(cosine=Number("0.0")), "outcome")
        self.tampered(self.diverged, lambda r: r["rows"].pop(4), "position")
        self.tampered(self.diverged, lambda r: r["summary"].update(first_divergence=None), "first_divergence")
        self.tampered(self.diverged, lambda r: r["summary"].update(cosine_ok=True), "cosine_ok")

    def test_nothing_compared_cannot_be_called_ok(self):
        def empty(receipt):
            receipt["rows"] = []
            for key in receipt["summary"]:
                if key not in ("positions", "cosine_ok", "first_divergence"):
                    receipt["summary"][key] = 0 if key in ("rows", "compared") else None
        self.tampered(self.good, empty, "status")

        def no_positions(receipt):
            empty(receipt)
            receipt["summary"].update(positions=0, cosine_ok=False)
        self.tampered(self.good, no_positions, "status")
        self.tampered(self.good, lambda r: r["kernels"].clear(), "kernels")
        self.tampered(self.good, lambda r: r.update(failure="the child died"), "status")

    def test_every_number_is_held_to_the_others(self):
        for key, value in self.good["summary"].items():
            other = {True: False, False: True}[value] if isinstance(value, bool) else \
                0 if value is None else value + 1 if isinstance(value, int) else Number("0.25")
            self.tampered(self.good, lambda r, k=key, o=other: r["summary"].update({k: o}), "summary/" + key
                          if key not in ("positions",) else "")
        for key, value in (("matches", 5), ("match_rate", Number("0.5")), ("first_divergence_step", 2),
                           ("finite", False)):
            self.tampered(self.good, lambda r, k=key, v=value: r["greedy"].update({k: v}), "greedy")
        self.tampered(self.good, lambda r: r["greedy"]["reference"].__setitem__(2, 7), "greedy")
        self.tampered(self.good, lambda r: [r["greedy"][k].__setitem__(0, 7) for k in ("ours", "reference")], "token")
        for key, value in (("match", False), ("n_ours", 3), ("first_difference", 1)):
            self.tampered(self.good, lambda r, k=key, v=value: r["tokenization"].update({k: v}), "tokenization")
        self.tampered(self.good, lambda r: r["tokenization"]["reference"].__setitem__(1, 3), "tokenization")

        def other_ids(receipt):
            receipt["tokenization"]["reference"][1] += 1
            receipt["tokenization"].update(ids_given=True, match=False, first_difference=1)
        self.tampered(self.good, other_ids, "token ids differ")

    def test_every_part_of_a_row_is_held_to_the_others(self):
        for key, value in (("position", 9), ("token", 1), ("role", "generated"), ("finite", False), ("zero", True),
                           ("cosine", Number("0.25")), ("cosine", None), ("centred_cosine", Number("-0.5")),
                           ("mse", Number("4.0")), ("max_abs_error", Number("0.5")), ("kl", Number("3.0")),
                           ("kl", None), ("top_ours", [1, 2, 3, 4, 4]), ("top_ours", []), ("top1_match", False),
                           ("top_reference", [1, 2]), ("top_reference", [999999, 1, 2, 3, 4]),
                           ("top5_agreement", Number("0.5")), ("outcome", "not_compared")):
            self.tampered(self.good, lambda r, k=key, v=value: r["rows"][1].update({k: v}), "")

    def test_sides_kernels_and_files(self):
        good = self.good
        self.tampered(good, lambda r: r["kernels"][0].update(kernel_id="mock_matmul"), "mock")
        self.tampered(good, lambda r: r["ours"].update(exact=True), "rounds")
        self.tampered(good, lambda r: r["ours"].update(backend="none"), "sides")
        self.tampered(good, lambda r: r["ours"].update(n_vocab=5), "")
        self.tampered(good, lambda r: r["reference"].update(n_vocab=5), "n_vocab")
        self.tampered(good, lambda r: r["reference"].update(kind="none"), "sides")
        self.tampered(good, lambda r: r["model"].update(sha256="0" * 64), "another SHA-256")
        self.tampered(good, lambda r: r["model"].update(sha256=None), "sha256")
        self.tampered(good, lambda r: r["model"].update(path=path("own.logits")), "another SHA-256")
        self.tampered(good, lambda r: r["reference"].update(sha256="1" * 64), "another SHA-256")

    def test_the_schema(self):
        good = self.good
        for key in good:
            if key != "receipt_sha256":
                self.tampered(good, lambda r, k=key: r.pop(k), "has no " + key)
        self.tampered(good, lambda r: r.update(extra=1), "extra")
        self.tampered(good, lambda r: r.update(schema_version="2.0"), "schema_version")
        self.tampered(good, lambda r: r.update(status="fine"), "status")
        self.tampered(good, lambda r: r["rows"][0].update(more=1), "rows/0")
        self.tampered(good, lambda r: r["rows"][0].update(cosine="high"), "rows/0/cosine")
        self.tampered(good, lambda r: r["rows"][0].update(cosine=Number("1.5")), "rows/0/cosine")
        self.tampered(good, lambda r: r["thresholds"].update(cosine=None), "thresholds/cosine")
        self.tampered(good, lambda r: r["greedy"].update(steps=-1), "greedy/steps")
        for content in ("", "[]", "{}", "3", '{"status": "ok"}'):
            with open(path("odd.json"), "w", encoding="ascii") as file:
                file.write(content)
            self.assertEqual(call("verify", path("odd.json"))[0], 1, content)
        self.assertEqual(call("verify", path("none.json"))[0], 1)
        # So deep that a value which was built would end the program as it is walked.
        deep = '{"environment": {"variables": ' + "[" * 200000 + "]" * 200000 + "}}"
        with open(path("deep.json"), "w", encoding="ascii") as file:
            file.write(deep)
        code, _, err = call("verify", path("deep.json"))
        self.assertEqual(code, 1)
        self.assertIn("nested too deep", err)

    def wrong_values(self, rule):
        """Returns values that a rule of the published schema refuses."""
        if "const" in rule or "enum" in rule:
            return ["neither", 7, None]
        types = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
        values = {"object": {}, "array": [], "string": "x" * 64, "integer": 1, "number": Number("1.5"), "boolean": True, "null": None}
        wrong = [value for kind, value in values.items() if kind not in types and not (kind == "integer" and "number" in types)]
        wrong += [rule["minimum"] - 1] if "minimum" in rule else []
        wrong += [rule["maximum"] + 1] if "maximum" in rule else []
        wrong += ["x" * (rule["minLength"] - 1)] if rule.get("minLength") else []
        wrong += ["x" * (rule["maxLength"] + 1)] if "maxLength" in rule else []
        return wrong

    def check_schema(self, schema, rule, receipt, place):
        """Breaks every rule of the published schema at `place` of a receipt; each has to be refused there."""
        def resolve(rule):
            return schema["$defs"][rule["$ref"].split("/")[-1]] if "$ref" in rule else rule

        def broken(change, name):
            copied = copy.deepcopy(receipt)
            at = copied
            for key in place:
                at = at[key]
            change(at)
            code, _, err = self.verify(copied)
            self.assertEqual(code, 1, (place, name))
            self.assertIn(name, err)

        value = receipt
        for key in place:
            value = value[key]
        for key in rule.get("required", ()):
            if key == "receipt_sha256":  # verify() of this test signs anew
                continue
            broken(lambda at, k=key: at.pop(k), key)
        if rule.get("additionalProperties") is False:
            broken(lambda at: at.update(another=1), "another")
        for key, inner in rule.get("properties", {}).items():
            inner = resolve(inner)
            if key == "receipt_sha256":
                continue
            for wrong in self.wrong_values(inner):
                broken(lambda at, k=key, w=wrong: at.update({k: w}), key)
            if "properties" in inner and value.get(key) is not None:
                self.check_schema(schema, inner, receipt, place + [key])
            items = resolve(inner.get("items", {}))
            if value.get(key) and "properties" in items:
                self.check_schema(schema, items, receipt, place + [key, 0])
            for wrong in self.wrong_values(items) if "items" in inner else ():
                broken(lambda at, k=key, w=wrong: at.update({k: [w]}), key)

    def test_the_published_schema_is_what_verify_checks(self):
        with open(os.path.join(SOURCE_DIR, "docs", "parity-receipt.schema.json"), encoding="utf-8") as file:
            schema = json.load(file)
        self.check_schema(schema, schema, self.good, [])

    def test_a_model_that_moved(self):
        receipt = copy.deepcopy(self.good)
        receipt["model"]["path"] = path("moved.qsf")
        code, out, _ = self.verify(receipt)
        self.assertEqual(code, 0)
        self.assertIn("not checked: model", out)
        self.assertEqual(call("verify", path("tampered.json"), "--model", MODEL)[0], 0)
        self.assertEqual(call("verify", path("tampered.json"), "--model", path("own.logits"))[0], 1)


class Traces(unittest.TestCase):
    def test_equal_runs_have_equal_traces(self):
        compare("--reference", "exact", "--trace", path("a.trace"), "--threads", "1")
        compare("--reference", "exact", "--trace", path("b.trace"), "--threads", "2")
        code, out, err = call("diff", path("a.trace"), path("b.trace"))
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("no difference in", out)
        self.assertEqual(call("--diff", path("a.trace"), path("b.trace"))[0], 0)
        with open(path("a.trace"), encoding="utf-8") as file:
            head, *points = [json.loads(line) for line in file]
        self.assertEqual(head["points"], len(points))
        first = [(p["layer"], p["name"]) for p in points if p["pass"] == 0]
        self.assertEqual(first[:5], [(-1, "embedding"), (0, "attn_norm"), (0, "attn_q"), (0, "attn_k"), (0, "attn_v")])
        self.assertEqual(first[-1][1], "output_norm")
        for name in ("attention", "attn_out", "ffn_norm", "ffn_act", "ffn_out", "attn_q.rope"):
            self.assertIn((1, name), first)
        self.assertEqual(len(first), len(set(first)))
        for point in points:
            self.assertEqual(point["shape"][0], len(head["tokens"]) if point["pass"] == 0 else 1)

    def test_the_first_difference_is_named(self):
        code, _, _ = compare("--reference", "exact", "--trace", path("ours.trace"), "--trace-reference",
                             path("exact.trace"))
        self.assertEqual(code, 0)
        code, out, _ = call("diff", path("ours.trace"), path("exact.trace"))
        self.assertEqual(code, 1)
        # Products are the first that rounds to 8 bits.
        self.assertIn("pass 0, layer 0, attn_q: other bits", out)
        self.assertEqual(call("diff", path("ours.trace"), path("exact.trace"), "--tol", "0.2")[0], 0)
        self.assertEqual(call("diff", path("ours.trace"), path("exact.trace"), "--tol", "1e-9")[0], 1)

    def test_a_changed_sign_is_seen(self):
        compare("--reference", "exact", "--trace", path("a.trace"))
        with open(path("a.trace"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        point = json.loads(lines[9])
        point["projections"][3] += point["rms"]
        lines[9] = json.dumps(point)
        with open(path("c.trace"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        code, out, _ = call("diff", path("a.trace"), path("c.trace"), "--tol", "0.01")
        self.assertEqual(code, 1)
        self.assertIn("by the projections", out)

    def traced(self, mode, name, *arguments):
        return fake(mode, "--steps", "2", "--trace-reference", path(name), *arguments)

    def test_the_points_of_a_child(self):
        code, out, err = self.traced("points", "child.trace", "--trace", path("own.trace"))
        self.assertEqual((code, err), (0, ""), out)
        with open(path("child.trace"), encoding="utf-8") as file:
            head, *points = [json.loads(line) for line in file]
        self.assertEqual(head["engine"], "fake")
        n_tokens = len(head["tokens"])
        self.assertEqual([(p["pass"], p["layer"], p["name"], p["shape"]) for p in points],
                         [(0, 0, "attn_norm", [n_tokens, 5]), (0, 0, "attn_q", [n_tokens, 7]),
                          (0, 0, "ffn_out", [n_tokens, 5]), (1, 0, "attn_norm", [1, 5]), (1, 0, "attn_q", [1, 7]),
                          (1, 0, "ffn_out", [1, 5])])
        values = [0.5 * i - 3 for i in range(7)]
        self.assertAlmostEqual(points[4]["rms"], (sum(x * x for x in values) / 7) ** 0.5)
        self.assertEqual(points[4]["checksum"], zlib.crc32(struct.pack("<7f", *values)))
        # Two engines keep other points; the first that both have is compared.
        code, out, _ = call("diff", path("own.trace"), path("child.trace"), "--tol", "0.5")
        self.assertEqual(code, 1)
        self.assertIn("layer 0, attn_norm: shape", out)

    def test_two_traces_of_a_child(self):
        self.traced("points", "child.trace")
        self.traced("points changed", "changed.trace")
        code, out, _ = call("diff", path("child.trace"), path("changed.trace"), "--tol", "0.001", "--list")
        self.assertEqual(code, 1)
        self.assertIn("first difference: pass 0, layer 0, ffn_out: ", out)
        self.assertIn("0  pass 0, layer 0, attn_norm\n", out)
        self.assertEqual(call("diff", path("child.trace"), path("changed.trace"), "--tol", "0.5")[0], 0)

    def test_a_point_that_one_trace_lacks(self):
        self.traced("points", "child.trace")
        with open(path("child.trace"), encoding="utf-8") as file:
            head, *lines = file.read().splitlines()
        fewer = json.loads(head)
        fewer["points"] -= 1
        for engine, code, word in (("fake", 1, "lacks"), ("another", 0, "no difference in 5 points; 1 are in one")):
            fewer["engine"] = engine
            with open(path("fewer.trace"), "w", encoding="utf-8") as file:
                file.write("\n".join([json.dumps(fewer)] + lines[:-1]) + "\n")
            result = call("diff", path("child.trace"), path("fewer.trace")) if engine == "fake" else \
                call("diff", path("child.trace"), path("fewer.trace"), "--tol", "0.001")
            self.assertEqual(result[0], code, result)
            if code == 0:
                self.assertIn(word, result[1])
            result = call("diff", path("fewer.trace"), path("child.trace"), "--tol", "0.001")
            self.assertEqual(result[0], code, result)
            self.assertIn(word, result[1])
        with open(path("fewer.trace"), "w", encoding="utf-8") as file:
            file.write(json.dumps({**fewer, "points": 0}) + "\n")
        self.assertEqual(call("diff", path("child.trace"), path("fewer.trace"), "--tol", "0.1")[0], 3)

    def test_points_that_are_none(self):
        for mode, word in (("right", "cannot trace"), ("point of other rows", "a point of"), ("point cut", "a point of"),
                           ("point without a name", "a point of"), ("point with a long name", "a name of 65 bytes"),
                           ("point of no layer", "layer -2"), ("point without a head", "a point of 3 bytes")):
            code, out, err = self.traced(mode, "bad.trace")
            self.assertEqual(code, 3, (mode, out, err))
            self.assertIn(word, err, mode)
        code, _, err = fake("point unasked")
        self.assertEqual(code, 3)
        self.assertIn("expected logits", err)
        self.assertEqual(self.traced("point nan", "nan.trace")[0], 0)
        # A value that is no number is within no bound, not even of itself.
        self.assertEqual(call("diff", path("nan.trace"), path("nan.trace"), "--tol", "1")[0], 1)

    def test_files_that_are_no_traces(self):
        compare("--reference", "exact", "--trace", path("a.trace"))
        with open(path("a.trace"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        for content in ("", "{}\n", "\n".join(lines[:-1]) + "\n", lines[0] + "\n", "\n".join(lines[1:]) + "\n",
                        lines[0] + "\n[]\n", lines[0] + "\n" + "[" * 200000 + "]" * 200000 + "\n"):
            with open(path("bad.trace"), "w", encoding="utf-8") as file:
                file.write(content)
            self.assertEqual(call("diff", path("a.trace"), path("bad.trace"))[0], 3, content[:40])
        self.assertEqual(call("diff", path("a.trace"), path("missing.trace"))[0], 3)


class Records(unittest.TestCase):
    def test_a_record_of_every_kernel_call(self):
        code, _, err = compare("--reference", "exact", "--kernel-records", path("kernels.jsonl"), "--receipt",
                               path("records.json"))
        self.assertEqual((code, err), (0, ""))
        receipt = load("records.json")
        with open(path("kernels.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        self.assertEqual(receipt["kernel_records"]["records"], len(records))
        self.assertEqual({r["kernel_id"] for r in records}, {k["kernel_id"] for k in receipt["kernels"]})
        for name, key in (("blk.0.attn_q", "hidden"), ("blk.1.ffn_gate", "hidden")):
            mine = [r for r in records if r["layer"] == name and r["pass"] == 0]
            self.assertTrue(mine, name)
            self.assertEqual({r["cols"] for r in mine}, {receipt["model"][key]})
        heads = [r for r in records if r["layer"] == "output" and r["pass"] == 0]
        self.assertEqual(sum(r["rows"] for r in heads), receipt["model"]["n_vocab"])
        layers = {r["layer"].split(".")[1] for r in records if r["layer"].startswith("blk.") and "attn_q" in r["layer"]}
        self.assertEqual(layers, {str(i) for i in range(receipt["model"]["layers"])})
        for record in records:
            self.assertEqual((record["backend"], record["device"]), ("cpu", "cpu"))
            self.assertGreaterEqual(record["duration_us"], 0)
        self.assertEqual(call("verify", path("records.json"))[0], 0)
        with open(path("kernels.jsonl"), "a", encoding="utf-8") as file:
            file.write("{}\n")
        self.assertEqual(call("verify", path("records.json"))[0], 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
