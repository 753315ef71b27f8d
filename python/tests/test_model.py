# SPDX-License-Identifier: MIT
"""Texts, tokens and facts of a model."""

import logging
import math
import os

import pytest
from conftest import MODEL, MOVEMENT_BYTES, PROMPT

import qsf

GREEDY = {"temperature": 0.0}


def test_the_same_seed_gives_the_same_text(model):
    first = model.generate(PROMPT, max_tokens=12, seed=7)
    assert first.text and first.text == model.generate(PROMPT, max_tokens=12, seed=7).text
    assert {model.generate(PROMPT, max_tokens=12, seed=s).text for s in range(4)} != {first.text}


def test_a_completion_has_its_figures(model):
    done = model.generate(PROMPT, max_tokens=9, **GREEDY)
    assert (len(done.tokens), done.stop_reason) == (9, "max_tokens")
    assert done.prompt_tokens == len(model.tokenize(PROMPT))
    assert done.prompt_s > 0 and done.first_token_s > 0 and done.tokens_per_second > 0
    assert str(done) == done.text and model.detokenize(done.tokens) in done.text
    assert model.generate(PROMPT, max_new_tokens=9, **GREEDY).text == done.text


def test_token_ids_are_a_prompt_as_they_are(model):
    ids = model.tokenize(PROMPT)
    assert (model.generate(ids, max_tokens=5, **GREEDY).text
            == model.generate(PROMPT, max_tokens=5, **GREEDY).text)


def test_a_stop_text_ends_the_text_before_it(model):
    text = model.generate(PROMPT, max_tokens=20, **GREEDY).text
    word = text.split()[3]
    for stop in (word, ["nothing like it", word]):
        done = model.generate(PROMPT, max_tokens=20, stop=stop, **GREEDY)
        assert (done.text, done.stop_reason) == (text[:text.index(word)], "stop")


def test_log_probabilities(model):
    done = model.generate(PROMPT, max_tokens=4, log_probs=3, **GREEDY)
    assert len(done.log_probs) == len(done.top_log_probs) == 4
    for token, log_prob, top in zip(done.tokens, done.log_probs, done.top_log_probs):
        assert len(top) == 3 and top[0] == (token, log_prob) and log_prob < 0
    assert model.generate(PROMPT, max_tokens=1).log_probs == ()
    assert len(model.generate(PROMPT, max_tokens=2, log_probs=True).log_probs) == 2
    assert math.isnan(next(model.stream(PROMPT, max_tokens=1)).log_prob)


def test_logit_bias_bans_a_token(model):
    first = model.generate(PROMPT, max_tokens=1, **GREEDY).tokens[0]
    banned = model.generate(PROMPT, max_tokens=1, logit_bias={first: -math.inf}, **GREEDY)
    assert banned.tokens[0] != first


def test_tokens_and_text(model):
    ids = model.tokenize("a cat")
    assert ids[0] == model.bos_token and model.tokenize("a cat", bos=False) == ids[1:]
    assert model.detokenize(ids) == "a cat"
    assert b"".join(map(model.token_bytes, ids[1:])).strip() == b"a cat"
    assert model.tokenize("") == [model.bos_token]
    assert model.detokenize([]) == ""


def test_text_with_nul_and_without_meaning(model):
    assert model.tokenize("a\0b", bos=False) != model.tokenize("a", bos=False)
    assert isinstance(model.generate("\0 \U0001f600", max_tokens=2).text, str)


def test_facts(model):
    assert (model.info["architecture"], model.n_vocab, model.hidden_size) == ("llama", 4096, 256)
    assert model.info["n_parameters"] > 4e6 and model.context == model.info["context"]
    assert model.stats["n_threads"] == 1 and model.stats["generated_tokens"] >= 0
    assert model.prefix_stats["hits"] == 0 and model.adapters == []
    assert model.path == str(MODEL) and str(MODEL) in repr(model)


def test_unknown_keywords_are_refused_by_name(model):
    with pytest.raises(TypeError, match="max_tokenz"):
        model.generate(PROMPT, max_tokenz=3)
    with pytest.raises(TypeError, match="tempreature"):
        model.stream(PROMPT, tempreature=3)
    with pytest.raises(TypeError, match="max_new_tokens"):
        model.generate(PROMPT, max_tokens=3, max_new_tokens=3)
    with pytest.raises(TypeError, match="ram_budgets"):
        qsf.Model(MODEL, ram_budgets=3)
    with pytest.raises(TypeError, match="ram_budgets"):
        qsf.plan(MODEL, ram_budgets=3)


