#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests the packages of scripts/package/make_packages: their files, dependencies and programs.

    package_test.py RELEASE_BUILD DEV_BUILD

The released program needs no shared library.
lintian finds no error. Every tool has its man page and completions. The tools of both builds give
the same conversions and texts, also with threads, compiled expressions and random seeds. Needs the
programs of dpkg; without lintian a note says so.
"""

import array
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "check"))
import repo_files  # noqa: E402  (the path has to be there first)

ROOT = repo_files.repository_root()
TOOLS = ["qsf", "qsf-bench", "qsf-convert", "qsf-inspect", "qsf-parity", "qsf-perplexity", "qsf-run"]
MODEL = "share/qsf/models/tales-5M-4bit.qsf"
SBOM = "share/doc/qsf/sboms/qsf.cdx.json"
WIDTH, N_HEADS, N_POSITIONS = 64, 2, 128


class Failed(Exception):
    """What is wrong, in words."""


def run(command, **options):
    """Runs a command. Returns its standard output; its standard error is part of a failure."""
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit {done.returncode}: "
                     + (done.stdout + done.stderr).decode("utf-8", "replace")[-2000:])
    return done.stdout


def only(pattern):
    found = glob.glob(pattern)
    if len(found) != 1:
        raise Failed(f"{pattern}: {len(found)} files, expected 1; run scripts/package/make_packages")
    return found[0]


def expect_files(folder, wanted, what):
    missing = [path for path in wanted if not os.path.isfile(os.path.join(folder, path))]
    if missing:
        raise Failed(f"{what}: lacks {', '.join(missing)}")


def check_debian(packages, scratch):
    """Unpacks and checks the Debian packages. Returns where the tools lie."""
    for kind, name in packages.items():
        run(["dpkg-deb", "-x", name, os.path.join(scratch, kind)])
    tools = os.path.join(scratch, "qsf", "usr")
    expect_files(tools, [f"bin/{tool}" for tool in TOOLS] + [MODEL]
                 + [f"share/man/man1/{tool}.1.gz" for tool in TOOLS]
                 + [f"share/bash-completion/completions/{tool}" for tool in TOOLS]
                 + [f"share/zsh/vendor-completions/_{tool}" for tool in TOOLS]
                 + [f"share/fish/vendor_completions.d/{tool}.fish" for tool in TOOLS]
                 + ["share/doc/qsf/copyright", "share/doc/qsf/changelog.Debian.gz", SBOM], packages["qsf"])
    expect_files(os.path.join(scratch, "libqsf-dev", "usr"),
                 ["include/qsf/qsf.h", "include/qsf/config.h", "include/qsf/adapters.h", "include/qsf/chat_prompt.h", "include/qsf/grammar.h", "include/qsf/hooks.h", "include/qsf/ranks.h", "include/qsf/sampling.h", "include/qsf/serving.h", "include/qsf/plan.h", "include/qsf/prefix_cache.h", "lib/libqsf.a", "lib/pkgconfig/qsf.pc", "lib/cmake/qsf/qsfConfig.cmake",
                  "share/doc/libqsf-dev/copyright", "share/doc/qsf/examples/hello.c"], packages["libqsf-dev"])
    expect_files(os.path.join(scratch, "libqsf0", "usr"),
                 ["lib/libqsf.so.0", "share/doc/libqsf0/copyright"], packages["libqsf0"])
    depends = run(["dpkg-deb", "-f", packages["qsf"], "Depends"]).decode().strip()
    if depends:
        raise Failed(f"{packages['qsf']}: depends on '{depends}', expected nothing")
    depends = run(["dpkg-deb", "-f", packages["libqsf-dev"], "Depends"]).decode().strip().split(", ")
    if not depends.pop(0).startswith("libqsf0 (= "):
        raise Failed(f"{packages['libqsf-dev']}: does not depend on libqsf0 of its version")
    unknown = [name for name in depends
               if subprocess.run(["dpkg-query", "-s", name], capture_output=True, check=False).returncode]
    if not depends or unknown:
        raise Failed(f"{packages['libqsf-dev']}: depends on {depends}, of which {unknown} are not what it was built with")
    return tools


def check_lintian(packages):
    if not shutil.which("lintian"):
        return "lintian is not installed"
    root = ["--allow-root"] if os.getuid() == 0 else []
    done = subprocess.run(["lintian", *root, "--fail-on", "error", *packages.values()],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed("lintian:\n" + done.stdout + done.stderr)
    return "lintian finds no error"


def check_tarball(tarball, scratch):
    """Unpacks and checks the tarball. Returns where the tools lie."""
    run(["tar", "-xzf", tarball, "-C", scratch])
    tools = only(os.path.join(scratch, "qsf-*-linux-*"))
    expect_files(tools, [f"bin/{tool}" for tool in TOOLS] + [MODEL]
                 + [f"share/man/man1/{tool}.1" for tool in TOOLS]
                 + [f"share/zsh/site-functions/_{tool}" for tool in TOOLS]
                 + ["share/doc/qsf/LICENSE", "share/doc/qsf/copyright", "share/doc/qsf/README.md", SBOM], tarball)
    return tools


def write_model(folder):
    """Writes a GPT-2 of random weights whose tokenizer splits by regular expressions."""
    os.makedirs(folder)
    tokenizer = os.path.join(ROOT, "testdata", "tokenizer", "gpt2", "tokenizer.json")
    shutil.copy(tokenizer, folder)
    with open(tokenizer, encoding="utf-8") as file:
        content = json.load(file)
    n_vocab = 1 + max([*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])])
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": n_vocab,
                   "n_positions": N_POSITIONS, "n_ctx": N_POSITIONS, "n_embd": WIDTH, "n_layer": 1,
                   "n_head": N_HEADS, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                   "tie_word_embeddings": True}, file)
    shapes = {"wte.weight": [n_vocab, WIDTH], "wpe.weight": [N_POSITIONS, WIDTH],
              "h.0.attn.c_attn.weight": [WIDTH, 3 * WIDTH], "h.0.attn.c_attn.bias": [3 * WIDTH],
              "h.0.attn.c_proj.weight": [WIDTH, WIDTH], "h.0.attn.c_proj.bias": [WIDTH],
              "h.0.mlp.c_fc.weight": [WIDTH, 4 * WIDTH], "h.0.mlp.c_fc.bias": [4 * WIDTH],
              "h.0.mlp.c_proj.weight": [4 * WIDTH, WIDTH], "h.0.mlp.c_proj.bias": [WIDTH]}
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        shapes[norm + ".weight"] = shapes[norm + ".bias"] = [WIDTH]
    numbers, header, data = random.Random(7), {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        weights = array.array("f", (numbers.gauss(0.0, 0.4) for _ in range(count))).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(weights)]}
        data += weights
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def expression_bytes(tools, model):
    """Returns the bytes of compiled expressions, machine code included, that qsf-run took."""
    done = subprocess.run([os.path.join(tools, "bin", "qsf-run"), "--verbose", "--prompt", "a", "--max-tokens", "1",
                           model], capture_output=True, check=False)
    match = re.search(rb"tokenizer: (\d+) bytes of compiled expressions", done.stderr)
    if not match:
        raise Failed(f"qsf-run --verbose of {tools} names no compiled expressions of the tokenizer")
    return int(match.group(1))


def check_same_work(shared, static, scratch):
    """Compares the released program, linked statically, with one that is not."""
    write_model(os.path.join(scratch, "model"))
    files = []
    for name, tools in (("shared", shared), ("static", static)):
        files.append(os.path.join(scratch, name + ".qsf"))
        run([os.path.join(tools, "bin", "qsf-convert"), "--quiet", "--quant-type", "8bit", "--compress", "zstd",
             "--threads", "2", os.path.join(scratch, "model"), files[-1]])
    with open(files[0], "rb") as one, open(files[1], "rb") as other:
        if one.read() != other.read():
            raise Failed("the static qsf-convert writes another file than the ordinary one")

    def story(tools, model, *options):
        return run([os.path.join(tools, "bin", "qsf-run"), "--quiet", "--prompt", "It's 1700's: a b\u00e9-tale  ",
                    "--max-tokens", "30", "--threads", "2", *options, *model], cwd="/")

    for model in ([], files[:1]):
        texts = [story(tools, model, "--seed", "7") for tools in (shared, static)]
        if texts[0] != texts[1] or len(texts[0]) < 40:
            raise Failed(f"with {model or 'the bundled model'} the tools write {texts[0]!r}, the static ones {texts[1]!r}")
    if story(static, files[:1]) == story(static, files[:1]):
        raise Failed("the static qsf-run writes one text twice without a seed")
    planned = [expression_bytes(tools, files[0]) for tools in (shared, static)]
    # Machine code is most of it and holds addresses, whose length may vary.
    if planned[0] == 0 or not 0.9 * planned[0] < planned[1] < 1.1 * planned[0]:
        raise Failed(f"expressions compile to {planned[0]} bytes, in the static tools to {planned[1]}")


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    release, dev = map(os.path.abspath, arguments)
    # So that a stopped test leaves nothing unpacked behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            packages = {"qsf": only(os.path.join(release, "packages", "qsf_*.deb")),
                        "libqsf0": only(os.path.join(release, "packages", "libqsf0_*.deb")),
                        "libqsf-dev": only(os.path.join(release, "packages", "libqsf-dev_*.deb"))}
            debian_tools = check_debian(packages, scratch)
            lintian = check_lintian(packages)
            static_tools = check_tarball(only(os.path.join(release, "packages", "qsf-*.tar.gz")), scratch)
            linkage = [sys.executable, os.path.join(ROOT, "scripts", "check", "check_linkage.py")]
            run([*linkage, "--static", *(f"{tools}/bin/{tool}" for tools in (debian_tools, static_tools)
                                         for tool in TOOLS)])
            check_same_work(dev, static_tools, scratch)
            run(["bash", os.path.join(ROOT, "scripts", "package", "install_test.sh"), "cmake", release])
        except Failed as failure:
            print(f"package_test: {failure}")
            return 1
    print(f"package_test: three Debian packages and a tarball hold what they should; {lintian}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
