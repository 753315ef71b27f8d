# SPDX-License-Identifier: MIT
"""Starts a server for a measurement, and waits until it is ready."""

import socket
import subprocess
import time
import urllib.error
import urllib.request

from scored_models import Failed

START_S = 300


class Server:
    """A server of this machine, on a free port. Use it in a with statement, or end() it.

    `command` gets --port. The server has to answer /health with 200 once it is ready.
    """

    def __init__(self, command):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([*command, "--port", str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise Failed("the server does not start: " + " ".join(command))
            time.sleep(0.1)

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def end(self):
        self.process.terminate()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
