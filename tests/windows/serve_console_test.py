#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf.exe serve, and what happens to its console.

Usage: in_wine.py WINDOWS_BIN_DIR serve_console_test.py BIN SOURCE_DIR [unittest arguments]

Exit status 77 without the compiler for Windows, which makes the program that tells of events.
"""

import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import wine

BIN_DIR, SOURCE_DIR = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE_DIR, "tools", "serve", "testing"))
import serve_process  # noqa: E402  (the path has to be there first)

COMPILER = "x86_64-w64-mingw32-g++-posix"
MODEL = os.path.join(SOURCE_DIR, "models", "tales-5M-4bit.qsf")
SERVE = serve_process.program_in(BIN_DIR)
CTRL_C, CTRL_BREAK, CLOSED, LOGGED_OFF, SHUT_DOWN = 0, 1, 2, 5, 6
LONG = {"prompt": "Once upon a time", "max_tokens": 900, "temperature": 0, "ignore_eos": True}


def setUpModule():
    global scratch, teller
    scratch = tempfile.TemporaryDirectory()
    teller = os.path.join(scratch.name, "console_event.exe")
    subprocess.run([COMPILER, "-municode", "-static", "-o", teller,
                    os.path.join(SOURCE_DIR, "tests", "windows", "console_event.cc")], check=True)


def tearDownModule():
    scratch.cleanup()


def tell(event):
    """Has the one qsf.exe that runs be told of an event of its console."""
    subprocess.run([wine.WINE, teller, "qsf.exe", str(event)], check=True, timeout=wine.TIMEOUT_S)


class Events(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def server(self, *arguments):
        return serve_process.Server(SERVE, MODEL, "--session-dir", self.folder, *arguments)

    def test_each_event_has_what_runs_finished(self):
        for event in (CTRL_C, CTRL_BREAK, CLOSED, LOGGED_OFF, SHUT_DOWN):
            with self.subTest(event), self.server("--texts", "4") as serve:
                self.assertEqual(len(os.listdir(self.folder)), 1)
                streams = [serve.events("/v1/completions", LONG) for _ in range(4)]
                for stream in streams:
                    next(stream)
                tell(event)
                for stream in streams:
                    self.assertEqual(list(stream)[-1], "[DONE]")
                self.assertEqual(serve.process.wait(60), 0)
                self.assertIn("ending when the running requests are answered", "".join(serve.errors))
                self.assertEqual(os.listdir(self.folder), [])

    def test_what_comes_after_a_closed_console_is_refused(self):
        with self.server() as serve, self.stalled_client(serve):
            tell(CLOSED)
            self.assertEqual(serve.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0], 503)
            self.assertEqual(serve.get("/health")[0], 503)

    def test_a_closed_console_leaves_four_seconds(self):
        with self.server() as serve, self.stalled_client(serve):
            began = time.monotonic()
            tell(CLOSED)
            self.assertEqual(serve.process.wait(60), 0)
            self.assertGreater(time.monotonic() - began, 3)
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual(os.listdir(self.folder), [])

    def test_an_interrupt_waits_for_a_slow_client_and_two_do_not(self):
        with self.server("--write-timeout", "100") as serve, self.stalled_client(serve):
            tell(CTRL_C)
            time.sleep(6)
            self.assertIsNone(serve.process.poll())
            tell(CTRL_C)
            self.assertEqual(serve.process.wait(10), 0)

    def stalled_client(self, serve):
        """Returns a client whose stream has begun, and who reads no more of it."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", serve.port))
        body = ('{"prompt": "Once", "max_tokens": 950, "temperature": 0, "ignore_eos": true, "stream": true, '
                '"logprobs": 5}')
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                       .encode())
        serve.wait_for_metric("qsf_running_texts", 1)
        return client

    def test_ctrl_c_is_typed(self):
        master, slave = pty.openpty()
        serve = subprocess.Popen([SERVE, MODEL, "--port", "0"], stdin=slave, stdout=slave, stderr=subprocess.PIPE,
                                 start_new_session=True, text=True,
                                 preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)))
        try:
            os.close(slave)
            self.assertRegex(serve.stderr.readline(), r"listening on http://127\.0\.0\.1:\d+")
            os.write(master, b"\x03")
            self.assertEqual(serve.wait(60), 0)
            self.assertIn("ending when the running requests are answered", serve.stderr.read())
        finally:
            serve.kill()
            serve.stderr.close()
            os.close(master)


class Programs(unittest.TestCase):
    def call(self, *arguments):
        done = subprocess.run([SERVE, *arguments], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stderr

    def test_health_is_asked(self):
        with serve_process.Server(SERVE, MODEL) as serve:
            port = str(serve.port)
            self.assertEqual(self.call("--check-health", "--port", port), (0, ""))
        code, err = self.call("--check-health", "--port", port)
        self.assertEqual(code, 1)
        self.assertIn(f"127.0.0.1:{port}: Connection refused", err)

    def test_unix_sockets_are_refused_by_name(self):
        for arguments in (["--socket", "a.sock"], ["--socket", "a.sock", "--check-health"]):
            code, err = self.call(MODEL, *arguments)
            self.assertEqual(code, 1)
            self.assertIn("a.sock: Unix sockets are not in the program for Windows", err)

    def test_two_servers_do_not_share_a_port(self):
        with serve_process.Server(SERVE, MODEL) as serve:
            code, err = self.call(MODEL, "--port", str(serve.port))
            self.assertEqual(code, 1)
            self.assertRegex(err, f"cannot listen at 127.0.0.1:{serve.port}: (Address already in use|Permission denied)")

    def test_names_that_no_code_page_has(self):
        with tempfile.TemporaryDirectory() as folder:
            name = "Gr\u00f6\u00dfe \u65e5\u672c\u8a9e \U0001F600"
            shutil.copy(MODEL, os.path.join(folder, name + ".qsf"))
            with serve_process.Server(SERVE, os.path.join(folder, name + ".qsf"), "--models-dir", folder, ready=False) as serve:
                serve.process.wait(60)
                self.assertIn("two models are called", "".join(serve.errors))
            with serve_process.Server(SERVE, "--models-dir", folder) as serve:
                self.assertEqual([model["id"] for model in serve.get("/v1/models")[2]["data"]], [name])
                self.assertEqual(serve.complete("Once", model=name, max_tokens=4)[1], "length")


if __name__ == "__main__":
    if not shutil.which(COMPILER):
        print(f"serve_console_test: skipped: no {COMPILER}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
