# SPDX-License-Identifier: MIT
"""qsf.compat.Llama beside what llama_cpp.Llama promises."""

import json
import logging

import numpy as np
import pytest
from conftest import MODEL, PROMPT

import qsf
from qsf import compat

GREEDY = {"temperature": 0.0}


@pytest.fixture(scope="module")
def llm():
    with compat.Llama(model_path=str(MODEL), n_ctx=512, n_threads=1, verbose=False) as opened:
        yield opened


def test_it_is_found_below_the_package():
    assert qsf.compat.Llama is compat.Llama
    with pytest.raises(AttributeError, match="compact"):
        qsf.compact  # noqa: B018


def test_a_completion_is_a_dict_in_openais_form(llm):
    done = llm(PROMPT, max_tokens=8, **GREEDY)
    assert (done["object"], done["model"]) == ("text_completion", str(MODEL))
    [choice] = done["choices"]
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "length")
    assert done["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
    assert llm.create_completion(PROMPT, max_tokens=8, **GREEDY)["choices"] == done["choices"]
    assert len(llm(PROMPT)["choices"][0]["text"]) > 0 and llm(PROMPT)["usage"]["completion_tokens"] == 16
    echoed = llm(PROMPT, max_tokens=8, echo=True, **GREEDY)["choices"][0]["text"]
    assert echoed == PROMPT + choice["text"]


def test_chunks_join_to_the_completion(llm):
    whole = llm(PROMPT, max_tokens=12, **GREEDY)["choices"][0]
    chunks = list(llm(PROMPT, max_tokens=12, stream=True, **GREEDY))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:]] == [None, "length"]
    assert len({chunk["id"] for chunk in chunks}) == 1 and "usage" not in chunks[0]


