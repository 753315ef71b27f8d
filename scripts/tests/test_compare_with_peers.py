# SPDX-License-Identifier: MIT
"""Tests of compare_with_peers.py and the lists of types that it measures, with programs and scores made here."""

import os
import re
import stat
import sys
import textwrap
from unittest import TestCase, main, mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import compare_with_peers
import fake_tools
import peer_types
import scored_models
from peer_types import IK, LLAMA_CPP
from test_compare_quantisers import gguf

# Writes an F16 model of two layers, or a line of its arguments.
QUANTIZE = f"#!{sys.executable} -IS\n" + textwrap.dedent('''
    import os, shutil, sys
    folder = os.path.dirname(sys.argv[0])
    with open(os.path.join(folder, "calls.txt"), "a") as file:
        file.write(os.path.basename(folder) + " " + " ".join(os.path.basename(a) for a in sys.argv[1:]) + "\\n")
    if "IQ3_K" in sys.argv:
        sys.exit("no such type here")
    target = sys.argv[-3]
    if sys.argv[-2] == "F16":
        shutil.copy(os.path.join(folder, "f16"), target)
    else:
        open(target, "w").write(" ".join(sys.argv[-2:]).ljust(30000))
    ''')
IMATRIX = f"#!{sys.executable} -IS\n" + 'import sys\nopen(sys.argv[sys.argv.index("-o") + 1], "w").write("m")\n'


class Options(TestCase):
    def test_text_with_and_without_bytes(self):
        self.assertEqual(compare_with_peers.parse_text("a/b.txt:60000"), ("a/b.txt", 60000))
        self.assertEqual(compare_with_peers.parse_text("C:/b.txt"), ("C:/b.txt", 0))
        self.assertEqual(compare_with_peers.name_of_text("a/b.txt", 60000), "b.txt:60000")

    def test_ggml_names_of_types(self):
        self.assertEqual([peer_types.name_of_type(kind) for kind in ("Q4_K", "IQ4_K", "IQ2_XXS")],
                         ["q4_K", "iq4_k", "iq2_xxs"])

    def test_mixes_widen_the_layers_of_llama_cpp(self):
        self.assertEqual(peer_types.wide_layers(30), [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29])
        rules = peer_types.ffn_down_rules("IQ2_KT + IQ3_KT", 16)
        self.assertEqual(rules, [(r"blk\.(0|1|4|7|10|13|14|15)\.ffn_down", "iq3_kt"), ("ffn_down", "iq2_kt")])
        self.assertTrue(re.search(rules[0][0], "blk.1.ffn_down.weight"))
        self.assertFalse(re.search(rules[0][0], "blk.11.ffn_down.weight"))

    def test_rules_as_each_llama_quantize_takes_them(self):
        options, last = peer_types.ffn_down_options(LLAMA_CPP, "IQ2_S", 2)
        self.assertEqual(options[4:], ["--tensor-type", "ffn_down=iq2_s", "--tensor-type",
                                       "attn_(q|k|v|output)|ffn_(gate|up)=f16"])
        self.assertEqual(last, "Q4_0")
        options, _ = peer_types.ffn_down_options(IK, "IQ2_K", 2)
        self.assertEqual(options[4:], ["--custom-q", "ffn_down=iq2_k,attn_(q|k|v|output)|ffn_(gate|up)=f16"])
        self.assertEqual(peer_types.whole_options("IQ2_M", "iq4_nl"), (["--token-embedding-type", "iq4_nl"], "IQ2_M"))

    def test_ours_with_block_and_mix(self):
        self.assertEqual(compare_with_peers.our_type_options("4bit-super/32", 2),
                         ["--tensor-type", "ffn_down=4bit-super", "--block-size", "32"])
        self.assertEqual(compare_with_peers.our_type_options("2bit-trellis + 3bit-trellis", 30)[2:],
                         ["--tensor-type", "ffn_down=2bit-trellis"])

    def test_rows_have_files_of_their_own(self):
        args = mock.Mock(calibration_tokens=512, target_sizes=["45", "55"], tune=True)
        rows = [row for of in compare_with_peers.TABLES
                for row in compare_with_peers.our_rows(of, args, "text", "seen", 30)
                + [r for by in (LLAMA_CPP, IK) for r in compare_with_peers.their_rows(of, by, 30)]]
        self.assertEqual(len({row.file_name() for row in rows}), len(rows))
        self.assertEqual(len({row.key() for row in rows}), len(rows))


def row(by, name, bits, kld, of="ffn_down"):
    return {"of": of, "by": by, "name": name, "way": "w", "bytes": round(1e6 * bits), "bits": bits,
            "scores": {"t": {"losses": [1.0, 2.0, 1.5], "klds": [kld, 2 * kld, 3 * kld], "kld": 2 * kld, "kld_error": 0.01,
                             "top": 0.8}}}


