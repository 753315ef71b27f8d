#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times the first token of a long conversation: computed, from memory and from --cache-folder.

  measure_cache_folder.py build/release/bin MODEL --words 1200 --rounds 5 --folder DIR

Each conversation fills the KV cache, so the next one puts it into files. Prints the median and the
range of each, in milliseconds, and checks by the server's counters where each prompt came from.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../tools/serve/testing"))
import serve_process  # noqa: E402

WORDS = ("the a river king forest bread old young house walked said found many little day night "
         "water tree bird road home friend asked gave took stone light winter").split()


def conversation(number, n_words):
    choose = random.Random(number).choice
    return f"Story {number}. " + " ".join(choose(WORDS) for _ in range(n_words))


def first_token_ms(serve, prompt):
    """Returns the time to the first text, all text, and the prompt's tokens and cached ones."""
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0,
            "stream_options": {"include_usage": True}}
    began = time.monotonic()
    first, text, usage = None, "", {}
    for data in serve.events("/v1/completions", body):
        if data == "[DONE]":
            break
        event = json.loads(data)
        usage = event.get("usage") or usage
        piece = "".join(choice["text"] for choice in event["choices"])
        if piece and first is None:
            first = 1000 * (time.monotonic() - began)
        text += piece
    return first, text, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir")
    parser.add_argument("model")
    parser.add_argument("--words", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ram-budget", help="in MB; the page cache keeps no files then")
    parser.add_argument("--folder", help="on the disk to be measured; default: a temporary one")
    arguments = parser.parse_args()
    times = {"computed": [], "memory": [], "files": []}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        limits = ["--texts", "1", "--max-seq-len", str(arguments.context), "--kv-positions",
                  str(arguments.context), "--threads", str(arguments.threads), "--cache-folder",
                  folder]
        if arguments.ram_budget:
            limits += ["--ram-budget", arguments.ram_budget]
        with serve_process.Server(serve_process.program_in(arguments.bin_dir), arguments.model,
                                  *limits) as serve:
            prompts = [conversation(i, arguments.words) for i in range(arguments.rounds)]
            texts = []
            for prompt in prompts:
                computed, text, n_tokens, n_cached = first_token_ms(serve, prompt)
                assert n_cached < 64, "the prompt was cached already"
                times["computed"].append(computed)
                texts.append(text)
                memory, again, _, n_cached = first_token_ms(serve, prompt)
                assert again == text and n_cached > n_tokens - 66, (again, text, n_cached)
                times["memory"].append(memory)
            for i, prompt in enumerate(prompts):
                n_hits = serve.metric("qsf_cache_folder_hits_total")
                read, again, n_tokens, n_cached = first_token_ms(serve, prompt)
                assert again == texts[i] and n_cached > n_tokens - 66, (again, texts[i], n_cached)
                serve.wait_for_metric("qsf_cache_folder_hits_total", n_hits + 1)
                times["files"].append(read)
            print(f"{n_tokens} tokens, {serve.metric('qsf_cache_folder_bytes') / 1e6:.0f} MB of "
                  f"files")
    for name, values in times.items():
        print(f"{name:10} {statistics.median(values):8.1f} ms "
              f"({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