def test_stop_seed_and_bias(llm):
    text = llm(PROMPT, max_tokens=20, **GREEDY)["choices"][0]["text"]
    word = text.split()[2]
    stopped = llm(PROMPT, max_tokens=20, stop=[word], **GREEDY)["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == (text[:text.index(word)], "stop")
    texts = [llm(PROMPT, max_tokens=12, seed=seed)["choices"][0]["text"] for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]
    free = {llm(PROMPT, max_tokens=12)["choices"][0]["text"] for _ in range(4)}
    assert len(free) > 1, "without a seed texts differ"
    first = next(llm.generate(llm.tokenize(PROMPT.encode()), temp=0.0))
    biased = llm(PROMPT, max_tokens=1, logit_bias={first: -100.0}, **GREEDY)["choices"][0]["text"]
    assert biased != llm(PROMPT, max_tokens=1, **GREEDY)["choices"][0]["text"]


def test_log_probabilities(llm):
    logprobs = llm(PROMPT, max_tokens=3, logprobs=2, **GREEDY)["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == 3
    assert [len(top) for top in logprobs["top_logprobs"]] == [2, 2, 2]
    assert logprobs["text_offset"][0] == 0 and logprobs["text_offset"] == sorted(logprobs["text_offset"])


def test_processors_and_criteria(llm):
    seen = []

    def only_77(ids, scores):
        seen.append(ids.tolist())
        scores = np.full_like(scores, -np.inf)
        scores[77] = 0
        return scores

    done = llm(PROMPT, max_tokens=3, logits_processor=compat.LogitsProcessorList([only_77]))
    assert done["usage"]["completion_tokens"] == 3
    assert seen[0] == llm.tokenize(PROMPT.encode()) and seen[2][-2:] == [77, 77]
    criteria = compat.StoppingCriteriaList([lambda ids, logits: len(ids) >= 7])
    done = llm(PROMPT, max_tokens=30, stopping_criteria=criteria, **GREEDY)
    assert done["usage"]["completion_tokens"] == 2 and done["choices"][0]["finish_reason"] == "stop"


def test_grammars(llm):
    grammar = compat.LlamaGrammar.from_string('root ::= "yes" | "no"')
    assert llm(PROMPT, grammar=grammar)["choices"][0]["text"] in ("yes", "no")
    grammar = compat.LlamaGrammar.from_json_schema(json.dumps({"type": "boolean"}))
    assert llm(PROMPT, grammar=grammar)["choices"][0]["text"].strip() in ("true", "false")


def test_chat_completions(llm):
    messages = [{"role": "user", "content": "Hello"}]
    done = llm.create_chat_completion(messages, max_tokens=8, **GREEDY)
    assert done["object"] == "chat.completion"
    message = done["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"]
    chunks = list(llm.create_chat_completion(messages, max_tokens=8, stream=True, **GREEDY))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == message["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    done = llm.create_chat_completion(messages, max_tokens=60, seed=1, response_format={
        "type": "json_object", "schema": {"type": "object", "required": ["a"], "properties": {
            "a": {"type": "boolean"}}}})
    assert isinstance(json.loads(done["choices"][0]["message"]["content"])["a"], bool)
    done = llm.create_chat_completion(messages, max_tokens=2, logprobs=True, top_logprobs=2)
    assert len(done["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2


def test_tokens_are_bytes(llm):
    ids = llm.tokenize(b"a cat")
    assert ids[0] == llm.token_bos() and llm.detokenize(ids) == b"a cat"
    assert llm.tokenize(b"a cat", add_bos=False) == ids[1:]
    assert b"".join(llm.detokenize([token]) for token in ids[1:]).strip() == b"a cat"
    assert llm.detokenize([llm.token_eos()]) == b"" != llm.detokenize([llm.token_eos()], special=True)
    assert llm.detokenize(ids[2:], prev_tokens=ids[:2]).strip() == b"cat"
    assert (llm.n_ctx(), llm.n_vocab(), llm.n_embd()) == (512, 4096, 256)
    assert llm.token_nl() >= 0


def test_step_by_step(llm):
    ids = llm.tokenize(PROMPT.encode())
    expected = llm.tokenize(b"") and [t for t, _ in zip(llm.generate(ids, temp=0.0), range(4))]
    llm.reset()
    assert (llm.n_tokens, list(llm.eval_tokens)) == (0, [])
    llm.eval(ids)
    drawn = []
    for _ in range(4):
        drawn.append(llm.sample(temp=0.0))
        llm.eval([drawn[-1]])
    assert drawn == expected and llm.n_tokens == len(ids) + 4
    assert llm.scores.shape == (1, 4096)
    state = llm.save_state()
    following = llm.sample(temp=0.0)
    llm.reset()
    with pytest.raises(qsf.InvalidArgument, match="eval"):
        llm.sample()
    llm.load_state(state)
    assert llm.sample(temp=0.0) == following and llm.n_tokens == len(ids) + 4


def test_logits_of_all_tokens():
    with compat.Llama(model_path=str(MODEL), n_ctx=128, logits_all=True) as llm:
        llm.eval(llm.tokenize(PROMPT.encode()))
        assert llm.scores.shape == (5, 4096) and llm.sample(temp=0.0) == llm.scores[-1].argmax()


def test_embeddings(llm):
    one = llm.embed("a cat")
    assert len(one) == llm.n_embd() and isinstance(one[0], float)
    assert np.linalg.norm(llm.embed("a cat", normalize=True)) == pytest.approx(1, abs=1e-5)
    done = llm.create_embedding(["a cat", "a dog"])
    assert done["data"][0]["embedding"] == one and done["data"][1]["index"] == 1
    assert done["usage"]["total_tokens"] == 6


def test_what_a_text_begins_with_is_computed_once(llm):
    prompt = "once upon a time there was a man who " * 12
    llm(prompt, max_tokens=1)
    before = llm.model.stats["prompt_tokens"]
    llm(prompt + "went", max_tokens=1)
    assert llm.model.stats["prompt_tokens"] - before < 8


def test_keywords(caplog):
    with pytest.raises(TypeError, match="n_contexts"):
        compat.Llama(model_path=str(MODEL), n_contexts=3)
    with pytest.raises(qsf.Unsupported, match="rope_freq_base"):
        compat.Llama(model_path=str(MODEL), rope_freq_base=3.0)
    compat._told.clear()
    with caplog.at_level(logging.INFO, "qsf"):
        for _ in range(2):
            compat.Llama(model_path=str(MODEL), n_gpu_layers=-1, flash_attn=True, n_ctx=64).close()
    assert sum("n_gpu_layers is ignored" in text for text in caplog.messages) == 1
    with pytest.raises(qsf.Unsupported, match="nothing is downloaded"):
        compat.Llama.from_pretrained("a/b", filename="*q4.gguf")


def test_what_is_not_supported_is_named(llm, tmp_path):
    for call, word in ((lambda: llm(PROMPT, mirostat_mode=2), "mirostat_mode"),
                       (lambda: llm(PROMPT, tfs_z=0.5), "tfs_z"),
                       (lambda: llm(PROMPT, suffix="x"), "suffix"),
                       (lambda: llm.create_chat_completion([], functions=[]), "functions")):
        with pytest.raises(NotImplementedError, match=word):
            call()
    with pytest.raises(TypeError, match="max_token"):
        llm(PROMPT, max_token=3)
    (tmp_path / "model.gguf").write_bytes(b"GGUF1234")
    with pytest.raises(ValueError, match="convert it first"):
        compat.Llama(model_path=str(tmp_path / "model.gguf"))
    with pytest.raises(FileNotFoundError):
        compat.Llama(model_path=str(tmp_path / "missing.qsf"))
    with pytest.raises(ValueError):
        llm("word " * 2000)
