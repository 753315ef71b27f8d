#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads a server that speaks /v1/completions, and prints its speed as JSON.

  serve_load.py --url http://127.0.0.1:8080 --clients 16 --requests 64
  serve_load.py --url http://127.0.0.1:8080 --rate 2.5 --requests 100

Closed loop: each of --clients sends its next request when the last one is answered. Open loop:
requests arrive at random (Poisson) --rate times a second, whatever the server does.

Times are taken at the client. Time to first text: from the last byte of the request to the first
event with text. Gap: between two events with text. Goodput: requests a second that keep both
--ttft-bound and --gap-bound (its 95th percentile).
"""

import argparse
import asyncio
import json
import random
import sys
import time
import urllib.parse


def percentile(values, share):
    """Returns the value below which `share` of the values lie; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values):
    return {f"p{round(share * 100)}": percentile(values, share) for share in (0.5, 0.95, 0.99)}


class Result:
    def __init__(self):
        self.sent = 0.0
        self.first = None
        self.last = None
        self.gaps = []
        self.text = ""
        self.prompt_tokens = 0
        self.tokens = 0
        self.status = 0
        self.error = None

    def keeps(self, ttft_bound, gap_bound):
        if self.first is None or self.error:
            return False
        gap = percentile(self.gaps, 0.95) or 0.0
        return self.first - self.sent <= ttft_bound and gap <= gap_bound


def take_event(result, data, now):
    """Takes the data of one event. Returns whether the stream has ended."""
    if data == "[DONE]":
        return True
    event = json.loads(data)
    if "error" in event:
        result.error = event["error"].get("message", "error")
        return True
    if event.get("usage"):
        result.prompt_tokens = event["usage"]["prompt_tokens"]
        result.tokens = event["usage"]["completion_tokens"]
    for choice in event.get("choices", []):
        text = choice.get("text", "")
        if not text:
            continue
        if result.first is None:
            result.first = now
        else:
            result.gaps.append(now - result.last)
        result.last = now
        result.text += text
    return False


async def send(host, port, path, body, cut_after=None):
    """Sends a streamed request on a connection of its own. `cut_after`: seconds until it hangs up."""
    result = Result()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        data = json.dumps(body).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json"
                     f"\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await writer.drain()
        result.sent = time.monotonic()
        head = await reader.readuntil(b"\r\n\r\n")
        result.status = int(head.split(b" ", 2)[1])
        if result.status != 200:
            result.error = (await reader.read()).decode("utf-8", "replace")[-300:]
            return result
        while line := await reader.readline():
            now = time.monotonic()
            if cut_after is not None and now - result.sent > cut_after:
                result.error = "cut"
                break
            # Lines of chunk sizes between the events are skipped with all else.
            if line.startswith(b"data: ") and take_event(result, line[6:].decode().strip(), now):
                break
        else:
            result.error = "the stream ended early"
    finally:
        writer.close()
    return result


def make_body(prompt, max_tokens, model=None):
    """Returns a request that is streamed, drawn at temperature 0 and always `max_tokens` long."""
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "ignore_eos": True, "cache_prompt": False, "stream_options": {"include_usage": True}}
    if model:
        body["model"] = model
    return body


def make_prompts(rng, n_prompts, n_tokens, vocabulary):
    """Returns prompts of random tokens, so that no two begin alike.

    The first thousand tokens are left out: control tokens and single bytes are among them.
    """
    return [[rng.randrange(1000, vocabulary) for _ in range(n_tokens)] for _ in range(n_prompts)]


async def closed_loop(url, bodies, n_clients):
    queue = list(enumerate(bodies))
    results = [None] * len(bodies)

    async def client():
        while queue:
            index, body = queue.pop(0)
            results[index] = await send(url.hostname, url.port, url.path, body)

    await asyncio.gather(*(client() for _ in range(n_clients)))
    return results


async def open_loop(url, bodies, rate, rng):
    tasks = []
    for body in bodies:
        tasks.append(asyncio.create_task(send(url.hostname, url.port, url.path, body)))
        await asyncio.sleep(rng.expovariate(rate))
    return await asyncio.gather(*tasks)


def load(url, bodies, n_clients=1, rate=0.0, seed=1, ttft_bound=10.0, gap_bound=0.25):
    """Sends `bodies` to a URL, in an open loop where `rate` is not 0. Returns what was measured."""
    url = urllib.parse.urlsplit(url)
    began = time.monotonic()
    if rate > 0:
        results = asyncio.run(open_loop(url, bodies, rate, random.Random(seed)))
    else:
        results = asyncio.run(closed_loop(url, bodies, n_clients))
    seconds = time.monotonic() - began
    done = [result for result in results if not result.error]
    prompt_tokens = sum(result.prompt_tokens for result in done)
    tokens = sum(result.tokens for result in done)
    good = sum(result.keeps(ttft_bound, gap_bound) for result in results)
    return {"clients": n_clients, "rate": rate, "requests": len(results),
            "failed": len(results) - len(done), "seconds": seconds,
            "prompt_tokens": prompt_tokens, "generated_tokens": tokens,
            "tokens_per_second": tokens / seconds,
            "requests_per_second": len(done) / seconds, "goodput_per_second": good / seconds,
            "time_to_first_text": summary([r.first - r.sent for r in done if r.first]),
            "gap": summary([gap for result in done for gap in result.gaps]),
            "errors": sorted({result.error for result in results if result.error})[:5]}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--path", default="/v1/completions")
    parser.add_argument("--model")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; open loop")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=32000,
                        help="prompts are drawn from its tokens, from 1,000 on")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ttft-bound", type=float, default=10.0, help="seconds")
    parser.add_argument("--gap-bound", type=float, default=0.25, help="seconds")
    return parser.parse_args()


def main():
    arguments = parse()
    prompts = make_prompts(random.Random(arguments.seed), arguments.requests,
                           arguments.prompt_tokens, arguments.vocabulary)
    bodies = [make_body(prompt, arguments.max_tokens, arguments.model) for prompt in prompts]
    measured = load(arguments.url + arguments.path, bodies, arguments.clients, arguments.rate,
                    arguments.seed, arguments.ttft_bound, arguments.gap_bound)
    print(json.dumps(measured, indent=1))
    return 1 if measured["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
