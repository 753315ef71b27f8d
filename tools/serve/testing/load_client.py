# SPDX-License-Identifier: MIT
"""A client of qsf serve on a raw socket, for load tests: it sees every byte and its time, and can
hang up or stop reading at any place."""

import asyncio
import json
import socket
import struct
import time


class Broken(Exception):
    """The connection ended, or what came is no answer."""


class HangUp(Exception):
    """The client left by its own will."""


class Answer:
    """What came back for a request."""

    def __init__(self):
        self.status = 0
        self.retry_after = None
        self.texts = {}  # by index of the choice
        self.reasons = {}
        self.usage = None
        self.done = False  # the stream's [DONE], or the whole body
        self.error = None  # sent within a stream
        self.sent = self.started = self.first = self.last = 0.0
        self.gaps = []

    def take(self, choice, now):
        index = choice["index"]
        text = choice.get("text")
        if text is None:
            text = (choice.get("delta") or choice.get("message") or {}).get("content") or ""
        self.texts[index] = self.texts.get(index, "") + text
        if choice.get("finish_reason"):
            self.reasons[index] = choice["finish_reason"]
        if not text:
            return
        if self.first == 0.0:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now

    def take_object(self, value, now):
        if "error" in value:
            self.error = value["error"].get("message", "error")
        if value.get("usage"):
            self.usage = value["usage"]
        for choice in value.get("choices", []):
            self.take(choice, now)


class Behaviour:
    """What the client does wrong: `leave_after` events of text it hangs up (0: before any answer),
    with a reset where `resets`; behind `pause_at` events it reads nothing for `pause_seconds`."""

    def __init__(self, leave_after=None, resets=False, pause_at=None, pause_seconds=0.0):
        self.leave_after = leave_after
        self.resets = resets
        self.pause_at = pause_at
        self.pause_seconds = pause_seconds


async def open_socket(port, receive_bytes=None):
    raw = socket.socket()
    raw.setblocking(False)
    if receive_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=raw, limit=1 << 16)


def hang_up(writer, resets):
    raw = writer.get_extra_info("socket")
    if resets and raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_head(reader):
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        raise Broken("the connection ended before an answer") from error
    lines = head.split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(lines[0].split(" ")[1]), headers


async def chunks_of(reader, headers):
    """Yields the body's pieces, and raises Broken where it ends early."""
    try:
        if "content-length" in headers:
            yield await reader.readexactly(int(headers["content-length"]))
            return
        if headers.get("transfer-encoding") != "chunked":
            raise Broken("an answer without a length")
        while size := int(await reader.readline() or b"-", 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    except (asyncio.IncompleteReadError, ValueError) as error:
        raise Broken("the answer was cut") from error


async def read_events(reader, headers, answer, behaviour):
    rest = b""
    n_events = 0
    async for chunk in chunks_of(reader, headers):
        now = time.monotonic()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if not line.startswith(b"data: "):
                continue
            if line[6:].strip() == b"[DONE]":
                answer.done = True
                continue
            answer.take_object(json.loads(line[6:]), now)
            n_events += 1
            if behaviour.leave_after is not None and n_events >= behaviour.leave_after:
                raise HangUp
            if behaviour.pause_at is not None and n_events == behaviour.pause_at:
                await asyncio.sleep(behaviour.pause_seconds)


async def ask(port, path, body, key=None, behaviour=Behaviour()):
    """Sends a request on a connection of its own, and returns its Answer. Raises Broken, HangUp, and
    OSError of the connection."""
    answer = Answer()
    reader, writer = await open_socket(port, 4096 if behaviour.pause_at is not None else None)
    resets = False
    try:
        data = json.dumps(body).encode()
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     f"{authorization}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        answer.sent = time.monotonic()
        if behaviour.leave_after == 0:
            await asyncio.sleep(behaviour.pause_seconds)
            raise HangUp
        answer.status, headers = await read_head(reader)
        answer.started = time.monotonic()
        answer.retry_after = headers.get("retry-after")
        if headers.get("content-type", "").startswith("text/event-stream"):
            await read_events(reader, headers, answer, behaviour)
            return answer
        whole = b"".join([chunk async for chunk in chunks_of(reader, headers)])
        answer.take_object(json.loads(whole), time.monotonic())
        answer.done = True
        return answer
    except HangUp:
        resets = behaviour.resets
        raise
    finally:
        hang_up(writer, resets)
