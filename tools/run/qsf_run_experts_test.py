#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A mixture of experts as a user runs it: fewer experts, and those in memory, in qsf-run and
qsf-perplexity.

Usage: qsf_run_experts_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Writes a Mixtral-shaped folder of random weights with the tokenizer of SOURCE_DIR/models first.
"""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
RUN = os.path.join(BIN_DIR, "qsf-run")
PERPLEXITY = os.path.join(BIN_DIR, "qsf-perplexity")
TIMEOUT_S = 120
HIDDEN, FFN, LAYERS, EXPERTS, VOCABULARY = 64, 256, 4, 8, 4096
MARGIN = "--expert-margin"


def random_f16(n_values):
    """Returns bytes of f16 values of either sign between 2^-4 and 2^-2."""
    exponents = bytes((b & 0x80) | (0x2C + (b & 0x07)) for b in range(256))
    values = bytearray(2 * n_values)
    values[0::2] = random.randbytes(n_values)
    values[1::2] = random.randbytes(n_values).translate(exponents)
    return bytes(values)


def shapes():
    """Yields the name and shape of every tensor of the folder."""
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for layer in range(LAYERS):
        of_layer = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{of_layer}{norm}.weight", (HIDDEN,)
        for matrix in "qkvo":
            yield f"{of_layer}self_attn.{matrix}_proj.weight", (HIDDEN, HIDDEN)
        yield of_layer + "block_sparse_moe.gate.weight", (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            of_expert = f"{of_layer}block_sparse_moe.experts.{expert}."
            yield of_expert + "w1.weight", (FFN, HIDDEN)
            yield of_expert + "w2.weight", (HIDDEN, FFN)
            yield of_expert + "w3.weight", (FFN, HIDDEN)


def write_folder(folder):
    source = os.path.join(SOURCE_DIR, "models", "tales-5M")
    os.mkdir(folder)
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(os.path.join(source, name), folder)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(architectures=["MixtralForCausalLM"], model_type="mixtral", hidden_size=HIDDEN,
                  intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=2,
                  num_key_value_heads=2, num_local_experts=EXPERTS, num_experts_per_tok=4)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    random.seed(1)
    header, data = {}, []
    end = 0
    for name, shape in shapes():
        data.append(random_f16(shape[0] * shape[1]) if len(shape) == 2 else struct.pack("<e", 1.0) * shape[0])
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [end, end + len(data[-1])]}
        end += len(data[-1])
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def setUpModule():
    global scratch, model, dense, source
    scratch = tempfile.TemporaryDirectory()
    folder, model, dense, source = (os.path.join(scratch.name, name)
                                    for name in ("mixture", "mixture.qsf", "dense.qsf", "text.txt"))
    write_folder(folder)
    for origin, to in ((folder, model), (os.path.join(SOURCE_DIR, "models", "tales-5M"), dense)):
        subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "f16", origin, to],
                       check=True)
    with open(source, "wb") as file:
        file.write(b"The king of the old country had three sons and a daughter who could spin gold. " * 20)


def tearDownModule():
    scratch.cleanup()


def call(*arguments, tool=RUN):
    """Runs a tool; returns exit code, stdout and stderr as bytes."""
    done = subprocess.run([tool, *arguments], capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
                          check=False)
    return done.returncode, done.stdout, done.stderr


class Case(unittest.TestCase):
    def perplexity(self, *arguments):
        """Returns what qsf-perplexity prints but for its speed."""
        code, out, err = call(model, "--file", source, "--context", "64", *arguments, tool=PERPLEXITY)
        self.assertEqual(code, 0, err)
        return [line for line in out.decode().splitlines() if "tokens/s" not in line]

    def story(self, *arguments):
        code, out, err = call(model, "--quiet", "--prompt", "The king", "--temperature", "0", "--max-tokens", "24",
                              "--max-seq-len", "64", *arguments)
        self.assertEqual(code, 0, err)
        return out

    def least_budget(self):
        """Returns the smallest budget in MB, in which few of the experts are in memory."""
        code, _, err = call(model, "--file", source, "--context", "64", "--ram-budget", "2", tool=PERPLEXITY)
        self.assertEqual(code, 1)
        return re.search(rb"needs (\d+) MB", err).group(1).decode()

    def refused(self, expected_code, words, *arguments, tool):
        code, out, err = call(*arguments, tool=tool)
        self.assertEqual((code, out), (expected_code, b""))
        self.assertIn(words, err.decode())


class Perplexity(Case):
    def test_fewer_experts_change_the_result(self):
        self.assertEqual(self.perplexity("--experts", "4"), self.perplexity())
        self.assertNotEqual(self.perplexity("--experts", "2"), self.perplexity())

    def test_a_margin_changes_nothing_where_every_expert_is_in_memory(self):
        # The scored rows are computed one by one, which changes no bit.
        self.assertEqual(self.perplexity(MARGIN, "1000"), self.perplexity())
        self.assertEqual(self.perplexity(MARGIN, "1000", "--reference", model)[3:],
                         self.perplexity("--reference", model)[3:])

    def test_a_margin_takes_experts_in_memory(self):
        least = self.least_budget()
        self.assertEqual(self.perplexity("--ram-budget", least), self.perplexity())
        self.assertEqual(self.perplexity("--ram-budget", least, MARGIN, "1e-9"), self.perplexity())
        near = self.perplexity("--ram-budget", least, MARGIN, "1000")
        self.assertEqual(near[0], self.perplexity()[0])
        self.assertNotEqual(near[-1], self.perplexity()[-1])
        compared = self.perplexity("--ram-budget", least, MARGIN, "1000", "--reference", model)
        self.assertEqual(compared[1], self.perplexity("--reference", model)[1])
        self.assertGreater(float(re.match(r"mean KLD = (\S+)", compared[2]).group(1)), 0.0)

    def test_what_makes_no_sense_is_refused(self):
        self.refused(1, "the model has none", dense, "--file", source, MARGIN, "1", tool=PERPLEXITY)
        self.refused(2, MARGIN, model, "--file", source, MARGIN, "-1", tool=PERPLEXITY)
        self.refused(1, "the best 2 are always kept", model, "--file", source, "--experts", "2", MARGIN, "1",
                     tool=PERPLEXITY)


class Run(Case):
    def test_fewer_experts_change_the_text(self):
        self.assertEqual(self.story("--experts", "4"), self.story())
        self.assertNotEqual(self.story("--experts", "1"), self.story())
        self.refused(2, "experts", dense, "--prompt", "a", "--experts", "1", tool=RUN)
        self.refused(2, "experts", model, "--prompt", "a", "--experts", "9", tool=RUN)

    def test_a_margin_changes_the_text_where_experts_are_missing(self):
        least = self.least_budget()
        self.assertEqual(self.story("--ram-budget", least), self.story())
        self.assertEqual(self.story(MARGIN, "1000"), self.story())
        # Whether an expert arrives before it is missed is a matter of time.
        within = ["--ram-budget", least, MARGIN, "1000", "--speculate", "off"]
        plain = self.story()
        self.assertTrue(any(self.story(*within) != plain for _ in range(12)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