class Tables(TestCase):
    ROWS = [row("QSF", "ours", 2.0, 0.05), row("QSF", "tiny", 1.0, 0.5), row(LLAMA_CPP, "a", 2.05, 0.1),
            row(IK, "b", 1.9, 0.2), row(IK, "c", 2.2, 0.01)]

    def test_best_peer_is_of_equal_size(self):
        self.assertIs(compare_with_peers.best_peer(self.ROWS[0], self.ROWS, "t"), self.ROWS[2])
        self.assertIsNone(compare_with_peers.best_peer(self.ROWS[1], self.ROWS, "t"))
        self.assertIsNone(compare_with_peers.best_peer(self.ROWS[0], self.ROWS, "other text"))
        whole = [row("QSF", "ours", 2.0, 0.05, "sizes"), row(IK, "b", 2.02, 0.1, "sizes"), row(IK, "c", 2.009, 0.2, "sizes")]
        self.assertIs(compare_with_peers.best_peer(whole[0], whole, "t"), whole[2])

    def test_verdict_has_paired_ratios(self):
        lines = compare_with_peers.verdict_table(self.ROWS, ["t"]).splitlines()
        self.assertEqual(lines[2], "| ours | w | 2.000 | t | 0.1000 | a | 2.050 | 0.2000 | 0.500 +/- 0.000 | 1.000 +/- 0.000 |")
        self.assertIn("none so small", lines[3])

    def test_measured_table_leaves_texts_out_that_were_not_scored(self):
        line = compare_with_peers.measured_table(self.ROWS[:1], ["t", "u"]).splitlines()[-1]
        self.assertEqual(line, "| QSF | ours | w | 2.000 | 4.48 | 0.1000 +/- 0.0100 | 80.0 % |  |  |  |")


class Runs(fake_tools.ScriptTest):
    def setUp(self):
        super().setUp()
        for name in ("llama", "ik"):
            os.mkdir(os.path.join(self.folder, name))
            for program, content in (("llama-quantize", QUANTIZE), ("llama-imatrix", IMATRIX)):
                path = os.path.join(self.folder, name, program)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        with open(os.path.join(self.folder, "llama", "f16"), "wb") as file:
            file.write(gguf([(f"blk.{i}.ffn_down.weight", (256, 8), 1) for i in range(2)]))
        self.results = os.path.join(self.folder, "results.json")

    def run_it(self, *options):
        model, text, training = self.inputs
        score = {"losses": [1.0, 2.0], "klds": [0.2, 0.3], "kld": 0.25, "kld_error": 0.01, "top": 0.9}
        with mock.patch.object(scored_models.Scorer, "measure", return_value=score), \
                mock.patch.dict(os.environ, {"QSF_LLAMA_CPP": "", "QSF_IK": ""}):
            return self.run_main(compare_with_peers, model, self.results, "--calibration", training, "--texts", text,
                                 "--target-sizes", "0.02", "0.04", "--bin", self.folder, *options)

    def calls(self, peer):
        return fake_tools.take_calls(os.path.join(self.folder, peer))

    def test_what_is_missing_is_named(self):
        status, _, err = self.run_it("--ik", os.path.join(self.folder, "no"))
        self.assertEqual(status, 2)
        self.assertIn("llama-quantize: no such file; --llama-cpp or QSF_LLAMA_CPP names it", err)
        self.assertIn("llama-quantize: no such file; --ik or QSF_IK names it", err)
        self.assertIn("llama-imatrix", err)

    def test_without_ik_its_rows_are_left_out(self):
        status, out, err = self.run_it("--llama-cpp", os.path.join(self.folder, "llama"), "--tables", "sizes")
        self.assertEqual(status, 0, err)
        self.assertIn("--ik or QSF_IK: not given: rows of ik_llama.cpp are left out", err)
        self.assertNotIn("| ik_llama.cpp |", out)
        self.assertIn("| QSF | --target-size 0.02 | gptq | 20,000 | 4.48 | 0.2500", out)
        self.assertIn("| --target-size 0.02 | gptq | 0.02 MB | text.txt | 0.2500 | none so small", out)
        self.assertRegex(out, r"--target-size 0\.04 \| gptq \| 0\.04 MB \| text\.txt \| 0\.2500 \| IQ1_M .* 1\.000 \+/- 0\.000")

    def test_both_peers_and_going_on(self):
        both = ["--llama-cpp", os.path.join(self.folder, "llama"), "--ik", os.path.join(self.folder, "ik")]
        status, out, err = self.run_it(*both, "--only", "IQ[23]_K(, |$)|Q2_K,|table, search")
        self.assertEqual(status, 0, err)
        self.assertIn("sizes: ik_llama.cpp IQ3_K, imatrix: left out: ", err)
        calls = self.calls("ik")
        self.assertTrue(any(re.fullmatch(r"ik --imatrix imatrix\.dat --token-embedding-type f16 .*--custom-q ffn_down=iq2_k,.* Q4_0 1",
                                         call) for call in calls), calls)
        self.assertTrue(any(call.startswith("ik --allow-requantize ffn_down_ik_llama.cpp_IQ2_K,_imatrix.gguf wide.gguf F32")
                            for call in calls), calls)
        self.calls("llama")
        again = self.run_it(*both, "--only", "IQ2_K(, |$)|Q2_K,|table, search")
        self.assertEqual(again[1], out)
        self.assertEqual(self.calls("ik"), [])
        self.assertEqual(self.run_it("--no-runs")[1], out)


if __name__ == "__main__":
    main()