@pytest.mark.parametrize("name, value", [
    ("kv_type", "3bit"), ("kv_policy", "lru"), ("attention", "none"), ("speculation", "on"),
    ("head", "half"), ("read_path", "dma"), ("ram_budget", "200 apples"),
    ("attention_options", {"size": 3}), ("threads", -1), ("quality", 0.0), ("sessions", 0)])
def test_settings_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(qsf.InvalidArgument) as caught:
        qsf.Model(MODEL, **{name: value})
    assert isinstance(caught.value, ValueError)
    assert {"ram_budget": "size"}.get(name, name) in str(caught.value)


def test_settings_reach_the_engine():
    with qsf.Model(MODEL, threads=1, context=256, sessions=2, kv_type=("8bit", "4bit"), grammars=0,
                   kv_policy="window", kv_window=64, kv_sinks=2, speculation="off", exact=True,
                   rows_per_pass=16, head="full", read_path="pread", quality=1.0, adapters=(),
                   extra_memory={"caches of the caller": "3MB"}) as model:
        assert (model.context, model.plan.details["sequences"]) == (256, 2)
        assert 3_000_000 in [region.bytes for region in model.plan.regions
                             if region.name == "caches of the caller"]
        assert model.plan.details["rows_per_pass"] == 16
        with pytest.raises(qsf.OutOfBudget, match="grammars"):
            model.grammar('root ::= "a"')
        assert model.generate(PROMPT, max_tokens=3).tokens
    with qsf.Model(MODEL, threads=1, prefix_cache=True, on_load=lambda *_: None) as model:
        text = PROMPT * 40
        first = model.generate(text, max_tokens=4, prefix_key="a", **GREEDY)
        again = model.generate(text, max_tokens=4, prefix_key="a", **GREEDY)
        assert (first.cached_tokens, again.text) == (0, first.text)
        assert again.cached_tokens >= 64 and model.prefix_stats["hits"] == 1


def test_loading_reports_its_progress():
    calls = []
    qsf.Model(MODEL, on_load=lambda done, total: calls.append((done, total))).close()
    assert calls and calls[-1][0] == calls[-1][1] > 0


def test_log_lines_go_to_logging(caplog, capfd):
    with pytest.raises(qsf.OutOfBudget) as caught:
        qsf.plan(MODEL, ram_budget="1MB")
    with caplog.at_level(logging.INFO, "qsf"):
        qsf.Model(MODEL, ram_budget=caught.value.needed + MOVEMENT_BYTES).close()  # reductions are logged
    assert {record.name for record in caplog.records} == {"qsf"}
    assert capfd.readouterr() == ("", "")


def test_errors_are_also_the_built_in_ones(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        qsf.Model(tmp_path / "missing.qsf")
    assert isinstance(caught.value, qsf.NotFound) and "missing.qsf" in str(caught.value)
    damaged = tmp_path / "damaged.qsf"
    damaged.write_bytes(MODEL.read_bytes()[:5000])
    with pytest.raises(qsf.Corrupt):
        qsf.Model(damaged)
    for error, built_in in ((qsf.InvalidArgument, ValueError), (qsf.IoError, OSError),
                            (qsf.Unsupported, NotImplementedError), (qsf.OutOfBudget, MemoryError)):
        assert issubclass(error, qsf.Error) and issubclass(error, built_in)


def test_a_prompt_beyond_the_context(model):
    with pytest.raises(MemoryError, match="context"):
        model.generate("word " * 5000, max_tokens=1)


def test_a_closed_model_says_so():
    model = qsf.Model(MODEL, threads=1)
    session = model.session()
    model.close()
    model.close()
    session.close()
    assert model.closed
    for call in (lambda: model.generate("a"), lambda: model.tokenize("a"), lambda: session.tokens,
                 model.session):
        with pytest.raises(qsf.InvalidArgument, match="closed"):
            call()
    model.cancel()


def test_paths_of_every_kind(tmp_path):
    odd = tmp_path / os.fsdecode(b"m\xff \xc3\xa9.qsf")
    os.symlink(MODEL, odd)
    for path in (str(odd), odd):
        qsf.Model(path, threads=1).close()
