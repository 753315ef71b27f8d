#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads qsf serve for a long time, inside a kernel memory limit of exactly its budget.

Usage: serve_soak.py BIN_DIR MODEL [--seconds 1200] [--clients 64] [--budget MB] [--sample 45]

Clients send prompts and ask for answers of random lengths, some without a limit; they hang up, in
mid-stream too, stop reading for a while, go on with conversations, and share prefixes and API keys.
At the end:

  the kernel killed nothing, and the process stayed within the budget
  every request was answered whole, refused with 429 or 503 and Retry-After, or left by its client
  memory did not grow after a quarter of the time
  texts were parked
  a sample of the answers is what a fresh server gives to the request alone, byte for byte

Needs root for the control group. Exit status: 0, 1 when something of this is not so, 77 without
control groups.
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import os
import random
import sys
import tempfile
import time

import load_client
import serve_process
from load_client import Behaviour

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "measure"))
import memory_group  # noqa: E402
from control_group import NoControlGroup  # noqa: E402

MB = 1_000_000
CONTEXT = 1024
# Pages for two and a half contexts: texts without a limit do not all find room.
SERVER = ["--texts", "16", "--max-seq-len", str(CONTEXT), "--kv-positions", "2560",
          "--default-max-tokens", "64", "--write-timeout", "60"]
KEYS = [f"key-of-team-{i}" for i in range(4)]
TOPICS = ["the sea", "a small dog", "the history of bread", "how engines work", "a walk at night",
          "numbers", "the moon", "an old house", "music", "a long journey", "rain", "honest trade"]
PREFIXES = ["You are a patient teacher. Answer in plain words, give one example for each claim, and "
            "say what you do not know. " * 4,
            "The following is a report of a survey on boats, harbours and the people who work there. " * 6]
SHARE_PAUSED = 0.08
SHARE_LEFT = 0.15
GROWTH_BYTES = 2 * MB


@dataclasses.dataclass
class Sent:
    path: str
    body: dict
    answer: load_client.Answer

    def is_unlimited(self):
        return self.body.get("max_tokens", -1) < 0


class Totals:
    def __init__(self):
        self.outcomes = collections.Counter()
        self.faults = []
        self.answered = []  # Sent that a fresh server can repeat
        self.queued, self.first, self.gaps = [], [], []
        self.tokens = 0

    def fault(self, what, sent):
        self.outcomes["FAULT"] += 1
        self.faults.append(f"{what}: {sent.path} {json.dumps(sent.body)[:300]}")


def words(rng, n):
    return " ".join(rng.choice(TOPICS) for _ in range(n))


def sampling(rng):
    return {"temperature": 0} if rng.random() < 0.5 else {"temperature": 1, "seed": rng.randrange(1 << 30)}


def limit(rng, body):
    """Names a limit, or none: such a text may go on to the end of its context."""
    if rng.random() < 0.75:
        body["max_tokens"] = rng.choice([1, 7, 20, 40, 80, 150])
        return
    if "prompt" in body:
        body["max_tokens"] = -1  # left out, it is 16 there
    if rng.random() < 0.5:
        body["ignore_eos"] = True


def completion(rng):
    prompt = words(rng, rng.choice([1, 5, 30, 100]))
    if rng.random() < 0.4:
        prompt = rng.choice(PREFIXES) + prompt
    body = {"prompt": prompt, **sampling(rng)}
    limit(rng, body)
    if rng.random() < 0.1 and body["max_tokens"] > 0:
        body["n"] = 2
    return "/v1/completions", body


def chat(rng, turns):
    """Goes on with a conversation, or begins one."""
    if len(turns) > 8 or rng.random() < 0.2:
        turns.clear()
    if not turns and rng.random() < 0.5:
        turns.append({"role": "system", "content": rng.choice(PREFIXES)})
    turns.append({"role": "user", "content": f"Tell me about {rng.choice(TOPICS)}."})
    body = {"messages": list(turns), **sampling(rng)}
    limit(rng, body)
    return "/v1/chat/completions", body


def behaviour_of(rng, stream):
    draw = rng.random()
    if draw < SHARE_LEFT:
        after = rng.choice([0, 1, 3, 20]) if stream else 0
        return Behaviour(leave_after=after, resets=rng.random() < 0.5, pause_seconds=rng.random() * 4)
    if stream and draw < SHARE_LEFT + SHARE_PAUSED:
        return Behaviour(pause_at=rng.choice([1, 5, 15]), pause_seconds=rng.uniform(1, 10))
    return Behaviour()


