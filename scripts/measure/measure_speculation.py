#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records what a chat model answers to five tasks, as texts for qsf bench --texts.

    measure_speculation.py MODEL TEXTS [--bin build/release/bin] [--tokens 400] [--results FILE.json] [--prompts FOLDER]
    qsf bench OTHER.qsf --texts TEXTS [--stream 500,1000]

The tasks differ in how much of an answer stands in its prompt: a text of about 1,500 tokens to be edited, the
same to be summarised, code with names that come back, a question, an open story. The last two are drawn at
temperature 0.7, the others are greedy. TEXTS then has a line for each: name, prompt and answer as token
ids, separated by tabs.

Prints, for the drafter of --speculate lookup with up to 15 tokens, how many drafted tokens were accepted and
the tokens a pass. Exit status: 0 when all texts are there, 1 when one failed.
"""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SESSION_HEADER_BYTES = 32
SESSION_ENTRY_BYTES = 32
DRAFTED = re.compile(r"drafted (\d+) tokens, (\d+) of them accepted; ([0-9.]+) tokens a pass")
COMPUTED = re.compile(r"computed (\d+) tokens")


def read_part(path, first, n_bytes):
    """Returns a part of a file of the project as one line, words only separated by single spaces."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return " ".join(file.read()[first:first + n_bytes].split())


def tasks():
    """Returns (name, message, temperature) of each task."""
    text = read_part("docs/architecture.md", 0, 6400)
    code = read_part("src/draft/row_times.cc", 300, 3600)
    return [
        ("edit", f"Write the following text again, and replace 'pass' by 'step' everywhere: {text}", 0.0),
        ("summary", f"Summarise the following text in ten sentences that quote it: {text}", 0.0),
        ("code", f"Write this C++ code again with a comment before each function: {code}", 0.0),
        ("chat", "What should I look at when I choose a bicycle for my way to work?", 0.7),
        ("story", "Tell me a long story about a lighthouse keeper who finds a map.", 0.7),
    ]


def session_tokens(path):
    """Returns the tokens of a session file (docs/format-session.md)."""
    with open(path, "rb") as file:
        data = file.read()
    n_sections, = struct.unpack_from("<I", data, 12)
    at = SESSION_HEADER_BYTES + n_sections * SESSION_ENTRY_BYTES
    for i in range(n_sections):
        entry = SESSION_HEADER_BYTES + i * SESSION_ENTRY_BYTES
        name = data[entry:entry + 16].rstrip(b"\0")
        n_bytes, = struct.unpack_from("<Q", data, entry + 24)
        if name == b"tokens":
            n_tokens, = struct.unpack_from("<I", data, at + 4)
            return list(struct.unpack_from(f"<{n_tokens}I", data, at + 8))
        at += n_bytes
    sys.exit(f"measure_speculation.py: {path}: has no section of tokens")


def answer(args, message, temperature, folder):
    """Returns (tokens of the prompt, tokens of the answer, match of DRAFTED or None)."""
    session = os.path.join(folder, "session")
    command = [os.path.join(args.bin, "qsf"), "run", args.model, "--interactive", "--verbose",
               "--temperature", str(temperature), "--seed", "1", "-n", str(args.tokens), "-c", "4096",
               "--speculate", "lookup", "--max-drafts", "15", "--session-save", session]
    done = subprocess.run(command, input=message + "\n/stats\n", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"measure_speculation.py: {' '.join(command)}: {done.stderr.strip()}")
    n_prompt = int(COMPUTED.search(done.stderr).group(1))
    tokens = session_tokens(session)
    return tokens[:n_prompt], tokens[n_prompt:], DRAFTED.search(done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("texts", metavar="TEXTS")
    parser.add_argument("--bin", metavar="FOLDER", default=os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--tokens", type=int, default=400, metavar="N", help="most tokens of an answer")
    parser.add_argument("--results", metavar="FILE.json", help="write the figures as JSON as well")
    parser.add_argument("--prompts", metavar="FOLDER", help="write the message of each task to a file there, for peers")
    args = parser.parse_args()
    lines, figures = [], []
    print(f"{'text':<10} {'prompt':>7} {'answer':>7} {'drafted':>8} {'accepted':>8} {'tokens/pass':>12}")
    for name, message, temperature in tasks():
        with tempfile.TemporaryDirectory() as folder:
            prompt, answered, drafted = answer(args, message, temperature, folder)
        n_drafted, n_accepted, per_pass = drafted.groups() if drafted else (0, 0, 1.0)
        print(f"{name:<10} {len(prompt):>7} {len(answered):>7} {n_drafted:>8} {n_accepted:>8} {float(per_pass):>12.2f}")
        figures.append({"text": name, "prompt_tokens": len(prompt), "answer_tokens": len(answered),
                        "drafted": int(n_drafted), "accepted": int(n_accepted), "tokens_per_pass": float(per_pass)})
        if args.prompts:
            with open(os.path.join(args.prompts, name + ".txt"), "w", encoding="utf-8") as file:
                file.write(message)
        lines.append("\t".join([name, " ".join(map(str, prompt)), " ".join(map(str, answered))]) + "\n")
    with open(args.texts, "w", encoding="ascii") as file:
        file.writelines(lines)
    if args.results:
        with open(args.results, "w", encoding="utf-8") as file:
            json.dump({"model": os.path.basename(args.model), "texts": figures}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
