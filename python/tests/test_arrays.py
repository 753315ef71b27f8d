# SPDX-License-Identifier: MIT
"""What the engine writes into NumPy's memory."""

import numpy as np
import pytest
from conftest import PROMPT

import qsf


def test_logits_of_every_token(model):
    ids = model.tokenize(PROMPT)
    rows = model.logits(PROMPT)
    assert (rows.shape, rows.dtype) == ((len(ids), model.n_vocab), np.float32)
    assert np.isfinite(rows).all() and np.array_equal(rows, model.logits(ids))
    assert np.array_equal(model.logits(PROMPT, last=True), rows[-1])
    assert model.generate(PROMPT, max_tokens=1, temperature=0).tokens[0] == rows[-1].argmax()


def test_score_follows_from_the_logits(model):
    ids = model.tokenize(PROMPT)
    rows = model.logits(ids).astype(np.float64)
    log_probs = rows - np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) \
        - rows.max(1, keepdims=True)
    expected = [log_probs[i, ids[i + 1]] for i in range(len(ids) - 1)]
    assert np.allclose(model.score(PROMPT), expected, atol=1e-4)
    assert np.array_equal(model.score(ids, first=2), model.score(ids)[1:])
    with pytest.raises(qsf.InvalidArgument, match="first"):
        model.score(ids, first=len(ids))


def test_embeddings(model):
    one = model.embed("a cat")
    assert (one.shape, one.dtype) == ((model.hidden_size,), np.float32)
    assert abs(np.linalg.norm(one) - 1) < 1e-5
    assert np.linalg.norm(model.embed("a cat", normalize=False)) != pytest.approx(1)
    several = model.embed(["a cat", "a dog"])
    assert several.shape == (2, model.hidden_size) and np.array_equal(several[0], one)
    assert not np.array_equal(model.embed("a cat", pooling="last"), one)
    with pytest.raises(qsf.InvalidArgument, match="pooling"):
        model.embed("a cat", pooling="max")


def test_out_is_filled_and_returned(model):
    n = len(model.tokenize(PROMPT))
    for call, shape, dtype in (
            (lambda out: model.logits(PROMPT, out=out), (n, model.n_vocab), np.float32),
            (lambda out: model.logits(PROMPT, last=True, out=out), (model.n_vocab,), np.float32),
            (lambda out: model.score(PROMPT, out=out), (n - 1,), np.float64),
            (lambda out: model.embed("cat", out=out), (model.hidden_size,), np.float32)):
        out = np.full(shape, np.nan, dtype)
        assert call(out) is out and np.isfinite(out).all()
        assert np.array_equal(out, call(None))


def test_out_of_another_form_is_refused(model):
    good = np.zeros((model.n_vocab,), np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    for out in (good[:-1], good.astype(np.float64), np.zeros(2 * model.n_vocab, np.float32)[::2],
                frozen, [0.0] * model.n_vocab):
        with pytest.raises(qsf.InvalidArgument, match="^out: "):
            model.logits(PROMPT, last=True, out=out)


def test_a_logits_filter_changes_the_draw_and_keeps_a_copy(model):
    kept = []

    def only(logits):
        kept.append(logits)
        logits[:] = -np.inf
        logits[77] = 1.0

    done = model.generate(PROMPT, max_tokens=3, logits_filter=only)
    assert done.tokens == (77, 77, 77)
    assert [int(each.argmax()) for each in kept] == [77, 77, 77]


def test_numpy_tokens_are_a_prompt(model):
    ids = np.array(model.tokenize(PROMPT), np.int64)
    assert np.array_equal(model.logits(ids), model.logits(PROMPT))
    assert model.detokenize(ids) == PROMPT
