#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what a crowd of idle, slow and bad clients costs the streams that run.

Usage: serve_crowd.py BIN_DIR MODEL [--crowd 1000] [--streams 4] [--seconds 20] [--rounds 3]

A quarter of the crowd connects and says nothing, a quarter sends a request of a byte a second, a
quarter reads a large answer at a byte a second, and a quarter sends what must be refused, once a
second. Streams are timed in turns, with and without the crowd, against one server. Exit status: 0;
1 when the streams keep less than 90 % of their pace, or a refusal has the wrong status.
"""

import argparse
import asyncio
import collections
import itertools
import json
import statistics
import subprocess
import sys
import time

import load_client
import serve_process

LEAST_SHARE = 0.9
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
# What is refused, and with which status.
BAD = (
    (400, b"GARBAGE\r\n\r\n"),
    (400, HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, HEAD + b"Content-Length: -1\r\n\r\n"),
    (431, HEAD + b"X-Large: " + b"x" * 9000 + b"\r\n\r\n"),
    (414, b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    (413, HEAD + b"Content-Length: 1000000000\r\n\r\n"),
    (400, HEAD + b"Content-Length: 3\r\n\r\n{{{"),
    (400, HEAD + b"Content-Length: 3000\r\n\r\n" + b"[" * 3000),
    (400, HEAD + b"Content-Length: 34\r\n\r\n" + b'{"prompt": "x", "temperature": 99}'),
    (404, b"GET /no/such/path HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    (405, b"DELETE /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    (403, HEAD + b"Origin: https://evil.example\r\nContent-Length: 2\r\n\r\n{}"),
)
TIMED_OUT = 408


async def status_of(reader):
    """Returns the status of an answer; 0 where the server closed the connection without one."""
    try:
        return (await load_client.read_head(reader))[0]
    except (load_client.Broken, OSError):
        return 0


async def idle(port, counts):
    reader, writer = await load_client.open_socket(port)
    counts["idle"] += 1
    await reader.read(1)  # until the server gives it up
    writer.close()


async def slow_sender(port, counts):
    reader, writer = await load_client.open_socket(port)
    answer = asyncio.create_task(status_of(reader))
    for byte in itertools.cycle(HEAD):
        if answer.done():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(1)
    counts["slow", await answer == TIMED_OUT] += 1
    writer.close()


async def slow_reader(port, counts):
    reader, writer = await load_client.open_socket(port, 2048)
    writer.write(b"GET /page/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
    counts["slow", await status_of(reader) == 200] += 1
    while await reader.read(1):
        await asyncio.sleep(1)
    writer.close()


async def bad(port, counts, number):
    status, request = BAD[number % len(BAD)]
    reader, writer = await load_client.open_socket(port)
    writer.write(request)
    got = await status_of(reader)
    counts[f"{status}", got == status] += 1
    writer.close()
    await asyncio.sleep(1)


async def again_and_again(client, index, *arguments):
    await asyncio.sleep(index * 0.002)
    for number in itertools.count(index):
        try:
            await client(*arguments, *([number] if client is bad else []))
        except OSError:
            await asyncio.sleep(1)


async def crowd(port, n, seconds, counts):
    kinds = (idle, slow_sender, slow_reader, bad)
    tasks = [asyncio.create_task(again_and_again(kinds[i % len(kinds)], i, port, counts)) for i in range(n)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run_crowd(port, n, seconds):
    """The crowd's own process: prints how often each answer was the right one."""
    counts = collections.Counter()
    asyncio.run(crowd(port, n, seconds, counts))
    print(json.dumps([[str(key), count] for key, count in counts.items()]))


async def stream(port, end):
    """Returns the seconds at which text came, of streams one after another."""
    times = []
    while time.monotonic() < end:
        reader, writer = await load_client.open_socket(port)
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0,
                           "ignore_eos": True, "stream": True}).encode()
        writer.write(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        async for line in reader:
            if line.startswith(b"data: [DONE]") or time.monotonic() > end:
                break
            if line.startswith(b"data: "):
                times.append(time.monotonic())
        load_client.hang_up(writer, False)
    return times


async def pace(port, n, seconds):
    """Returns the events a second of `n` streams."""
    begin = time.monotonic()
    times = await asyncio.gather(*(stream(port, begin + seconds) for _ in range(n)))
    return sum(len(one) for one in times) / seconds


def measure(arguments, serve):
    """Returns the paces without and with the crowd, and what the crowd was answered."""
    alone, beside, counts = [], [], collections.Counter()
    asyncio.run(pace(serve.port, arguments.streams, 3))
    for _ in range(arguments.rounds):
        alone.append(asyncio.run(pace(serve.port, arguments.streams, arguments.seconds)))
        settle = 5  # until all have connected
        with subprocess.Popen([sys.executable, __file__, arguments.bin, arguments.model, "--crowd-of",
                               str(serve.port), "--crowd", str(arguments.crowd), "--seconds",
                               str(arguments.seconds + settle + 5)], stdout=subprocess.PIPE, text=True) as others:
            time.sleep(settle)
            n_open = serve.metric("qsf_connections")
            beside.append(asyncio.run(pace(serve.port, arguments.streams, arguments.seconds)))
            for key, count in json.loads(others.stdout.read()):
                counts[key] += count
        print(f"{alone[-1]:.1f} texts/s alone, {beside[-1]:.1f} beside {n_open:.0f} connections", flush=True)
    return alone, beside, counts


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", metavar="BIN_DIR")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--crowd", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of the server")
    parser.add_argument("--crowd-of", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.crowd_of:
        run_crowd(arguments.crowd_of, arguments.crowd, arguments.seconds)
        return 0
    with serve_process.Server(serve_process.program_in(arguments.bin), arguments.model, "--max-connections",
                              str(arguments.crowd + 100), "--threads", str(arguments.threads)) as serve:
        alone, beside, counts = measure(arguments, serve)
    share = statistics.median(b / a for a, b in zip(alone, beside))
    print(f"{arguments.streams} streams keep {share * 100:.1f} % of their pace")
    print(f"answers to the crowd: {dict(counts)}")
    wrong = sum(count for key, count in counts.items() if "False" in key)
    if wrong:
        print(f"WRONG: {wrong} answers with another status")
    return 0 if share >= LEAST_SHARE and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
