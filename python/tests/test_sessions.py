# SPDX-License-Identifier: MIT
"""Sessions: kept contexts, forks, files."""

import gc
import pickle

import numpy as np
import pytest
from conftest import MODEL, PROMPT

import qsf

GREEDY = {"temperature": 0.0}


def test_a_session_keeps_its_text(model):
    with model.session() as session:
        assert len(session) == 0 and session
        first = session.generate(PROMPT, max_tokens=5, **GREEDY)
        ids = session.tokens
        prompt = model.tokenize(PROMPT)
        # The last token enters with the next call.
        assert ids == prompt + list(first.tokens[:-1])
        more = session.generate("", max_tokens=5, **GREEDY)
        whole = model.generate(PROMPT, max_tokens=10, **GREEDY)
        assert first.tokens + more.tokens == whole.tokens


def test_a_fork_goes_its_own_way(model):
    with model.session() as session:
        session.prefill(PROMPT)
        with session.fork() as fork:
            assert fork.tokens == session.tokens
            texts = [each.generate(" there", max_tokens=6, **GREEDY).text for each in (session, fork)]
            assert texts[0] == texts[1]
            assert fork.generate(" X", max_tokens=1).tokens and len(fork) > len(session)


def test_a_file_continues_the_text(model, tmp_path):
    path = tmp_path / "text.session"
    with model.session() as session:
        session.prefill(PROMPT)
        session.save(path)
        expected = session.generate("", max_tokens=6, **GREEDY)
    with model.load_session(path) as loaded:
        assert loaded.generate("", max_tokens=6, **GREEDY).text == expected.text
    with pytest.raises(FileNotFoundError):
        model.load_session(tmp_path / "missing")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(qsf.Error):
        model.load_session(path)


def test_truncate_and_positions(model):
    with model.session() as session:
        session.prefill(PROMPT)
        session.truncate(2)
        assert (len(session), session.tokens) == (2, model.tokenize(PROMPT)[:2])
        assert session.visible_positions(0, 0) == [0, 1]
        with pytest.raises(qsf.InvalidArgument):
            session.truncate(3)


def test_only_the_first_prompt_has_a_beginning_of_text_token(model):
    with model.session() as session:
        session.prefill("a cat")
        session.prefill("a cat")
        assert session.tokens == model.tokenize("a cat") + model.tokenize("a cat", bos=False)


def test_keys_and_values_have_types_of_their_own(model, tmp_path):
    path = tmp_path / "text.session"
    with qsf.Model(MODEL, threads=1, kv_type=("8bit", "4bit")) as other, other.session() as session:
        session.prefill(PROMPT)
        session.save(path)
    for types, word in ((("4bit", "4bit"), "keys"), (("8bit", "8bit"), "values")):
        with qsf.Model(MODEL, threads=1, kv_type=types) as other:
            with pytest.raises(qsf.InvalidArgument, match=word + " of type"):
                other.load_session(path)


def test_steps_with_a_sampler_of_the_callers(model):
    expected = model.generate(PROMPT, max_tokens=5, **GREEDY).tokens
    with model.session() as session:
        logits = session.prefill(PROMPT, logits=True)
        tokens = []
        for _ in range(5):
            tokens.append(int(np.argmax(logits)))
            again = session.step(tokens[-1], out=logits)
            assert again is logits
        assert tuple(tokens) == expected
        assert session.step(1, logits=False) is None


def test_too_many_sessions(model):
    sessions = [model.session() for _ in range(4)]
    with pytest.raises(qsf.OutOfBudget, match="sequences") as caught:
        model.session()
    assert (caught.value.needed, caught.value.budget) == (None, None)
    with pytest.raises(qsf.OutOfBudget):
        model.generate(PROMPT)
    del sessions
    gc.collect()
    assert model.generate(PROMPT, max_tokens=1).tokens


def test_a_stream_has_its_session_to_itself(model):
    with model.session() as session:
        stream = session.stream(PROMPT, max_tokens=20)
        next(stream)
        with pytest.raises(qsf.InvalidArgument, match="generation"):
            session.prefill("more")
        stream.close()
        session.prefill("more")


def test_cancel_of_a_session_ends_its_stream_alone(model):
    with model.session() as one, model.session() as two:
        streams = [one.stream(PROMPT, max_tokens=9), two.stream(PROMPT, max_tokens=9)]
        for stream in streams:
            next(stream)
        one.cancel()
        assert [sum(1 for _ in stream) >= 5 for stream in streams] == [False, True]
        assert [stream.result.stop_reason for stream in streams] == ["cancelled", "max_tokens"]


def test_closing_twice_and_using_then(model):
    session = model.session()
    session.close()
    session.close()
    with pytest.raises(qsf.InvalidArgument, match="closed"):
        session.generate(PROMPT)


def test_pickle_and_copy_are_refused_by_name(model):
    session = model.session()
    stream = session.stream(PROMPT, max_tokens=3)
    for thing, word in ((model, "model"), (session, "session"), (stream, "stream")):
        with pytest.raises(TypeError, match=word):
            pickle.dumps(thing)
    stream.close()
    session.close()


def test_an_adapter_that_is_not_there(model):
    with model.session() as session, pytest.raises(qsf.InvalidArgument, match="adapter"):
        session.set_adapter(3)
    with pytest.raises(FileNotFoundError):
        qsf.Model(MODEL, adapters=["/nowhere/a.qsf", ("/nowhere/b.qsf", "b")])
