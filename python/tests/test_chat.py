# SPDX-License-Identifier: MIT
"""Conversations: message lists and chat objects."""

import time

import numpy as np
import pytest
from conftest import MODEL, ROOT

import qsf

SHORT = {"max_tokens": 6, "temperature": 0.0}


def test_messages_are_answered(model):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    answer = model.chat(messages, **SHORT)
    prompt = model.chat_prompt(messages)
    assert answer.prompt_tokens == len(prompt.tokens) and "Be brief." in prompt.text
    streamed = model.chat(messages, stream=True, **SHORT)
    assert "".join(map(str, streamed)) == answer.text
    assert model.chat("Hello", **SHORT).text == model.chat(messages[1:], **SHORT).text


def test_a_template_is_chosen(model):
    prompt = model.chat_prompt("Hello", chat_template="chatml")
    assert prompt.text.count("<|im_start|>") == 2
    assert model.chat_prompt("Hello", chat_template="chatml", add_generation_prompt=False).text != prompt.text
    custom = model.chat_prompt("Hello", chat_template="{{ word }}:{{ messages[0].content }}",
                               variables={"word": "Say"})
    assert custom.text.endswith("Say:Hello")
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    assert '"add"' in model.chat_prompt("Hello", chat_template="chatml", tools=tools).text


def test_what_closes_an_answer_ends_it(tmp_path):
    qsf.convert(ROOT / "testdata" / "chat_model", tmp_path / "chat.qsf", quant_type="4bit")
    with qsf.Model(tmp_path / "chat.qsf", threads=1) as model:
        [end] = model.chat_prompt("Hello").end_tokens
        assert end != model.eos_token
        answer = model.chat("Hello", logit_bias={end: 100.0}, max_tokens=5)
        assert (answer.stop_reason, answer.text) == ("end_of_text", "")
        streamed = model.chat("Hello", stream=True, logit_bias={end: 100.0}, max_tokens=5)
        assert [*streamed] == [] and streamed.result.stop_reason == "end_of_text"


def test_damaged_messages_are_named(model):
    with pytest.raises(qsf.InvalidArgument, match="role|messages"):
        model.chat([{"content": "no role"}], **SHORT)


def test_a_chat_keeps_its_conversation(model, tmp_path):
    with model.start_chat("Be brief.") as chat:
        first = chat.send("Hello", **SHORT)
        pieces = list(chat.stream("And?", **SHORT))
        roles = [message["role"] for message in chat.messages]
        assert roles == ["system", "user", "assistant", "user", "assistant"]
        assert chat.messages[2]["content"] == first.text.strip()
        assert chat.messages[4]["content"] == "".join(pieces).strip()
        assert chat.context_tokens > 0 and chat.dropped_messages == 0
        assert len(first.tokens) <= 6
        chat.save(tmp_path / "chat.session")
        saved = chat.messages
        with model.start_chat() as other:
            other.load(tmp_path / "chat.session")
            assert other.messages == saved
        chat.set_system("Be long.")
        chat.clear()
        assert chat.messages == [{"role": "system", "content": "Be long."}]


def test_a_reader_that_stops_early_cancels_the_answer(model):
    with model.start_chat() as chat:
        def never_end(logits):
            logits[model.eos_token] = -np.inf
            time.sleep(0.005)  # the reader has more than a second

        for _ in chat.stream("Hello", max_tokens=900, logits_filter=never_end):
            break
        answer = chat.messages[-1]["content"] if chat.messages else ""
        assert len(model.tokenize(answer)) < 300
        assert chat.send("Again", **SHORT).stop_reason in ("max_tokens", "end_of_text", "stop")


def test_errors_of_a_turn_leave_the_chat_as_it_was(model):
    with model.start_chat() as chat:
        with pytest.raises(qsf.OutOfBudget):
            chat.send("word " * 5000)
        with pytest.raises(ZeroDivisionError):
            chat.send("Hello", logits_filter=lambda logits: 1 / 0, **SHORT)
        with pytest.raises(ZeroDivisionError):
            list(chat.stream("Hello", logits_filter=lambda logits: 1 / 0, **SHORT))
        with pytest.raises(TypeError, match="log_probs"):
            chat.send("Hello", log_probs=True)
        assert chat.messages == []


def test_a_chat_of_a_closed_model():
    model = qsf.Model(MODEL, threads=1)
    chat = model.start_chat()
    model.close()
    with pytest.raises(qsf.InvalidArgument, match="closed"):
        chat.send("Hello")
