#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf serve as its clients and its operator see it.

Usage: qsf_serve_test.py BIN_DIR SOURCE_DIR MODEL [unittest arguments]
"""

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
import serve_process  # noqa: E402

BIN_DIR, SOURCE_DIR, MODEL = sys.argv[1:4]
SERVE = serve_process.program_in(BIN_DIR)
PROMPTS = ["Once upon a time", "The fox said", "There was a little girl", "One day, a bird",
           "In the deep forest", "A boy named Tom", "The old man had", "Every morning"]


def server(*arguments, **keywords):
    return serve_process.Server(SERVE, MODEL, *arguments, **keywords)


def stalled_client(serve):
    """Returns a socket that asks for a stream larger than all buffers, and reads nothing of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect(("127.0.0.1", serve.port))
    body = json.dumps({"prompt": PROMPTS[0], "max_tokens": 3500, "temperature": 0,
                       "ignore_eos": True, "stream": True, "logprobs": 5})
    client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                   f"{len(body)}\r\n\r\n{body}".encode())
    return client


def call(*arguments):
    done = subprocess.run([SERVE, *arguments], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


class Options(unittest.TestCase):
    def test_wrong_values(self):
        bad = [["--port", "65536"], ["--port", "x"], ["--texts", "0"], ["--texts", "256"],
               ["--max-token-gap", "0"], ["--max-token-gap", "nan"], ["--max-wait", "-1"],
               ["--max-body", "0"], ["--max-connections", "0"], ["--queue", "0"],
               ["--socket", "some.sock", "--host", "0.0.0.0"],
               ["--no-prefix-cache", "--reuse-answers"], ["--cache-folder-size", "0"],
               ["--no-prefix-cache", "--cache-folder", "/tmp"],
               ["--kv-policy", "window", "--cache-folder", "/tmp"], ["--no-such-option"]]
        for arguments in bad:
            with self.subTest(arguments):
                code, out, err = call(MODEL, *arguments)
                self.assertEqual((code, out), (2, ""))
                self.assertEqual(err.count("\n"), 1)
                self.assertRegex(err, "^qsf[- ]serve: ")  # by the name it was called by

    def test_a_model_that_is_missing(self):
        code, _, err = call("/no/such/model.qsf")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/model.qsf", err)

    def test_two_models_of_one_name(self):
        code, _, err = call(MODEL, MODEL)
        self.assertEqual(code, 1)
        self.assertIn("two models are called", err)

    def test_a_bad_key_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            code, _, err = call(MODEL, "--api-key", keys.name)
            self.assertEqual(code, 1)
            self.assertIn("no API key", err)
            keys.write("# comment\nkey with spaces\n")
            keys.flush()
            code, _, err = call(MODEL, "--api-key", keys.name)
            self.assertEqual(code, 1)
            self.assertIn(":2: ", err)

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            code, _, err = call(MODEL, "--port", port)
        self.assertEqual(code, 1)
        self.assertIn(port, err)

    def test_a_budget_that_is_too_small(self):
        code, _, err = call(MODEL, "--port", "0", "--ram-budget", "5")
        self.assertEqual(code, 1)
        self.assertIn("MB", err)


class Watching(unittest.TestCase):
    def test_health_metrics_and_status(self):
        with server() as serve:
            self.assertEqual(serve.get("/health")[2], {"status": "ok"})
            self.assertEqual(serve.get("/v1/health")[2], {"status": "ok"})
            serve.complete(PROMPTS[0], max_tokens=8, temperature=0)
            serve.wait_for_metric("qsf_running_texts", 0)
            text = serve.get("/metrics")[2]
            self.assertIn("qsf_generated_tokens_total 8\n", text)
            self.assertRegex(text, r"qsf_drafted_tokens_total \d")
            self.assertRegex(text, r"qsf_accepted_draft_tokens_total \d")
            self.assertIn('qsf_requests_total{status="200"}', text)
            self.assertIn('qsf_state{state="ready"} 1\n', text)
            self.assertIn('qsf_time_to_first_token_seconds_bucket{le="+Inf"} 1\n', text)
            self.assertIn('qsf_time_between_tokens_seconds_count 7\n', text)
            status = serve.get("/status")[2]
            self.assertEqual(status["state"], "ready")
            self.assertGreater(status["memory"]["planned_bytes"], 0)
            self.assertGreater(status["kv"]["pages"], 0)

    def test_health_is_answered_while_a_prompt_is_computed(self):
        with server() as serve:
            prompt = " ".join(PROMPTS * 40)
            thread = threading.Thread(
                target=lambda: serve.complete(prompt[:1500], max_tokens=200, temperature=0))
            thread.start()
            for _ in range(20):
                began = time.monotonic()
                self.assertEqual(serve.get("/health")[0], 200)
                self.assertLess(time.monotonic() - began, 5)
            thread.join()

    def test_a_line_for_each_request_without_its_text(self):
        with server("--log-requests") as serve:
            text, _ = serve.complete("Once upon a time", max_tokens=12, temperature=0)
            self.assertEqual(serve.end(), 0)
            lines = serve.process.stdout.read().splitlines()
        self.assertEqual(len(lines), 1)
        line = json.loads(lines[0])
        self.assertEqual((line["status"], line["generated_tokens"]), (200, 12))
        self.assertNotIn("Once", lines[0])
        self.assertNotIn(text.strip()[:10], lines[0])


class Texts(unittest.TestCase):
    def test_alone_and_beside_others_a_text_is_the_same(self):
        requests = [{"prompt": prompt, "max_tokens": 60 + 7 * i, "seed": i,
                     "temperature": 0 if i % 2 == 0 else 0.9}
                    for i, prompt in enumerate(PROMPTS * 2)]
        with server() as serve:
            alone = [serve.complete(**request) for request in requests]
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                together = list(pool.map(lambda r: serve.complete(**r), requests))
        self.assertEqual(alone, together)
        self.assertGreater(len(set(alone)), 8)

    def test_a_stream_is_the_same_text(self):
        body = {"prompt": PROMPTS[0], "max_tokens": 50, "temperature": 0.8, "seed": 3}
        with server() as serve:
            whole, reason = serve.complete(**body)
            events = list(serve.events("/v1/completions", body))
        self.assertEqual(events[-1], "[DONE]")
        choices = [json.loads(event)["choices"][0] for event in events[:-1]]
        self.assertEqual("".join(choice["text"] for choice in choices), whole)
        self.assertEqual([c["finish_reason"] for c in choices if c["finish_reason"]], [reason])

    def test_a_cached_prefix_changes_nothing(self):
        prompt = " ".join(PROMPTS * 4)
        with server() as serve, server("--no-prefix-cache") as cold:
            body = {"prompt": prompt, "max_tokens": 40, "temperature": 0.7, "seed": 5}
            status, _, first = serve.post("/v1/completions", body)
            self.assertEqual(status, 200)
            _, _, second = serve.post("/v1/completions", body)
            self.assertEqual(first["choices"], second["choices"])
            self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            self.assertEqual(cold.post("/v1/completions", body)[2]["choices"], first["choices"])
            salted = serve.post("/v1/completions", {**body, "cache_salt": "other"})[2]
            self.assertEqual(salted["choices"], first["choices"])
            self.assertEqual(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_the_answers_to_one_prompt_compute_it_once(self):
        prompt = " ".join(PROMPTS * 2)
        for flags in ([], ["--no-prefix-cache"]):
            with self.subTest(flags), server(*flags) as serve:
                body = {"prompt": [prompt, PROMPTS[0]], "n": 4, "max_tokens": 30, "seed": 5,
                        "temperature": 0.8}
                # Beside another text, so that the prompts take several passes.
                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    other = pool.submit(serve.complete, PROMPTS[1], max_tokens=60, temperature=0)
                    answer = serve.post("/v1/completions", body)[2]
                    other.result()
                serve.wait_for_metric("qsf_running_texts", 0)
                computed = (serve.metric("qsf_prompt_tokens_total") -
                            serve.metric("qsf_cached_prompt_tokens_total"))
                n_other = serve.post("/tokenize", {"content": PROMPTS[1],
                                                   "add_special": True})[2]["tokens"]
                # Each prompt, and its last token for each of the other three answers.
                self.assertEqual(computed, answer["usage"]["prompt_tokens"] + 6 + len(n_other))
                texts = [choice["text"] for choice in answer["choices"]]
                self.assertEqual(len(set(texts)), 8)
                for i, text in enumerate(texts):
                    alone = serve.complete([prompt, PROMPTS[0]][i // 4], max_tokens=30,
                                           seed=5 + i % 4, temperature=0.8)
                    self.assertEqual(text, alone[0], i)

    # As lm-evaluation-harness scores texts: prompts of ids, and the entries behind a context.
    def test_prompts_are_scored(self):
        texts = [" ".join(PROMPTS[i:]) for i in range(3)]
        scoring = {"echo": True, "logprobs": 1, "temperature": 0}
        with server() as serve:
            ids = [serve.post("/tokenize", {"content": text, "add_special": True})[2]["tokens"]
                   for text in texts]
            for n_new in (0, 1, 6):
                body = {**scoring, "prompt": ids, "max_tokens": n_new, "n": 2}
                status, _, answer = serve.post("/v1/completions", body)
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
                for choice in answer["choices"]:
                    prompt = ids[choice["index"] // 2]
                    entries = choice["logprobs"]
                    n_entries = len(prompt) + n_new
                    self.assertEqual([len(array) for array in entries.values()], [n_entries] * 4)
                    self.assertEqual("".join(entries["tokens"]), choice["text"])
                    self.assertEqual(entries["token_logprobs"][0], None)
                    self.assertEqual(entries["top_logprobs"][0], None)
                    self.assertEqual(choice["finish_reason"], "length")
                    for token, top in zip(entries["token_logprobs"][1:],
                                          entries["top_logprobs"][1:]):
                        self.assertLessEqual(token, max(top.values()))
                    self.assertEqual({len(top) for top in entries["top_logprobs"][1:len(prompt)]},
                                     {1, 2})  # the likeliest, and the token where it is another
                    # What is drawn at temperature 0 is the likeliest.
                    for token, top in zip(entries["token_logprobs"][len(prompt):],
                                          entries["top_logprobs"][len(prompt):]):
                        self.assertEqual(token, max(top.values()))
                    for token, offset in zip(entries["tokens"], entries["text_offset"]):
                        self.assertTrue(choice["text"][offset:].startswith(token))
            # The token that ends a text counts as an entry.
            end, = serve.post("/tokenize", {"content": "</s>"})[2]["tokens"]
            body = {**scoring, "prompt": ids[0], "max_tokens": 1, "logit_bias": {str(end): 100}}
            ended = serve.post("/v1/completions", body)[2]["choices"][0]
            self.assertEqual(ended["finish_reason"], "stop")
            self.assertEqual(len(ended["logprobs"]["token_logprobs"]), len(ids[0]) + 1)
            self.assertLess(ended["logprobs"]["token_logprobs"][-1], 0)
            # A text has the entries of its own tokens, and the same numbers; a stream, too.
            body = {**scoring, "prompt": texts[0], "max_tokens": 2}
            whole = serve.post("/v1/completions", body)[2]["choices"][0]
            own = serve.post("/tokenize", {"content": texts[0]})[2]["tokens"]
            of_ids = serve.post("/v1/completions", {**body, "prompt": ids[0]})[2]["choices"][0]
            n_added = len(ids[0]) - len(own)
            self.assertEqual(whole["logprobs"]["token_logprobs"],
                             of_ids["logprobs"]["token_logprobs"][n_added:])
            self.assertEqual("".join(whole["logprobs"]["tokens"]), whole["text"])
            self.assertTrue(whole["text"].startswith(texts[0]))
            chunks = [json.loads(event)["choices"][0]
                      for event in list(serve.events("/v1/completions", body))[:-1]]
            self.assertEqual("".join(chunk["text"] for chunk in chunks), whole["text"])
            for name, array in whole["logprobs"].items():
                streamed = sum((chunk["logprobs"][name] for chunk in chunks), [])
                self.assertEqual(streamed, array, name)
            scored = of_ids["logprobs"]["token_logprobs"][:len(ids[0])]
        # qsf perplexity scores the second half of a line.
        with tempfile.TemporaryDirectory() as folder:
            text, losses = os.path.join(folder, "text"), os.path.join(folder, "losses")
            with open(text, "w", encoding="utf-8") as file:
                file.write(texts[0])
            subprocess.run([os.path.join(BIN_DIR, "qsf-perplexity"), MODEL, "--lines", "--file",
                            text, "--losses", losses], check=True, capture_output=True, timeout=60)
            with open(losses, encoding="utf-8") as file:
                line = json.loads(file.readline())
        self.assertEqual(line["ids"], ids[0])
        for log_prob, loss in zip(reversed(scored), reversed(line["losses"])):
            self.assertAlmostEqual(log_prob, -loss, places=4)

    def test_a_text_without_a_limit_ends_with_its_context(self):
        with server("--max-seq-len", "256") as serve:
            text, reason = serve.complete(PROMPTS[1], max_tokens=-1, ignore_eos=True,
                                          temperature=0)
        self.assertEqual(reason, "length")
        self.assertGreater(len(text), 100)

    def test_a_grammar_without_a_way_on_is_a_mistake_of_the_request(self):
        with server() as serve:
            status, _, answer = serve.post("/v1/completions", {
                "prompt": PROMPTS[0], "grammar": 'root ::= "a" []'})
            self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"))
            self.assertIn("grammar: ", answer["error"]["message"])

    def test_a_prompt_beyond_the_context_is_refused(self):
        with server("--max-seq-len", "128") as serve:
            status, _, answer = serve.post("/v1/completions", {"prompt": "word " * 400})
        self.assertEqual(status, 400)
        error = answer["error"]
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn("maximum context length is 128 tokens", error["message"])


class CacheFolder(unittest.TestCase):
    """Conversations that leave memory and are read again."""

    LIMITS = ["--max-seq-len", "512", "--kv-positions", "512", "--texts", "1"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def server(self, *arguments, **keywords):
        return server(*self.LIMITS, "--cache-folder", self.folder.name, *arguments, **keywords)

    def files(self):
        return [os.path.join(path, name) for path, _, names in os.walk(self.folder.name)
                for name in names]

    @staticmethod
    def ask(serve, number, **fields):
        """Returns the text after a prompt of over 200 tokens, and how many were cached."""
        body = {"prompt": f"{number} " + " ".join(PROMPTS * 5), "max_tokens": 20, "seed": 3,
                "temperature": 0.8, **fields}
        status, _, answer = serve.post("/v1/completions", body)
        assert status == 200, answer
        return (answer["choices"][0]["text"],
                answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    def test_conversations_are_read_and_their_texts_stay_the_same(self):
        with server(*self.LIMITS, "--no-prefix-cache") as cold:
            expected = [self.ask(cold, i)[0] for i in range(6)]
        with self.server() as serve:
            self.assertEqual([self.ask(serve, i) for i in range(6)], [(t, 0) for t in expected])
            self.assertEqual(serve.metric("qsf_cache_folder_hits_total"), 0)
            for i in range(6):
                text, n_cached = self.ask(serve, i)
                self.assertEqual(text, expected[i])
                self.assertGreaterEqual(n_cached, 128)
            # Another key has no part in them.
            self.assertEqual(self.ask(serve, 0, cache_salt="another"), (expected[0], 0))
            serve.wait_for_metric("qsf_cache_folder_hits_total", least=4)
            serve.wait_for_metric("qsf_cache_folder_read_bytes_total", least=1)
            serve.wait_for_metric("qsf_cache_folder_files", len(self.files()))
            serve.wait_for_metric("qsf_cache_folder_bytes",
                                  sum(map(os.path.getsize, self.files())))
            for path in self.files():
                if not serve_process.IN_WINE:  # the folder's list of rights is for them too
                    self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
                with open(path, "rb") as file:
                    self.assertNotIn(b"Once", file.read())
            self.assertEqual(serve.end(), 0)
        self.assertEqual(self.files(), [])

    def test_the_folder_stays_within_its_size(self):
        with self.server("--cache-folder-size", "1M") as serve:
            for i in range(12):
                self.ask(serve, i % 6)
                self.assertLessEqual(sum(map(os.path.getsize, self.files())), 1_000_000)
            serve.wait_for_metric("qsf_cache_folder_removed_files_total", least=1)

    def test_damaged_files_are_computed_and_told(self):
        with self.server() as serve:
            expected = [self.ask(serve, i)[0] for i in range(4)]
            for path in self.files():
                with open(path, "r+b") as file:
                    file.seek(5000)
                    byte = file.read(1)[0]
                    file.seek(5000)
                    file.write(bytes([byte ^ 1]))
            text, n_cached = self.ask(serve, 0)
            self.assertEqual(text, expected[0])
            self.assertLess(n_cached, 128)
            serve.wait_for_metric('qsf_cache_folder_errors_total{operation="read"}', least=1)
            self.assertIn("the file was cut or changed", "".join(serve.errors))

    def test_one_server_at_a_time(self):
        with self.server() as serve:
            code, _, err = call(MODEL, "--port", "0", "--cache-folder", self.folder.name)
            self.assertEqual(code, 1)
            self.assertIn("another server uses it", err)
            for i in range(4):
                self.ask(serve, i)
            self.assertGreater(len(self.files()), 0)
            serve.process.kill()
            serve.process.wait()
        self.assertGreater(len(self.files()), 0)  # nobody could remove them
        with self.server():
            self.assertEqual(self.files(), [])

    def test_a_folder_that_is_missing(self):
        code, _, err = call(MODEL, "--port", "0", "--cache-folder", "/no/such/folder")
        self.assertEqual(code, 1)
        self.assertIn("--cache-folder: /no/such/folder", err)


class Load(unittest.TestCase):
    def test_texts_that_find_no_pages_are_parked_and_end_alike(self):
        # Pages for little more than one context, and texts without a limit: they cannot all stay.
        limits = ["--max-seq-len", "512", "--kv-positions", "640", "--default-max-tokens", "64"]
        requests = [{"prompt": prompt, "max_tokens": -1, "ignore_eos": True, "seed": i,
                     "temperature": 0.8} for i, prompt in enumerate(PROMPTS)]
        with server(*limits) as serve:
            alone = [serve.complete(**request) for request in requests]
            self.assertEqual(serve.metric("qsf_parkings_total"), 0)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                together = list(pool.map(lambda r: serve.complete(**r), requests))
            self.assertGreater(serve.metric("qsf_parkings_total"), 0)
            self.assertEqual(serve.end(), 0)
        self.assertEqual(alone, together)

    def test_a_full_queue_is_told_at_once(self):
        with server("--texts", "1", "--queue", "2") as serve:
            body = {"prompt": PROMPTS[0], "max_tokens": 1500, "temperature": 0, "ignore_eos": True}
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: serve.post("/v1/completions", body), range(8)))
            refused = [answer for answer in answers if answer[0] == 429]
            self.assertGreater(len(refused), 0)
            self.assertEqual({answer[0] for answer in answers}, {200, 429})
            for _, headers, answer in refused:
                self.assertIn(int(headers["Retry-After"]), range(1, 121))
                self.assertEqual(answer["error"]["type"], "rate_limit_error")

    def test_a_request_that_waits_too_long_is_refused(self):
        with server("--texts", "1", "--max-wait", "1") as serve, stalled_client(serve):
            serve.wait_for_metric("qsf_running_texts", 1)
            status, headers, _ = serve.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
            self.assertEqual(status, 429)
            self.assertIn("Retry-After", headers)

    def test_a_client_that_goes_frees_its_text(self):
        with server("--texts", "1") as serve:
            body = {"prompt": PROMPTS[0], "max_tokens": 3500, "temperature": 0, "ignore_eos": True}
            events = serve.events("/v1/completions", body)
            next(events)
            serve.wait_for_metric("qsf_running_texts", 1)
            events.close()
            # It takes the one place that the text had.
            self.assertEqual(serve.complete("Hello", max_tokens=2, temperature=0)[1], "length")

    def test_a_client_that_reads_nothing_holds_no_pass(self):
        with server("--texts", "2", "--write-timeout", "2") as serve, stalled_client(serve):
            for prompt in PROMPTS[:3]:
                self.assertEqual(serve.complete(prompt, max_tokens=30, temperature=0)[1], "length")
            serve.wait_for_metric("qsf_running_texts", 0)


class Access(unittest.TestCase):
    def test_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("# keys\nfirst-key\nsecond-key\n")
            keys.flush()
            with server("--api-key", keys.name) as serve:
                body = {"prompt": "x", "max_tokens": 1}
                for headers in ({}, {"Authorization": "Bearer first"},
                                {"Authorization": "Bearer first-keyy"},
                                {"Authorization": "first-key"}, {"X-Api-Key": "third"}):
                    status, _, answer = serve.post("/v1/completions", body, **headers)
                    self.assertEqual(status, 401, headers)
                    self.assertEqual(answer["error"]["type"], "authentication_error")
                for headers in ({"Authorization": "Bearer first-key"},
                                {"Authorization": "bearer second-key"},
                                {"X-Api-Key": "second-key"}):
                    self.assertEqual(serve.post("/v1/completions", body, **headers)[0], 200)
                self.assertEqual(serve.get("/health")[0], 200)
                self.assertEqual(serve.get("/v1/models")[0], 200)
                self.assertEqual(serve.get("/metrics")[0], 401)

    def test_pages_of_other_sites(self):
        with server("--origin", "https://chat.example") as serve:
            body = {"prompt": "x", "max_tokens": 1}
            here = f"127.0.0.1:{serve.port}"
            status, headers, _ = serve.post("/v1/completions", body, Origin="https://evil.example")
            self.assertEqual(status, 403)
            self.assertNotIn("Access-Control-Allow-Origin", headers)
            status, headers, _ = serve.post("/v1/completions", body, Origin="https://chat.example")
            self.assertEqual(status, 200)
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://chat.example")
            status, headers, _ = serve.request("OPTIONS", "/v1/chat/completions", None,
                                               {"Origin": "https://chat.example"})
            self.assertEqual(status, 204)
            self.assertIn("POST", headers["Access-Control-Allow-Methods"])
            self.assertEqual(serve.post("/v1/completions", body, Origin=f"http://{here}")[0], 200)
            rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
            self.assertEqual(serve.post("/v1/completions", body, **rebound)[0], 403)

    def test_paths_and_methods(self):
        with server() as serve:
            self.assertEqual(serve.get("/no/such/path")[0], 404)
            status, headers, _ = serve.get("/v1/chat/completions")
            self.assertEqual(status, 405)
            self.assertEqual(headers["Allow"], "POST")
            self.assertEqual(serve.post("/health", {})[0], 405)

    @unittest.skipIf(serve_process.IN_WINE, "the program for Windows has no Unix sockets")
    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "qsf.sock")
            process = subprocess.Popen([SERVE, MODEL, "--socket", path, "--quiet"],
                                       stdin=subprocess.DEVNULL)
            try:
                end = time.monotonic() + 60
                answer = b""
                while b"200 OK" not in answer and time.monotonic() < end:
                    time.sleep(0.1)
                    if not os.path.exists(path):
                        continue
                    with socket.socket(socket.AF_UNIX) as client:
                        client.connect(path)
                        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
                                       b"Connection: close\r\n\r\n")
                        answer = client.recv(4096)
                self.assertIn(b"200 OK", answer)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(60), 0)
                self.assertFalse(os.path.exists(path))
            finally:
                process.kill()
                process.wait()


class Models(unittest.TestCase):
    def test_models_by_name(self):
        with serve_process.Server(SERVE, "one=" + MODEL, "two=" + MODEL) as serve:
            listed = [model["id"] for model in serve.get("/v1/models")[2]["data"]]
            self.assertEqual(listed, ["one", "two"])
            texts = {serve.complete("The fox", model=name, max_tokens=20, temperature=0)
                     for name in ("one", "two", "one", "two:latest")}
            self.assertEqual(len(texts), 1)
            status, _, answer = serve.post("/v1/completions", {"model": "three", "prompt": "x"})
            self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_a_model_that_fits_no_budget_is_refused_with_the_one_that_works(self):
        with serve_process.Server(SERVE, "small=" + MODEL, "broken=" + os.path.abspath(__file__),
                                  "--texts", "2") as serve:
            status, _, answer = serve.post("/v1/completions", {"model": "broken", "prompt": "x"})
            self.assertEqual(status, 400)
            self.assertIn("cannot be loaded", answer["error"]["message"])
            self.assertEqual(serve.complete("The fox", model="small", max_tokens=2)[1], "length")


class Ending(unittest.TestCase):
    def test_a_signal_finishes_what_runs(self):
        with server("--texts", "4") as serve:
            body = {"prompt": PROMPTS[0], "max_tokens": 900, "temperature": 0, "ignore_eos": True,
                    "logprobs": 5, "stream_options": {"include_usage": True}}
            streams = [serve.events("/v1/completions", body) for _ in range(4)]
            for stream in streams:
                next(stream)
            serve.process.send_signal(serve_process.DRAIN)
            for stream in streams:
                events = list(stream)
                self.assertEqual(events[-1], "[DONE]")
                self.assertEqual(json.loads(events[-2])["usage"]["completion_tokens"], 900)
            self.assertEqual(serve.process.wait(60), 0)

    def test_two_interrupts_end_at_once(self):
        with server() as serve:
            body = {"prompt": PROMPTS[0], "max_tokens": 3500, "temperature": 0, "ignore_eos": True}
            events = serve.events("/v1/completions", body)
            next(events)
            began = time.monotonic()
            serve.end(signal.SIGINT, signal.SIGINT)
            self.assertLess(time.monotonic() - began, 10)
            events.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
