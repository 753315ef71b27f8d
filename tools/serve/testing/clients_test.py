#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The clients that people use, against qsf serve: openai, anthropic, ollama, litellm and
langchain-openai. Needs these packages and jsonschema; `./check long clients` installs them.

Usage: clients_test.py BIN_DIR MODEL [unittest arguments]

MODEL is a chat model that can talk, such as SmolLM2-135M-Instruct.
"""

import asyncio
import json
import sys
import unittest

import jsonschema
import openai

import serve_process

BIN_DIR, MODEL = sys.argv[1:3]

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city",
    "parameters": {"type": "object", "required": ["city", "unit"], "additionalProperties": False,
                   "properties": {"city": {"type": "string", "maxLength": 30},
                                  "unit": {"enum": ["celsius", "fahrenheit"]}}}}}
# The package has no parameter of that name.
GREEDY = {"temperature": 0}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def setUpModule():
    global serve, base
    serve = serve_process.Server(serve_process.program_in(BIN_DIR), "chat=" + MODEL, "--texts", "8")
    base = f"http://127.0.0.1:{serve.port}"


def tearDownModule():
    code = serve.end()
    serve.__exit__()
    assert code == 0, code


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=base + "/v1", api_key="none")

    def tearDown(self):
        self.client.close()

    def chat(self, **fields):
        fields.setdefault("messages", QUESTION)
        return self.client.chat.completions.create(model="chat", **fields)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["chat"])
        self.assertEqual(self.client.models.retrieve("chat").object, "model")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_a_chat(self):
        answer = self.chat(temperature=0, max_tokens=30)
        self.assertTrue(answer.choices[0].message.content)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertGreater(answer.usage.prompt_tokens, 5)
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertIsNone(answer.choices[0].logprobs)

    def test_a_stream_is_the_same_answer(self):
        whole = self.chat(temperature=0.7, seed=4, max_tokens=30)
        chunks = list(self.chat(temperature=0.7, seed=4, max_tokens=30, stream=True,
                                stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_many_at_once(self):
        async def ask(client, seed):
            answer = await client.chat.completions.create(
                model="chat", messages=QUESTION, seed=seed, temperature=1, max_tokens=24)
            return answer.choices[0].message.content

        async def ask_all():
            async with openai.AsyncOpenAI(base_url=base + "/v1", api_key="none") as client:
                return await asyncio.gather(*(ask(client, seed) for seed in range(24)))

        first, second = asyncio.run(ask_all()), asyncio.run(ask_all())
        self.assertEqual(first, second)
        self.assertGreater(len(set(first)), 12)

    def test_several_answers(self):
        answer = self.chat(n=3, temperature=1, seed=1, max_tokens=16)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertGreater(len({choice.message.content for choice in answer.choices}), 1)

    def test_log_probs(self):
        answer = self.chat(temperature=0, max_tokens=6, logprobs=True, top_logprobs=3)
        content = answer.choices[0].logprobs.content
        self.assertEqual("".join(token.token for token in content),
                         answer.choices[0].message.content)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(bytes(token.bytes).decode(), token.token)

    def test_sampling_fields(self):
        answer = self.chat(temperature=0.8, top_p=0.9, frequency_penalty=0.5, presence_penalty=0.2,
                           seed=7, stop=["Paris"], logit_bias={"5": -100}, max_completion_tokens=20,
                           user="someone", metadata={"a": "b"}, store=False,
                           extra_body={"top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1})
        self.assertNotIn("Paris", answer.choices[0].message.content)

    def test_json_object(self):
        answer = self.chat(messages=[{"role": "user", "content": "Describe a cat as JSON."}],
                           response_format={"type": "json_object"}, temperature=0, max_tokens=200)
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    def test_json_schema(self):
        schema = {"type": "object", "additionalProperties": False,
                  "required": ["name", "age", "tags"],
                  "properties": {"name": {"type": "string", "maxLength": 20},
                                 "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                 "tags": {"type": "array", "maxItems": 3,
                                          "items": {"enum": ["old", "young", "tall"]}}}}
        for seed in range(5):
            answer = self.chat(messages=[{"role": "user", "content": "Describe a person."}],
                               response_format={"type": "json_schema", "json_schema": {
                                   "name": "person", "strict": True, "schema": schema}},
                               temperature=1, seed=seed, max_tokens=200)
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            jsonschema.validate(json.loads(answer.choices[0].message.content), schema)

    def test_a_tool_is_called(self):
        messages = [{"role": "user", "content": "What is the weather in Berlin?"}]
        answer = self.chat(messages=messages, tools=[WEATHER], tool_choice="required",
                           parallel_tool_calls=False,
                           temperature=0, max_tokens=120)
        choice = answer.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call = choice.message.tool_calls[0]
        self.assertEqual(call.function.name, "get_weather")
        jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])
        messages += [choice.message.model_dump(exclude_none=True),
                     {"role": "tool", "tool_call_id": call.id, "content": "12 degrees, rain"}]
        second = self.chat(messages=messages, tools=[WEATHER], temperature=0, max_tokens=30)
        self.assertIn(second.choices[0].finish_reason, ("stop", "length", "tool_calls"))

    def test_a_tool_call_streams_in_one_piece(self):
        chunks = list(self.chat(messages=[{"role": "user", "content": "Weather in Rome?"}],
                                tools=[WEATHER], parallel_tool_calls=False, tool_choice={
                                    "type": "function", "function": {"name": "get_weather"}},
                                temperature=0, max_tokens=120, stream=True))
        calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
        self.assertEqual(len(calls), 1)
        json.loads(calls[0].function.arguments)

    def test_completions(self):
        answer = self.client.completions.create(model="chat", prompt=["Once upon", "The sea"],
                                                max_tokens=8, temperature=0, logprobs=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        for choice in answer.choices:
            self.assertEqual("".join(choice.logprobs.tokens), choice.text)
            self.assertEqual(len(choice.logprobs.token_logprobs), 8)

    def test_scores_of_a_prompt(self):
        answer = self.client.completions.create(
            model="chat", prompt="The capital of France is Paris", max_tokens=1, temperature=0,
            echo=True, logprobs=1)
        choice = answer.choices[0]
        log_probs = choice.logprobs.token_logprobs
        self.assertTrue(choice.text.startswith("The capital of France is Paris"))
        self.assertEqual(len(choice.logprobs.tokens), len(log_probs))
        self.assertIsNone(log_probs[0])  # SmolLM2 puts nothing before a text
        self.assertLess(max(log_probs[1:]), 1e-6)
        self.assertGreater(log_probs[-2], -3)  # Paris

    def test_embeddings(self):
        texts = ["The cat sat on the mat.", "A cat is sitting on a mat.", "Stock prices fell."]
        answer = self.client.embeddings.create(model="chat", input=texts)
        vectors = [entry.embedding for entry in answer.data]
        dot = [sum(a * b for a, b in zip(vectors[0], vector)) for vector in vectors]
        self.assertAlmostEqual(dot[0], 1, places=3)
        self.assertGreater(dot[1], dot[2])

    def test_responses(self):
        answer = self.client.responses.create(model="chat", input="What is the capital of France?",
                                              temperature=0, max_output_tokens=30)
        self.assertTrue(answer.output_text)
        events = list(self.client.responses.create(model="chat", input="Say hello.", stream=True,
                                                   temperature=0, max_output_tokens=12))
        self.assertEqual(events[0].type, "response.created")
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "x " * 20000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):
            self.chat(temperature=-1)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}])
        self.assertIn("text", str(caught.exception))


class Anthropic(unittest.TestCase):
    def setUp(self):
        import anthropic
        self.client = anthropic.Anthropic(base_url=base, api_key="none")

    def tearDown(self):
        self.client.close()

    def test_messages(self):
        answer = self.client.messages.create(model="chat", max_tokens=30, extra_body=GREEDY,
                                             system="Answer shortly.", messages=QUESTION)
        self.assertTrue(answer.content[0].text)
        self.assertIn(answer.stop_reason, ("end_turn", "max_tokens"))
        count = self.client.messages.count_tokens(model="chat", system="Answer shortly.",
                                                  messages=QUESTION)
        self.assertEqual(count.input_tokens, answer.usage.input_tokens)

    def test_a_stream(self):
        with self.client.messages.stream(model="chat", max_tokens=30, extra_body=GREEDY,
                                         messages=QUESTION) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, final.content[0].text)
        self.assertTrue(text)

    def test_a_tool(self):
        answer = self.client.messages.create(
            model="chat", max_tokens=120, extra_body=GREEDY,
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            tools=[{"name": "get_weather", "description": "The weather in a city",
                    "input_schema": WEATHER["function"]["parameters"]}],
            messages=[{"role": "user", "content": "What is the weather in Berlin?"}])
        self.assertEqual(answer.stop_reason, "tool_use")
        call = [block for block in answer.content if block.type == "tool_use"][0]
        jsonschema.validate(call.input, WEATHER["function"]["parameters"])


class Ollama(unittest.TestCase):
    def setUp(self):
        import ollama
        self.client = ollama.Client(host=base)

    def test_lists(self):
        self.assertEqual([model.model for model in self.client.list().models], ["chat"])
        self.assertIn("completion", self.client.show("chat").capabilities)

    def test_chat(self):
        options = {"temperature": 0, "num_predict": 30}
        whole = self.client.chat("chat", messages=QUESTION, options=options)
        self.assertTrue(whole.message.content)
        parts = self.client.chat("chat", messages=QUESTION, options=options, stream=True)
        self.assertEqual("".join(part.message.content for part in parts), whole.message.content)

    def test_generate_and_embed(self):
        answer = self.client.generate("chat", "The capital of France is", raw=True,
                                      options={"temperature": 0, "num_predict": 5})
        self.assertTrue(answer.response)
        self.assertEqual(len(self.client.embed("chat", ["one", "two"]).embeddings), 2)

    def test_a_format(self):
        schema = {"type": "object", "required": ["n"], "additionalProperties": False,
                  "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}}
        answer = self.client.chat("chat", messages=QUESTION, format=schema,
                                  options={"temperature": 0})
        jsonschema.validate(json.loads(answer.message.content), schema)


class Others(unittest.TestCase):
    def test_litellm(self):
        import litellm
        answer = litellm.completion(model="openai/chat", api_base=base + "/v1", api_key="none",
                                    messages=QUESTION, temperature=0, max_tokens=30)
        self.assertTrue(answer.choices[0].message.content)

    def test_langchain(self):
        import langchain_openai
        model = langchain_openai.ChatOpenAI(base_url=base + "/v1", api_key="none", model="chat",
                                            temperature=0, max_tokens=30)
        self.assertTrue(model.invoke("What is the capital of France?").content)
        self.assertTrue("".join(part.content for part in model.stream("Say hello.")))
        embeddings = langchain_openai.OpenAIEmbeddings(
            base_url=base + "/v1", api_key="none", model="chat", check_embedding_ctx_length=False)
        self.assertEqual(len(embeddings.embed_documents(["one", "two"])), 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