def check_answer(sent):
    """Returns what is wrong with a whole answer, empty for nothing."""
    answer, body = sent.answer, sent.body
    n = body.get("n", 1)
    if answer.error:
        return f"an error in the stream: {answer.error}"
    if not answer.done:
        return "no [DONE]"
    if sorted(answer.reasons) != list(range(n)) or not answer.usage:
        return f"reasons {answer.reasons}, usage {answer.usage}"
    generated, prompt = answer.usage["completion_tokens"], answer.usage["prompt_tokens"]
    if answer.usage["total_tokens"] != generated + prompt or prompt < 1:
        return f"usage {answer.usage}"
    most = CONTEXT - prompt
    if not sent.is_unlimited():
        most = min(most, body["max_tokens"])
    if not set(answer.reasons.values()) <= {"stop", "length"} or generated > n * most:
        return f"reasons {answer.reasons}, {generated} tokens of {most}"
    if set(answer.reasons.values()) == {"length"} and generated != n * most:
        return f"ended as length with {generated} tokens, expected {n * most}"
    if body.get("ignore_eos") and generated != n * most:
        return f"{generated} tokens without an end of text, expected {n * most}"
    return ""


def take_times(totals, answer):
    totals.queued.append(answer.started - answer.sent)
    if answer.first:
        totals.first.append(answer.first - answer.started)
    totals.gaps += answer.gaps


async def send_one(port, rng, totals, turns, key):
    """Sends one request and judges what came back."""
    if rng.random() < 0.04:
        path, body = "/v1/embeddings", {"input": [words(rng, rng.choice([1, 40])), "the sea"]}
    else:
        path, body = chat(rng, turns) if rng.random() < 0.5 else completion(rng)
    stream = path != "/v1/embeddings" and rng.random() < 0.7
    wire = dict(body)
    if stream:
        wire.update(stream=True, stream_options={"include_usage": True})
    behaviour = behaviour_of(rng, stream)
    sent = Sent(path, body, load_client.Answer())
    try:
        sent.answer = await load_client.ask(port, path, wire, key, behaviour)
    except load_client.HangUp:
        totals.outcomes["left"] += 1
        turns.clear()
        return
    except (load_client.Broken, OSError) as error:
        totals.fault(str(error), sent)
        return
    answer = sent.answer
    if answer.status in (429, 503):
        totals.outcomes[str(answer.status)] += 1
        turns.clear()
        if not (answer.retry_after or "").isdigit() or int(answer.retry_after) < 1:
            totals.fault(f"{answer.status} with Retry-After {answer.retry_after}", sent)
        await asyncio.sleep(rng.uniform(0, 3))
        return
    if answer.status == 400 and "maximum context" in (answer.error or ""):
        totals.outcomes["too long"] += 1
        turns.clear()
        return
    if answer.status != 200:
        totals.fault(f"status {answer.status}: {answer.error}", sent)
        return
    totals.outcomes["paused" if behaviour.pause_at else "answered"] += 1
    if path == "/v1/embeddings":
        if answer.error or not answer.usage:
            totals.fault(f"embedding: {answer.error}", sent)
        return
    wrong = check_answer(sent)
    if wrong:
        totals.fault(wrong, sent)
        return
    totals.answered.append(sent)
    totals.tokens += answer.usage["completion_tokens"]
    if stream and behaviour.pause_at is None:
        take_times(totals, answer)
    if path == "/v1/chat/completions":
        turns.append({"role": "assistant", "content": answer.texts[0]})


async def client(port, index, seed, end, totals):
    rng = random.Random(seed * 1000 + index)
    turns = []
    while time.monotonic() < end:
        await send_one(port, rng, totals, turns, KEYS[index % len(KEYS)])


def anonymous_bytes(process):
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


async def watch(process, seconds, samples):
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        samples.append((time.monotonic() - start, anonymous_bytes(process)))
        await asyncio.sleep(1)


async def load(arguments, serve, totals, samples):
    end = time.monotonic() + arguments.seconds
    watching = asyncio.create_task(watch(serve.process.pid, arguments.seconds, samples))
    await asyncio.gather(*(client(serve.port, i, arguments.seed, end, totals)
                           for i in range(arguments.clients)))
    await watching


