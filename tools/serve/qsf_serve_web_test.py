#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The files of `qsf serve --web` as browsers ask for them, and as others should not get them.

Usage: qsf_serve_web_test.py BIN_DIR MODEL [unittest arguments]
"""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
import serve_process  # noqa: E402

BIN_DIR, MODEL = sys.argv[1:3]
SERVE = serve_process.program_in(BIN_DIR)
LARGE_BYTES = 30_000_000
SECRET = b"nobody's business"


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


class Web(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="qsf_serve_web_test.")
        top = cls.folder.name
        cls.web = os.path.join(top, "web")
        cls.large = random.Random(1).randbytes(LARGE_BYTES)
        write(os.path.join(top, "secret.txt"), SECRET)
        write(os.path.join(cls.web, "page.html"), b"<p>page")
        write(os.path.join(cls.web, "qsf.js"), b"let a;")
        write(os.path.join(cls.web, "m.wasm"), b"\0asm")
        write(os.path.join(cls.web, "empty.txt"), b"")
        write(os.path.join(cls.web, "models", "a b \u00e9.qsf"), cls.large)
        if "QSF_TEST_IN_WINE" not in os.environ:  # which shows programs where a link leads
            os.symlink(os.path.join(top, "secret.txt"), os.path.join(cls.web, "link.txt"))
            os.symlink(top, os.path.join(cls.web, "up"))
        os.mkfifo(os.path.join(cls.web, "pipe"))
        with tempfile.NamedTemporaryFile("w", suffix=".keys", delete=False, dir=top) as keys:
            keys.write("a-key\n")
        cls.server = serve_process.Server(SERVE, MODEL, "--web", cls.web, "--api-key", keys.name,
                                          "--write-timeout", "2")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    def ask(self, path, method="GET", **headers):
        connection = self.server.connect()
        try:
            connection.putrequest(method, path)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def test_files_with_their_types_and_what_isolates_a_page(self):
        for name, kind, data in [("page.html", "text/html; charset=utf-8", b"<p>page"),
                                 ("qsf.js", "text/javascript; charset=utf-8", b"let a;"),
                                 ("m.wasm", "application/wasm", b"\0asm"),
                                 ("empty.txt", "text/plain; charset=utf-8", b"")]:
            with self.subTest(name):
                status, headers, body = self.ask("/web/" + name)
                self.assertEqual((status, headers["Content-Type"], body), (200, kind, data))
                self.assertEqual(headers["Content-Length"], str(len(data)))
                self.assertEqual(headers["Accept-Ranges"], "bytes")
                self.assertEqual(headers["Cross-Origin-Opener-Policy"], "same-origin")
                self.assertEqual(headers["Cross-Origin-Embedder-Policy"], "require-corp")
                self.assertRegex(headers["ETag"], r'^"[0-9a-f]+-[0-9a-f]+"$')

    def test_ranges(self):
        path = "/web/models/a%20b%20%C3%A9.qsf"
        status, headers, body = self.ask(path)
        self.assertEqual((status, body == self.large), (200, True))
        tag = headers["ETag"]
        for asked, first, last in [("bytes=0-0", 0, 0), ("bytes=12345678-22345677", 12345678, 22345677),
                                   ("bytes=29999999-", 29999999, 29999999),
                                   ("bytes=-5", LARGE_BYTES - 5, LARGE_BYTES - 1),
                                   ("bytes=29999990-99999999", 29999990, LARGE_BYTES - 1)]:
            with self.subTest(asked):
                status, headers, body = self.ask(path, Range=asked, If_Match=tag)
                self.assertEqual(status, 206)
                self.assertEqual(headers["Content-Range"], f"bytes {first}-{last}/{LARGE_BYTES}")
                self.assertEqual(headers["Content-Length"], str(last - first + 1))
                self.assertEqual(headers["ETag"], tag)
                self.assertTrue(body == self.large[first:last + 1])
        status, headers, body = self.ask(path, Range="bytes=30000000-")
        self.assertEqual((status, headers["Content-Range"], body), (416, f"bytes */{LARGE_BYTES}", b""))
        self.assertEqual(self.ask(path, Range="bytes=1-2", If_Range=tag)[0], 206)
        self.assertEqual(self.ask(path, Range="bytes=1-2", If_Range='"other"')[0], 200)
        self.assertEqual(self.ask(path, Range="bytes=1-2", If_Match='"other"')[0], 412)
        self.assertEqual(self.ask(path, If_None_Match=tag)[0], 304)

    def test_head(self):
        status, headers, body = self.ask("/web/models/a%20b%20%C3%A9.qsf", "HEAD", Range="bytes=5-9")
        self.assertEqual((status, headers["Content-Length"], body), (206, "5", b""))
        status, headers, _ = self.ask("/web/models/a%20b%20%C3%A9.qsf", "HEAD")
        self.assertEqual((status, headers["Content-Length"]), (200, str(LARGE_BYTES)))

    def test_only_reads(self):
        for method in ["POST", "PUT", "DELETE", "PATCH"]:
            status, headers, _ = self.ask("/web/qsf.js", method, Content_Length="0")
            self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"), method)

    def test_nothing_outside_of_the_folder(self):
        secret = os.path.join(self.folder.name, "secret.txt")
        for path in ["/web/../secret.txt", "/web/%2e%2e/secret.txt", "/web/%2E%2E%2Fsecret.txt",
                     "/web/..%2fsecret.txt", "/web/models/../../secret.txt", "/web/..\\secret.txt",
                     "/web/%5c..%5csecret.txt", "/web/%252e%252e/secret.txt", "/web/./qsf.js",
                     "/web//qsf.js", "/web/models/../qsf.js", "/web/%c0%ae%c0%ae/secret.txt",
                     "/web/" + secret, "/web/%2f" + secret[1:], "/web/link.txt", "/web/up/secret.txt",
                     "/web/up/web/qsf.js", "/web/pipe", "/web/models", "/web/models/", "/web/",
                     "/web/qsf.js%00", "/web/qsf.js%00.html", "/web/qsf.js%", "/web/qsf.js/"]:
            with self.subTest(path):
                status, _, body = self.ask(path)
                self.assertIn(status, (400, 404))
                self.assertNotIn(SECRET, body)
        self.assertIn(self.ask("/webqsf.js")[0], (401, 404))
        self.assertEqual(self.ask("/web/qsf.js?version=2")[0], 200)

    @unittest.skipIf("QSF_TEST_IN_WINE" in os.environ, "Wine shows programs where a link leads")
    def test_a_file_that_becomes_a_link_or_another(self):
        path = os.path.join(self.web, "qsf.js")
        tag = self.ask("/web/qsf.js")[1]["ETag"]
        os.rename(path, path + ".old")
        try:
            self.assertEqual(self.ask("/web/qsf.js")[0], 404)
            os.symlink(os.path.join(self.folder.name, "secret.txt"), path)
            self.assertEqual(self.ask("/web/qsf.js")[0], 404)
            os.remove(path)
            write(path, b"let b;")
            status, headers, body = self.ask("/web/qsf.js")
            self.assertEqual((status, body), (200, b"let b;"))
            self.assertNotEqual(headers["ETag"], tag)
            self.assertEqual(self.ask("/web/qsf.js", If_Match=tag)[0], 412)
            self.assertEqual(self.ask("/web/qsf.js.old")[0], 404)  # was not there at the start
        finally:
            os.replace(path + ".old", path)

    def test_slow_clients_hold_no_file_in_memory(self):
        def resident_kb():
            with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        request = b"GET /web/models/a%20b%20%C3%A9.qsf HTTP/1.1\r\nHost: localhost\r\n\r\n"
        before = resident_kb()
        slow = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(20)]
        try:
            for client in slow:
                client.sendall(request)
            time.sleep(0.5)
            self.assertLess(1000 * (resident_kb() - before), LARGE_BYTES)  # of which 20 are asked for
            self.assertEqual(self.ask("/web/qsf.js")[0], 200)
        finally:
            for client in slow:
                client.close()

    def test_connections_are_kept(self):
        connection = self.server.connect()
        for first in (0, 100, 1000):
            connection.request("GET", "/web/models/a%20b%20%C3%A9.qsf",
                               headers={"Range": f"bytes={first}-{first + 99999}"})
            answer = connection.getresponse()
            self.assertTrue(answer.read() == self.large[first:first + 100000])
        connection.close()

    def test_the_interfaces_still_need_the_key(self):
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "a"})[0], 401)


class Options(unittest.TestCase):
    def test_a_folder_that_is_missing(self):
        done = subprocess.run([SERVE, MODEL, "--web", "/no/such/folder", "--port", "0"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--web: /no/such/folder", done.stderr)

    def test_none_without_the_option(self):
        with serve_process.Server(SERVE, MODEL) as server:
            self.assertEqual(server.get("/web/qsf.js")[0], 404)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
