# SPDX-License-Identifier: MIT
"""A server with scripted answers that serves the page as `qsf serve` does."""

import http.server
import json
import os
import socket
import threading
import urllib.parse

PAGE_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STATUS = {
    "state": "ready", "model": "SmolLM2-135M",
    "memory": {"budget_bytes": 2 << 30, "planned_bytes": 1800 << 20, "resident_bytes": 1200 << 20},
    "stream": {"resident_share": 0.25, "bytes_per_second": 850e6}, "tokens_per_second": 12.4,
    "queue": {"requests": 2, "prompt_tokens": 1204}, "running": 3, "parked": 1,
    "kv": {"pages": 400, "free": 280, "shared": 32}, "connections": 5,
}

RICH_TEXT = """# Hash tables

A **hash table** finds a key in *constant* time, as `table[hash(key) % size]` shows. See
[an article](https://example.com/hash_table).

1. Compute the hash
2. Take the bucket
   - compare keys
   - go to the next one

| Case | Cost | Note |
|:-----|-----:|------|
| Hit | O(1) | with a good hash |
| Miss | O(1 + a) | `a` is the load |

> A load above 0.9 makes chains long.

```cpp
int find(const Table& table, std::string_view key) { return table.buckets[hash(key) % table.size]; }  // one probe
```

A_word_that_is_much_longer_than_a_narrow_window_and_has_no_place_where_it_could_be_broken_by_a_browser_at_all
"""


def read_table(name):
    """Returns the lines of a file beside index.html that are neither comments nor empty."""
    with open(os.path.join(PAGE_DIR, name), encoding="ascii") as file:
        return [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]


def page_files():
    """Returns {path: (bytes, type)} of the page."""
    files = {}
    for line in read_table("page_files.txt"):
        path, name, content_type = line.split(" ", 2)
        with open(os.path.join(PAGE_DIR, name), "rb") as file:
            files[path] = (file.read(), content_type)
    return files


def chunk(delta, finish_reason=None, **more):
    """Returns one event of a chat stream."""
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **more}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def answer_events(text, reasoning="", finish_reason="stop", size=5, usage=True):
    """Returns the events of an answer, `size` characters each."""
    events = [chunk({"role": "assistant", "content": ""})]
    for name, whole in (("reasoning_content", reasoning), ("content", text)):
        events += [chunk({name: whole[at:at + size]}) for at in range(0, len(whole), size)]
    events.append(chunk({}, finish_reason))
    if usage:
        body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
                "usage": {"prompt_tokens": 20, "completion_tokens": 42, "total_tokens": 62}}
        events.append(b"data: " + json.dumps(body).encode() + b"\n\n")
    return events + [b"data: [DONE]\n\n"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.owner.connections.add(self.connection)

    def finish(self):
        self.server.owner.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_):
        pass

    def send(self, status, body, content_type="application/json", headers=()):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, status, body, headers=()):
        self.send(status, json.dumps(body).encode(), headers=headers)

    def is_allowed(self):
        owner = self.server.owner
        if owner.key is None or self.headers.get("Authorization") == "Bearer " + owner.key:
            return True
        self.send_json(401, {"error": {"message": "Incorrect API key provided.", "type": "authentication_error",
                                       "param": None, "code": None}})
        return False

    def do_GET(self):
        owner = self.server.owner
        path = urllib.parse.urlsplit(self.path).path
        files = owner.files
        if path in files:
            headers = [tuple(line.split(": ", 1)) for line in read_table("page_headers.txt")]
            self.send(200, *files[path], headers=headers)
        elif path == "/v1/models":
            if self.is_allowed():
                self.send_json(200, {"object": "list", "data": [
                    {"id": name, "object": "model", "created": 1, "owned_by": "qsf"} for name in owner.models]})
        elif path == "/status":
            if self.is_allowed():
                self.send_json(200, owner.status)
        else:
            self.send_json(404, {"error": {"message": f"no path {path}"}})

    def do_POST(self):
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_allowed():
            return
        owner.requests.append(body)
        steps = owner.next_answer(body)
        if isinstance(steps, tuple):
            status, error, headers = steps
            self.send_json(status, error, headers)
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for step in steps:
                if isinstance(step, threading.Event):
                    # Comments keep the stream alive, and show when the client has gone.
                    while not step.wait(0.05):
                        self.wfile.write(b":\n\n")
                else:
                    self.wfile.write(step)
                    self.wfile.flush()
        except OSError:
            owner.n_aborted += 1


class FakeServer:
    """Answers are taken in turn from `answers`: a list of bytes and of threading.Event to wait for,
    or a tuple (status, error body, headers)."""

    def __init__(self):
        self.files = page_files()
        self.models = ["SmolLM2-135M", "tales-5M"]
        self.status = STATUS
        self.key = None
        self.answers = []
        self.requests = []
        self.n_aborted = 0
        self.connections = set()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.owner = self
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, args=[0.05], daemon=True).start()

    def next_answer(self, _body):
        return self.answers.pop(0) if self.answers else answer_events("An answer.")

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client was first