def repeat(arguments, totals, rng):
    """Returns the answers of a sample that differ from those of a fresh server, and their number."""
    unlimited = [sent for sent in totals.answered if sent.is_unlimited()]
    limited = [sent for sent in totals.answered if not sent.is_unlimited()]
    sample = (rng.sample(unlimited, min(len(unlimited), arguments.sample // 3)) +
              rng.sample(limited, min(len(limited), arguments.sample - arguments.sample // 3)))
    different = []
    with serve_process.Server(serve_process.program_in(arguments.bin), arguments.model, *SERVER,
                              "--no-prefix-cache") as serve:
        for sent in sample:
            alone = asyncio.run(load_client.ask(serve.port, sent.path, sent.body))
            if (alone.texts, alone.reasons) != (sent.answer.texts, sent.answer.reasons):
                different.append(f"{sent.path} {json.dumps(sent.body)[:300]}: "
                                 f"{sent.answer.texts} {sent.answer.reasons}, alone {alone.texts} {alone.reasons}")
    return different, len(sample)


def percentiles(values):
    ordered = sorted(values)
    if not ordered:
        return "none"
    return ", ".join(f"p{p} {ordered[min(len(ordered) - 1, len(ordered) * p // 100)] * 1000:.0f} ms"
                     for p in (50, 95, 99))


def growth(samples):
    """Returns the resident bytes at a quarter of the time, and at the end: the largest near it."""
    quarter, last = len(samples) // 4, len(samples) - 1
    near = max(1, len(samples) // 20)
    return (max(used for _, used in samples[max(0, quarter - near):quarter + 1]),
            max(used for _, used in samples[max(0, last - near):]))


def soak(arguments, group, keys):
    totals, samples = Totals(), []
    with serve_process.Server(serve_process.program_in(arguments.bin), arguments.model, *SERVER,
                              "--ram-budget", str(arguments.budget), "--api-key", keys,
                              wrapper=group.wrapper() if group else ()) as serve:
        asyncio.run(load(arguments, serve, totals, samples))
        authorization = {"Authorization": "Bearer " + KEYS[0]}
        _, _, metrics = serve.get("/metrics", **authorization)
        totals.values = {line.split()[0]: float(line.split()[1]) for line in metrics.splitlines()
                         if not line.startswith("#")}
        totals.health = serve.get("/health")[0]
        totals.code = serve.end()
        totals.errors = [line for line in serve.errors if "warning" not in line][1:]
    return totals, samples


def judge(arguments, totals, samples, group):
    """Prints the figures. Returns what is wrong."""
    values = totals.values
    seconds = arguments.seconds
    print(f"{sum(totals.outcomes.values())} requests in {seconds:.0f} s: {dict(totals.outcomes)}")
    print(f"{totals.tokens / seconds:.0f} tokens/s in whole answers; parked "
          f"{values['qsf_parkings_total']:.0f} times; prefix hits {values['qsf_prefix_hits_total']:.0f}")
    print(f"until admission: {percentiles(totals.queued)}")
    print(f"from admission to first text: {percentiles(totals.first)}")
    print(f"between texts: {percentiles(totals.gaps)}")
    quarter, last = growth(samples)
    peak = values["qsf_memory_peak_resident_bytes"]
    print(f"anonymous memory: {quarter / MB:.1f} MB at a quarter of the time, {last / MB:.1f} MB at the end; "
          f"peak of the process {peak / MB:.1f} of {arguments.budget} MB")
    wrong = list(totals.faults)
    if group:
        print(f"control group: limit {group.limit_bytes / MB:.0f} MB, peak {group.peak() / MB:.1f} MB, "
              f"oom_kills={group.oom_kills()}")
        wrong += [f"{group.oom_kills()} kills"] if group.oom_kills() else []
    if peak > arguments.budget * MB:
        wrong.append(f"the process took {peak} bytes, above its budget")
    if group and last > quarter + GROWTH_BYTES:
        wrong.append(f"memory grew by {last - quarter} bytes")
    if values["qsf_parkings_total"] == 0:
        wrong.append("no text was parked")
    if totals.health != 200 or totals.code != 0:
        wrong.append(f"health {totals.health}, exit status {totals.code}")
    return wrong


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", metavar="BIN_DIR")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--budget", type=int, default=240, help="of the server, in MB")
    parser.add_argument("--sample", type=int, default=45, help="answers that are compared")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-group", action="store_true",
                        help="without the kernel's limit, and however memory grows: for sanitizers")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("\n".join(KEYS) + "\n")
        keys.flush()
        if arguments.no_group:
            totals, samples = soak(arguments, None, keys.name)
            wrong = judge(arguments, totals, samples, None)
        else:
            try:
                with memory_group.MemoryGroup(arguments.budget * MB) as group:
                    totals, samples = soak(arguments, group, keys.name)
                    wrong = judge(arguments, totals, samples, group)
            except NoControlGroup as error:
                print(f"serve_soak: {error}")
                return 77
    different, n_compared = repeat(arguments, totals, random.Random(arguments.seed))
    print(f"{n_compared - len(different)} of {n_compared} answers are those of a fresh server")
    wrong += different
    for line in totals.errors[:20]:
        print(f"the server: {line.rstrip()}")
    for line in wrong[:20]:
        print(f"WRONG: {line}")
    print("serve_soak: " + ("all is well" if not wrong else f"{len(wrong)} things are wrong"))
    return 1 if wrong or n_compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
