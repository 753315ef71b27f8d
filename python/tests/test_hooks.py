# SPDX-License-Identifier: MIT
"""Hooks: layers, ranks of H2O eviction, and exceptions in them."""

import numpy as np
import pytest
from conftest import MODEL, PROMPT

import qsf

TEXT = "There was a king who had three sons. " * 12


def open_model(**options):
    return qsf.Model(MODEL, threads=1, context=256, **options)


def test_a_layer_hook_sees_rows_and_changes_no_text():
    seen = []

    def see(layer):
        seen.append((layer.number, layer.tokens(), layer.positions(), layer.is_generated(),
                     layer.hidden(), layer.kv_bytes))

    with open_model() as model:
        expected = model.generate(PROMPT, max_tokens=6, temperature=0)
    with open_model(on_layer=see) as model:
        got = model.generate(PROMPT, max_tokens=6, temperature=0)
        prompt = model.tokenize(PROMPT)
        n_layers = 6
    assert got.text == expected.text
    first = [each for each in seen if each[0] == 0]
    assert [each[0] for each in seen] == list(range(n_layers)) * len(first)
    tokens = np.concatenate([each[1] for each in first])
    assert tokens.tolist() == [*prompt, *got.tokens[:-1]]
    assert np.concatenate([each[2] for each in first]).tolist() == list(range(len(tokens)))
    assert np.concatenate([each[3] for each in first]).sum() == len(got.tokens) - 1
    assert all(each[4].dtype == np.float32 and np.isfinite(each[4]).all() for each in seen)
    assert all(each[5] > 0 for each in seen)


def test_hidden_fills_memory_of_the_caller():
    shapes = []

    def see(layer):
        out = np.zeros((layer.n_rows, layer.hidden_size), np.float32)
        assert layer.hidden(out) is out
        assert (out == layer.hidden()).all() and out.any()
        with pytest.raises(qsf.InvalidArgument, match="out: "):
            layer.hidden(out[:, :-1])
        shapes.append(out.shape)

    with open_model(on_layer=see) as model:
        model.logits(PROMPT)
    assert shapes


def test_keys_of_f16_are_those_of_f32():
    def keys_and_values(kv_type):
        seen = []

        def see(layer):
            if layer.number == 1:
                assert layer.k_type == layer.v_type == kv_type
                seen.append((layer.keys(0, 1), layer.values(layer.n_rows - 1, 0)))

        with open_model(on_layer=see, kv_type=kv_type, rows_per_pass=256) as model:
            model.logits(TEXT)
        return seen

    (keys, values), = keys_and_values("f32")
    (half_keys, half_values), = keys_and_values("f16")
    assert keys.shape[0] == 1 and len(values) > 64 and np.abs(values).mean() > 0.01
    for whole, half in ((keys, half_keys), (values, half_values)):
        assert whole.shape == half.shape and not (whole == half).all()
        assert np.abs(whole - half).mean() < 0.02 * np.abs(whole).mean()


def test_quantised_keys_are_bytes():
    seen = []

    def see(layer):
        if layer.number == 0:
            with pytest.raises(qsf.Unsupported, match="kv_block"):
                layer.keys(0, 0)
            seen.append((layer.kv_block(0, 0, "keys", 0), layer.kv_block(0, 0, "values", 192),
                         layer.head_dim))
            with pytest.raises(qsf.InvalidArgument, match="multiple of 64"):
                layer.kv_block(0, 0, "keys", 5)
            with pytest.raises(qsf.InvalidArgument, match="part: "):
                layer.kv_block(0, 0, "both", 0)

    with open_model(on_layer=see, kv_type="8bit") as model:
        model.logits(PROMPT)
    (block, missing, head_dim), = seen
    assert len(block) == 64 * head_dim + 2 * 64 and missing is None


def test_attention_sums_to_the_queries():
    seen = []

    def see(layer):
        mass = layer.attention(layer.n_rows - 1, 0)
        seen.append((mass.sum(), len(mass)))
        out = np.empty(3, np.float32)
        assert layer.attention(layer.n_rows - 1, 0, out) is out and (out == mass[:3]).all()

    with open_model(on_layer=see, kv_policy="h2o", kv_window=256, kv_heavy=4) as model:
        model.logits(TEXT)
    per_position = {round(total / n, 2) for total, n in seen}
    assert len(per_position) == 1 and per_position.pop() in (1.0, 2.0, 3.0, 4.0)


def test_attention_needs_h2o():
    def see(layer):
        layer.attention(0, 0)

    with open_model(on_layer=see) as model, pytest.raises(qsf.Unsupported, match="h2o alone"):
        model.logits(PROMPT)


def test_a_layer_is_of_no_use_behind_its_hook():
    kept = []
    with open_model(on_layer=kept.append) as model:
        model.logits(PROMPT)
    assert kept[0].n_rows > 0
    for use in (kept[0].hidden, kept[0].tokens, lambda: kept[0].keys(0, 0)):
        with pytest.raises(qsf.InvalidArgument, match="its hook has returned"):
            use()


@pytest.mark.parametrize("call", ["generate", "logits", "stream"])
def test_an_exception_in_a_hook_is_raised_by_the_call(call):
    calls = []

    def fail(layer):
        calls.append(layer.number)
        if len(calls) == 3:
            raise ZeroDivisionError("mine")

    with open_model(on_layer=fail) as model:
        with pytest.raises(ZeroDivisionError, match="mine"):
            if call == "stream":
                list(model.stream(PROMPT, max_tokens=4))
            elif call == "generate":
                model.generate(PROMPT, max_tokens=4)
            else:
                model.logits(PROMPT)
        assert calls == [0, 1, 2]
        assert len(model.generate(PROMPT, max_tokens=4).tokens) == 4


def test_a_hook_cannot_call_its_model():
    refused = []

    def see(_):
        with pytest.raises(qsf.InvalidArgument, match="callbacks"):
            model.generate("x", max_tokens=1)
        refused.append(1)

    with open_model(on_layer=see) as model:
        model.logits(PROMPT)
    assert refused


def kept_positions(**options):
    with open_model(kv_policy="h2o", kv_window=16, kv_heavy=20, **options) as model, \
            model.session() as session:
        session.generate(TEXT[:400], max_tokens=2, temperature=0)
        n = len(session)
        return n, list(session.visible_positions(2, 1))


def test_ranks_choose_what_stays():
    seen = []

    def newest(candidates):
        assert len(candidates.positions) == len(candidates.attention) == len(candidates.ranks)
        assert len(candidates.positions) > candidates.n_kept == 20
        seen.append(candidates)
        return candidates.positions

    n, kept = kept_positions(kv_rank=newest)
    assert n > 80 and seen
    first_recent = n // 64 * 64 - 16
    assert kept == [0, 1, 2, 3, *range(first_recent - 16, n)]
    assert kept != kept_positions()[1]
    assert kept_positions(kv_rank=lambda _: None) == kept_positions()


def test_wrong_ranks_and_exceptions_are_raised():
    with pytest.raises(qsf.InvalidArgument, match=r"kv_rank: ranks \[3\]"):
        kept_positions(kv_rank=lambda _: [1, 2, 3])
    with pytest.raises(KeyError):
        kept_positions(kv_rank=lambda _: {}["nothing"])


def test_hooks_that_cannot_be_are_refused():
    with pytest.raises(qsf.InvalidArgument, match="kv policy full"):
        open_model(kv_rank=lambda _: None)
    with pytest.raises(qsf.Unsupported, match="a hook sees every row"):
        open_model(on_layer=lambda _: None, speculation="lookup")
