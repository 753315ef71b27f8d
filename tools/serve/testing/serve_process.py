# SPDX-License-Identifier: MIT
"""Starts `qsf serve` for tests, and sends it requests."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

TIMEOUT_S = 120
IN_WINE = "QSF_TEST_IN_WINE" in os.environ  # tests/windows/in_wine.py
# Has a server finish what runs. Wine makes a Ctrl-C of the one, and ends the program at once at the
# other.
DRAIN = signal.SIGINT if IN_WINE else signal.SIGTERM


class Server:
    """A server on a free port of this machine. Use it in a with statement.

    `wrapper`: a command that the program is run by, such as one that sets a limit and executes it.
    """

    def __init__(self, program, *arguments, ready=True, wrapper=()):
        self.process = subprocess.Popen(
            [*wrapper, program, "--port", "0", *arguments], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.errors = []
        self.port = None
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        if ready:
            self.wait_until_ready()

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line)
            match = re.search(r"listening on http://[^:/]+:(\d+)", line)
            if match:
                self.port = int(match[1])
                self._listening.set()
        self._listening.set()

    def wait_until_ready(self):
        self._listening.wait(TIMEOUT_S)
        if self.port is None:
            self.process.wait(TIMEOUT_S)
            raise RuntimeError("the server ended: " + "".join(self.errors))
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if self.get("/health")[0] == 200:
                return
            time.sleep(0.05)
        raise RuntimeError("the server does not become ready: " + "".join(self.errors))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        self.process.stdout.close()
        self.process.stderr.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def request(self, method, path, body=None, headers=None):
        """Returns status, headers and body, which is parsed if it is JSON."""
        connection = self.connect()
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            data = answer.read().decode("utf-8")
            if answer.getheader("Content-Type", "").startswith("application/json"):
                data = json.loads(data)
            return answer.status, dict(answer.getheaders()), data
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, **headers):
        return self.request("POST", path, body, headers)

    def complete(self, prompt, **fields):
        """Returns the text and the finish reason of a completion."""
        status, _, answer = self.post("/v1/completions", {"prompt": prompt, **fields})
        assert status == 200, (status, answer)
        choice = answer["choices"][0]
        return choice["text"], choice["finish_reason"]

    def events(self, path, body, **headers):
        """Yields the data of each event of a stream."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), headers)
            answer = connection.getresponse()
            assert answer.status == 200, (answer.status, answer.read())
            for line in answer:
                line = line.decode("utf-8").rstrip("\r\n")
                if line.startswith("data: "):
                    yield line[len("data: "):]
        finally:
            connection.close()

    def metric(self, name):
        """Returns the value of a metric without labels."""
        _, _, text = self.get("/metrics")
        for line in text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def wait_for_metric(self, name, value=None, least=None):
        """Waits until a metric has a value, or at least one: they are published now and then."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            now = self.metric(name)
            if now == value or (least is not None and now >= least):
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} is {now}, expected {value if least is None else least}")

    def end(self, *signals):
        """Sends signals and returns the exit code."""
        for number in signals or (DRAIN,):
            self.process.send_signal(number)
            time.sleep(0.05)
        return self.process.wait(TIMEOUT_S)


def program_in(bin_dir):
    return os.path.join(bin_dir, "qsf-serve")
