# SPDX-License-Identifier: MIT
"""Grammars and JSON Schemas."""

import json

import pytest
from conftest import PROMPT

import qsf

SCHEMA = {"type": "object", "required": ["n"], "additionalProperties": False,
          "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}


def test_a_grammar_bounds_the_text(model):
    text = 'root ::= "yes" | "no"'
    assert model.generate(PROMPT, grammar=text, max_tokens=9).text in ("yes", "no")
    with model.grammar(text) as grammar:
        for seed in range(3):
            done = model.generate(PROMPT, grammar=grammar, seed=seed, max_tokens=9)
            assert done.text in ("yes", "no") and done.stop_reason == "end_of_text"


def test_a_schema_gives_json(model):
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        value = json.loads(model.generate(PROMPT, json_schema=schema, max_tokens=60).text)
        assert 0 <= value["n"] <= 99
    assert "".join(map(str, model.stream(PROMPT, json_schema=SCHEMA, max_tokens=60, seed=4))).startswith("{")
    assert model.chat("Hello", json_schema=True, max_tokens=3).text.startswith("{")
    assert model.generate(PROMPT, json_schema=False, max_tokens=2).tokens
    with model.json_schema(SCHEMA) as grammar:
        assert model.generate(PROMPT, grammar=grammar, max_tokens=60).text.startswith("{")


def test_errors_name_the_place(model):
    with pytest.raises(qsf.InvalidArgument, match="line 1"):
        model.grammar("root ::= (")
    with pytest.raises(qsf.Unsupported, match="not"):
        model.generate(PROMPT, json_schema={"not": {}}, max_tokens=3)
    with pytest.raises(qsf.InvalidArgument, match="both"):
        model.generate(PROMPT, grammar='root ::= "a"', json_schema=SCHEMA)


def test_a_grammar_belongs_to_its_model(model, other_model):
    with other_model.grammar('root ::= "a"') as grammar:
        with pytest.raises(qsf.InvalidArgument, match="another model"):
            model.generate(PROMPT, grammar=grammar)
    with pytest.raises(qsf.InvalidArgument, match="closed"):
        other_model.generate(PROMPT, grammar=grammar)


def test_a_compiled_text_frees_its_place(model):
    for _ in range(4):  # there is room for one
        assert model.generate(PROMPT, grammar='root ::= "a"', max_tokens=2).text == "a"
