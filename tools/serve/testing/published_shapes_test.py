#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The bodies of qsf serve against the OpenAPI documents of OpenAI and Anthropic, and against the
types of their Python clients. Needs the packages of `./check long clients`, which runs it.

Usage: published_shapes_test.py BIN_DIR MODEL [unittest arguments]

MODEL is a chat model, such as SmolLM2-135M-Instruct.
"""

import concurrent.futures
import copy
import json
import os
import signal
import socket
import sys
import tempfile
import unittest

import anthropic.types
import openai.types.chat
import openai.types.responses
import pydantic

import published_shapes
import serve_process
from published_shapes import ShapeError

BIN_DIR, MODEL = sys.argv[1:3]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
PARAMETERS = {"type": "object", "required": ["city"], "additionalProperties": False,
              "properties": {"city": {"type": "string", "maxLength": 12}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
FLAT_TOOL = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": True}
SCHEMA = {"type": "object", "required": ["n"], "additionalProperties": False,
          "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}
# A thought and an answer, from any model.
THINKS = {"grammar": 'root ::= "<think>" [a-z ]{5,20} "</think>" [a-z ]{5,20}'}
LIMIT = {"temperature": 0, "max_tokens": 12}
CHAT_BODIES = [
    {"messages": QUESTION, **LIMIT},
    {"messages": QUESTION, **LIMIT, "max_tokens": 60},
    {"messages": QUESTION, **LIMIT, "logprobs": True, "top_logprobs": 2},
    {"messages": QUESTION, "max_tokens": 6, "n": 2, "seed": 1, "logprobs": True},
    {"messages": QUESTION, "temperature": 0, "tools": [TOOL], "tool_choice": "required",
     "max_tokens": 100},
    {"messages": QUESTION, "temperature": 0, "response_format": {
        "type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}},
    {"messages": QUESTION, **THINKS, "seed": 1},
]
COMPLETION_BODIES = [
    {"prompt": "The sea", **LIMIT},
    {"prompt": ["The sea", "A tree"], **LIMIT, "n": 2, "temperature": 1},
    {"prompt": "The sea", **LIMIT, "logprobs": 3},
    {"prompt": "The sea", **LIMIT, "logprobs": 0, "stop": ["."], "max_tokens": 60},
    {"prompt": "The sea", **LIMIT, "echo": True},
]
RESPONSE_LIMIT = {"temperature": 0, "max_output_tokens": 16}
RESPONSE_BODIES = [
    {"input": "Say hello.", **RESPONSE_LIMIT},
    {"input": "What is the capital of France?", "temperature": 0, "max_output_tokens": 200},
    {"input": QUESTION, **RESPONSE_LIMIT, "instructions": "Be brief.", "top_logprobs": 2,
     "include": ["message.output_text.logprobs"], "metadata": {"a": "b"}},
    {"input": "Weather in Rome?", "temperature": 0, "tools": [FLAT_TOOL], "max_output_tokens": 100,
     "tool_choice": "required"},
    {"input": "A number", "temperature": 0,
     "text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": SCHEMA}}},
    {"input": "Think", **THINKS, "max_output_tokens": 200},
]
# It fails behind its first letter, which nothing may follow.
FAILING_RESPONSE = {"input": "Fail", "grammar": 'root ::= "a" []'}
MESSAGE_BODIES = [
    {"messages": QUESTION, "max_tokens": 12},
    {"messages": QUESTION, "max_tokens": 60, "temperature": 0, "system": "Be brief."},
    {"messages": QUESTION, "max_tokens": 100, "tool_choice": {"type": "any"},
     "tools": [{"name": "get_weather", "input_schema": PARAMETERS}]},
    {"messages": QUESTION, "max_tokens": 200, "thinking": {"type": "enabled",
                                                          "budget_tokens": 1024}, **THINKS},
]
# What the clients' types do not know, and why it is there.
OWN_MEMBERS = {
    "reasoning_content",                 # DeepSeek's name, which OpenAI's interface lacks
    "store",                             # in the document's examples, but not in its schemas
    "name",                              # of finished arguments: in the document's schema
    "bytes",                             # of a token in a delta, as in a whole response
    "meta", "root", "max_model_len",     # of a model: llama-server's and vLLM's names
    "n_prompt_tokens", "n_ctx",          # of an error
}


def setUpModule():
    global serve, openai_shapes, anthropic_shapes
    openai_shapes = published_shapes.PublishedShapes.of_vendor("openai")
    anthropic_shapes = published_shapes.PublishedShapes.of_vendor("anthropic")
    serve = start("--texts", "8")


def tearDownModule():
    code = serve.end()
    serve.__exit__()
    assert code == 0, code


def start(*arguments):
    return serve_process.Server(serve_process.program_in(BIN_DIR), "chat=" + MODEL, *arguments)


class Shapes(unittest.TestCase):
    def post(self, path, body):
        status, _, answer = serve.post(path, {"model": "chat", **body})
        self.assertEqual(status, 200, answer)
        return answer

    def check_type(self, kind, body):
        """Checks `body` against a type of a client, every member of its exact type."""
        model = kind.validate_json(json.dumps(body), strict=True) if isinstance(
            kind, pydantic.TypeAdapter) else kind.model_validate_json(json.dumps(body), strict=True)
        unknown = {path.rsplit(".", 1)[1] for path in published_shapes.unknown_members(model)}
        self.assertLessEqual(unknown, OWN_MEMBERS, body)

    def check_answers(self, path, bodies, check):
        """Calls `check` with the answer to each body."""
        for body in bodies:
            with self.subTest(path=path, body=body):
                check(self.post(path, body))

    def check_streams(self, path, bodies, check):
        """Calls `check` with each event of each body's stream, and returns the events' types."""
        kinds = set()
        for body in bodies:
            with self.subTest(path=path, body=body, stream=True):
                events = list(serve.events(path, {"model": "chat", **body}))
                if path in (CHAT, COMPLETIONS):
                    self.assertEqual(events.pop(), "[DONE]")
                for event in map(json.loads, events):
                    kinds.add(event.get("type"))
                    check(event)
        return kinds


class OpenAi(Shapes):
    def test_models(self):
        models = serve.get("/v1/models")[2]
        openai_shapes.check("ListModelsResponse", models)
        model = serve.get("/v1/models/chat")[2]
        openai_shapes.check("Model", model)
        self.check_type(openai.types.Model, model)

    def checker(self, name, kind=None):
        def check(body):
            openai_shapes.check(name, body)
            if kind is not None:
                self.check_type(kind, body)
        return check

    def test_chat(self):
        self.check_answers(CHAT, CHAT_BODIES, self.checker(
            "CreateChatCompletionResponse", openai.types.chat.ChatCompletion))
        usage = {"stream_options": {"include_usage": True}, **CHAT_BODIES[0]}
        self.check_streams(CHAT, [*CHAT_BODIES, usage], self.checker(
            "CreateChatCompletionStreamResponse", openai.types.chat.ChatCompletionChunk))

    def test_completions(self):
        self.check_answers(COMPLETIONS, COMPLETION_BODIES, self.checker(
            "CreateCompletionResponse", openai.types.Completion))
        self.check_streams(COMPLETIONS, COMPLETION_BODIES, self.checker("CreateCompletionResponse"))

    def test_embeddings(self):
        self.check_answers("/v1/embeddings", [{"input": "one"}, {"input": ["one", "two"]}],
                           self.checker("CreateEmbeddingResponse",
                                        openai.types.CreateEmbeddingResponse))

    def test_responses(self):
        self.check_answers(RESPONSES, RESPONSE_BODIES, self.checker(
            "Response", openai.types.responses.Response))
        event_type = pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent)

        def check(event):
            openai_shapes.check_event("ResponseStreamEvent", event)
            self.check_type(event_type, event)

        kinds = self.check_streams(RESPONSES, [*RESPONSE_BODIES, FAILING_RESPONSE], check)
        self.assertIn("response.failed", kinds)
        self.assertEqual(len(kinds), 15, kinds)

    def test_input_tokens(self):
        answer = self.post("/v1/responses/input_tokens", {"input": "Say hello."})
        openai_shapes.check("TokenCountsResource", answer)


class Errors(Shapes):
    def check_error(self, answer, status):
        self.assertEqual(answer[0], status, answer)
        openai_shapes.check("ErrorResponse", answer[2])
        unknown = set(answer[2]["error"]) - {"message", "type", "param", "code"}
        self.assertLessEqual(unknown, OWN_MEMBERS)

    def test_bad_requests(self):
        for path, body in [(CHAT, {"messages": QUESTION, "temperature": 3}), (CHAT, {}),
                           (CHAT, {"messages": [{"role": "user", "content": "x " * 20000}]}),
                           (COMPLETIONS, {"prompt": 3}), ("/v1/embeddings", {"input": []}),
                           (RESPONSES, {"input": "x", "previous_response_id": "resp_1"}),
                           (CHAT, "{"), (CHAT, "[]")]:
            with self.subTest(path=path, body=str(body)[:60]):
                self.check_error(serve.post(path, body), 400)

    def test_places(self):
        self.check_error(serve.get("/v1/models/other"), 404)
        self.check_error(serve.post(CHAT, {"model": "other", "messages": QUESTION}), 404)
        self.check_error(serve.post("/v1/images/generations", {"prompt": "a cat"}), 404)
        self.check_error(serve.request("DELETE", CHAT), 405)

    def test_limits(self):
        with tempfile.NamedTemporaryFile("w", suffix=f"-{os.getpid()}.keys") as keys:
            keys.write("sk-good\n")
            keys.flush()
            with start("--api-key", keys.name, "--max-body", "10k", "--read-timeout", "1",
                       "--texts", "1", "--queue", "1") as limited:
                key = {"Authorization": "Bearer sk-good"}
                body = {"messages": QUESTION, "max_tokens": 400, "ignore_eos": True}
                self.check_error(limited.post(CHAT, body), 401)
                self.check_error(limited.get("/v1/models", Origin="https://evil.example", **key),
                                 403)
                large = {"messages": [{"role": "user", "content": "x" * 20000}]}
                self.check_error(limited.post(CHAT, large, **key), 413)
                self.check_error(limited.get("/v1/models", Long="x" * 70000, **key), 431)
                self.check_error(self.slow_request(limited), 408)
                with concurrent.futures.ThreadPoolExecutor(5) as pool:
                    answers = list(pool.map(lambda _: limited.post(CHAT, body, **key), range(5)))
                refused = [answer for answer in answers if answer[0] != 200]
                self.assertGreater(len(refused), 0)
                for answer in refused:
                    self.check_error(answer, 429)

    @staticmethod
    def slow_request(limited):
        """Returns what follows half of a body, as Server.request() does."""
        with socket.create_connection(("127.0.0.1", limited.port), 30) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Authorization: Bearer sk-good\r\nContent-Length: 100\r\n\r\n{")
            answer = b""
            while piece := client.recv(4096):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), {}, json.loads(body)

    def test_ending(self):
        body = {"messages": QUESTION, "max_tokens": 300, "ignore_eos": True}
        with start("--texts", "1") as ending:
            # A connection that is open when the server begins to end.
            client = ending.connect()
            client.request("GET", "/health")
            client.getresponse().read()
            stream = ending.events(CHAT, body)
            next(stream)
            ending.process.send_signal(signal.SIGTERM)
            client.request("POST", CHAT, json.dumps(body))
            answer = client.getresponse()
            self.check_error((answer.status, {}, json.loads(answer.read())), 503)
            client.close()
            self.assertEqual(list(stream)[-1], "[DONE]")


class Anthropic(Shapes):
    def test_messages(self):
        def check_answer(answer):
            anthropic_shapes.check("Message", answer)
            self.check_type(anthropic.types.Message, answer)

        def check_event(event):
            if event["type"] != "ping":  # neither has it
                anthropic_shapes.check_event("MessageStreamEvent", event)
                self.check_type(event_type, event)

        event_type = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent)
        self.check_answers(MESSAGES, MESSAGE_BODIES, check_answer)
        kinds = self.check_streams(MESSAGES, MESSAGE_BODIES, check_event)
        self.assertGreaterEqual(len(kinds), 6, kinds)

    def test_count_and_errors(self):
        count = self.post(MESSAGES + "/count_tokens", {"messages": QUESTION})
        anthropic_shapes.check("CountMessageTokensResponse", count)
        for body, expected in [({"messages": QUESTION}, 400), ({"max_tokens": 5}, 400),
                               ({"model": "other", "messages": QUESTION, "max_tokens": 5}, 404)]:
            status, _, answer = serve.post(MESSAGES, body)
            self.assertEqual(status, expected)
            anthropic_shapes.check("ErrorResponse", answer)


class Checker(Shapes):
    """The checks themselves see what is wrong."""

    def refuses(self, shapes, name, body, place, change):
        """Changes a member of a copy of `body`, which must then be refused."""
        broken = copy.deepcopy(body)
        parent = broken
        for step in place[:-1]:
            parent = parent[step]
        change(parent, place[-1])
        with self.subTest(name=name, place=place), self.assertRaises(ShapeError):
            shapes.check(name, broken)

    def test_missing_and_wrong_members(self):
        def drop(parent, name):
            del parent[name]

        def null(parent, name):
            parent[name] = None

        def text(parent, name):
            parent[name] = str(parent[name])

        chat = self.post(CHAT, {**CHAT_BODIES[2]})
        openai_shapes.check("CreateChatCompletionResponse", chat)
        for change, places in {
                drop: [("id",), ("choices",), ("choices", 0, "logprobs"), ("choices", 0, "index"),
                       ("choices", 0, "message", "refusal"), ("choices", 0, "finish_reason"),
                       ("choices", 0, "logprobs", "refusal"), ("usage", "total_tokens"),
                       ("choices", 0, "logprobs", "content", 0, "bytes")],
                null: [("created",), ("choices", 0, "finish_reason"), ("choices", 0, "message"),
                       ("choices", 0, "logprobs", "content", 0, "logprob"), ("object",)],
                text: [("created",), ("usage", "prompt_tokens"), ("choices", 0, "index")]}.items():
            for place in places:
                self.refuses(openai_shapes, "CreateChatCompletionResponse", chat, place, change)

    def test_events(self):
        events = [json.loads(event) for event in serve.events(
            RESPONSES, {"model": "chat", **RESPONSE_BODIES[0]})]
        delta = [event for event in events if event["type"] == "response.output_text.delta"][0]
        for name in ("sequence_number", "logprobs", "item_id", "content_index", "type"):
            broken = {key: value for key, value in delta.items() if key != name}
            with self.subTest(name), self.assertRaises(ShapeError):
                openai_shapes.check_event("ResponseStreamEvent", broken)

    def test_null_by_the_older_keyword(self):
        shapes = published_shapes.PublishedShapes({"components": {"schemas": {
            "A": {"type": "object", "required": ["b"], "properties": {
                "b": {"$ref": "#/components/schemas/B", "nullable": True},
                "c": {"type": "string"}}},
            "B": {"type": "string", "enum": ["x"]}}}})
        shapes.check("A", {"b": None})
        shapes.check("A", {"b": "x", "c": "y"})
        for body in ({}, {"b": "y"}, {"b": "x", "c": None}, []):
            with self.assertRaises(ShapeError):
                shapes.check("A", body)
        with self.assertRaises(KeyError):
            shapes.check("C", {})

    def test_members_that_a_type_does_not_know(self):
        chat = self.post(CHAT, {**CHAT_BODIES[0]})
        chat["choices"][0]["message"]["extra"] = 1
        with self.assertRaises(AssertionError):
            self.check_type(openai.types.chat.ChatCompletion, chat)
        del chat["choices"][0]["message"]["extra"]
        self.check_type(openai.types.chat.ChatCompletion, chat)
        chat["created"] = str(chat["created"])
        with self.assertRaises(pydantic.ValidationError):
            self.check_type(openai.types.chat.ChatCompletion, chat)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
