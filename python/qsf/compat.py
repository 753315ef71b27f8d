# SPDX-License-Identifier: MIT
"""Llama: the names, defaults and results that users of llama-cpp-python know, over qsf.Model.

What differs is refused by name, or said here:

- models are .qsf files, which qsf.convert makes; nothing is downloaded;
- keywords of GPUs are accepted, and told of once by logging; so are those without a meaning here;
- `ram_budget` is a further keyword of Llama;
- tool calls stay text in the content of an answer; mirostat and tail-free sampling do not exist;
- errors are those of qsf, which are also ValueError, FileNotFoundError, MemoryError ...
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from .config import KvType, logger
from .errors import InvalidArgument, Unsupported
from .generation import Stream
from .model import Model, encode
from .sampling import GenerateOptions, tokenize_flags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LogitsProcessor = Callable[["NDArray[np.intc]", "NDArray[np.single]"], "NDArray[np.single]"]
StoppingCriteria = Callable[["NDArray[np.intc]", "NDArray[np.single]"], bool]
Chunk = dict[str, Any]

DEFAULT_SEED = 0xFFFFFFFF  # draws a seed for each call, and so does -1
_CHAT_FORMATS = {"llama-2": "llama2", "llama-3": "llama3", "mistral-instruct": "mistral"}
# ggml's numbers of types.
_KV_TYPES: dict[int, KvType] = {0: "f32", 1: "f16", 2: "4bit", 8: "8bit"}

_GPU = {"n_gpu_layers": 0, "split_mode": 1, "main_gpu": 0, "tensor_split": None,
        "offload_kqv": True, "flash_attn": False, "op_offload": None}
_WITHOUT_MEANING = {"use_mmap": True, "use_mlock": False, "n_batch": 512, "n_ubatch": 512,
                    "n_threads_batch": None, "swa_full": None, "no_perf": False, "numa": False,
                    "verbose": True, "embedding": False}
_REFUSED = {"vocab_only": False, "kv_overrides": None, "rope_scaling_type": -1, "pooling_type": -1,
            "attention_type": -1, "rope_freq_base": 0.0, "rope_freq_scale": 0.0,
            "yarn_ext_factor": -1.0, "yarn_attn_factor": 1.0, "yarn_beta_fast": 32.0,
            "yarn_beta_slow": 1.0, "yarn_orig_ctx": 0, "lora_base": None, "chat_handler": None,
            "tokenizer": None, "spm_infill": False}
_told: set[str] = set()


class LogitsProcessorList(list[LogitsProcessor]):
    """Processors that are called one after the other."""


class StoppingCriteriaList(list[StoppingCriteria]):
    """Criteria of which any one ends the text."""


class LlamaGrammar:
    """A grammar that create_completion compiles."""

    def __init__(self, options: GenerateOptions) -> None:
        self.options = options

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        return cls({"grammar": grammar})

    @classmethod
    def from_file(cls, file: str | os.PathLike[str], verbose: bool = True) -> LlamaGrammar:
        with open(file, encoding="utf-8") as source:
            return cls({"grammar": source.read()})

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        return cls({"json_schema": json_schema})


class LlamaState:
    """What save_state keeps: a session file and the last logits."""

    def __init__(self, session: bytes | None, logits: Any) -> None:
        self.session, self.logits = session, logits


class _Stop(Exception):
    """A stopping criterion holds."""


class Llama:
    """A model with the interface of llama_cpp.Llama; see the module for what differs.

    >>> llm = qsf.compat.Llama(model_path=path, n_ctx=128)
    >>> llm("Once upon a time", max_tokens=4)["choices"][0]["finish_reason"]
    'length'
    >>> llm.close()
    """

    def __init__(
        self, model_path: str, *,
        n_gpu_layers: int = 0, split_mode: int = 1, main_gpu: int = 0,
        tensor_split: list[float] | None = None, vocab_only: bool = False, use_mmap: bool = True,
        use_mlock: bool = False, kv_overrides: Mapping[str, Any] | None = None,
        seed: int = DEFAULT_SEED, n_ctx: int = 512, n_batch: int = 512, n_ubatch: int = 512,
        n_threads: int | None = None, n_threads_batch: int | None = None,
        rope_scaling_type: int | None = -1, pooling_type: int = -1, attention_type: int = -1,
        rope_freq_base: float = 0.0, rope_freq_scale: float = 0.0, yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = 1.0, yarn_beta_fast: float = 32.0, yarn_beta_slow: float = 1.0,
        yarn_orig_ctx: int = 0, logits_all: bool = False, embedding: bool = False,
        offload_kqv: bool = True, flash_attn: bool = False, op_offload: bool | None = None,
        swa_full: bool | None = None, no_perf: bool = False, last_n_tokens_size: int = 64,
        lora_base: str | None = None, lora_scale: float = 1.0, lora_path: str | None = None,
        numa: bool | int = False, chat_format: str | None = None, chat_handler: Any = None,
        draft_model: Any = None, tokenizer: Any = None, type_k: int | None = None,
        type_v: int | None = None, spm_infill: bool = False, verbose: bool = True,
        ram_budget: int | str | None = None,
    ) -> None:
        _check_keywords(locals())
        self.model_path, self.verbose, self.chat_format = model_path, verbose, chat_format
        if _is_gguf(model_path):
            raise InvalidArgument(
                f"model_path: {model_path}: a GGUF file; convert it first: "
                f'qsf.convert("{model_path}", "model.qsf")')
        types = tuple(_kv_type(name, number) for name, number in
                      (("type_k", type_k), ("type_v", type_v)))
        if draft_model is not None and not isinstance(draft_model, (str, os.PathLike)):
            raise Unsupported("draft_model: expected the path of a .qsf file")
        self.model = Model(
            model_path, ram_budget=ram_budget, threads=n_threads or 0, context=n_ctx,
            kv_type=cast("tuple[KvType, KvType]", types), draft_model=draft_model,
            adapters=[lora_path] if lora_path else [], adapter=1 if lora_path else 0,
            adapter_scale=lora_scale)
        self.last_n_tokens_size = last_n_tokens_size
        self._seed, self._logits_all = seed, logits_all
        self._session = self.model.session()
        self._logits: Any = None  # float32[n_vocab] after the last token that eval() computed
        self._rows: list[Any] = []  # with logits_all: float32[n, n_vocab] of each eval()
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: str | None = None, **_: Any) -> NoReturn:
        """Refused: nothing is downloaded."""
        raise Unsupported(
            f"from_pretrained: {repo_id}: nothing is downloaded; fetch the files, then "
            'qsf.convert(folder, "model.qsf") and Llama(model_path="model.qsf")')

    # Tokens

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        return encode(self.model._engine, text, tokenize_flags(add_bos, special))

    def detokenize(self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None,
                   special: bool = False) -> bytes:
        text = b"".join(self._piece(token, special) for token in tokens)
        at_start = not prev_tokens and len(tokens) > 0 and tokens[0] == self.token_bos()
        return text[1:] if at_start and text.startswith(b" ") else text

    def _piece(self, token: int, special: bool) -> bytes:
        if special:
            return self.model.token_bytes(token)
        if token not in self._pieces:
            is_special = self.model.detokenize([token, token]) == ""
            self._pieces[token] = b"" if is_special else self.model.token_bytes(token)
        return self._pieces[token]

    def n_ctx(self) -> int:
        return self.model.context

    def n_embd(self) -> int:
        return self.model.hidden_size

    def n_vocab(self) -> int:
        return self.model.n_vocab

    def token_eos(self) -> int:
        return -1 if self.model.eos_token is None else self.model.eos_token

    def token_bos(self) -> int:
        return -1 if self.model.bos_token is None else self.model.bos_token

    def token_nl(self) -> int:
        return self.tokenize(b"\n", add_bos=False)[-1]

    # Step by step

    @property
    def n_tokens(self) -> int:
        return len(self._session)

    @property
    def eval_tokens(self) -> deque[int]:
        return deque(self._session.tokens, maxlen=self.n_ctx())

    @property
    def scores(self) -> NDArray[np.single]:
        """float32[n, n_vocab]: with logits_all of every token of eval(), else of the last."""
        import numpy as np

        if self._logits_all and self._rows:
            return np.concatenate(self._rows)
        return np.empty((0, self.n_vocab()), np.single) if self._logits is None else self._logits[None]

    def set_seed(self, seed: int) -> None:
        self._seed = seed

    def set_cache(self, cache: object) -> None:
        """Accepted: the longest beginning of the last text is always kept."""

    def reset(self) -> None:
        self._session.truncate(0)
        self._logits, self._rows = None, []

    def eval(self, tokens: Sequence[int]) -> None:
        if self._logits_all:
            self._rows.append(self._session.logits(tokens))
            self._logits = self._rows[-1][-1].copy()
        else:
            self._logits = self._session.prefill(tokens, logits=True)

    def sample(self, top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05,
               typical_p: float = 1.0, temp: float = 0.80, repeat_penalty: float = 1.0,
               frequency_penalty: float = 0.0, presence_penalty: float = 0.0,
               logits_processor: LogitsProcessorList | None = None) -> int:
        """Draws from the logits behind eval()."""
        if self._logits is None:
            raise InvalidArgument("sample: no token was evaluated; eval() comes first")
        held = self._session.tokens
        options = self._options(
            held, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p, temperature=temp,
            repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty, logits_processor=logits_processor)
        sampler = self.model.sampler(**options)
        try:
            for token in held[-self.last_n_tokens_size:] if self.last_n_tokens_size else ():
                sampler.accept(token)
            return sampler.sample(self._logits)
        finally:
            sampler.close()

    def generate(self, tokens: Sequence[int], top_k: int = 40, top_p: float = 0.95,
                 min_p: float = 0.05, typical_p: float = 1.0, temp: float = 0.80,
                 repeat_penalty: float = 1.0, reset: bool = True, frequency_penalty: float = 0.0,
                 presence_penalty: float = 0.0,
                 logits_processor: LogitsProcessorList | None = None,
                 stopping_criteria: StoppingCriteriaList | None = None,
                 grammar: LlamaGrammar | None = None) -> Iterator[int]:
        """Yields generated tokens, up to the end of the text or of the context."""
        held = [] if reset else self._session.tokens
        options = self._options(
            [*held, *tokens], top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p,
            temperature=temp, repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty, logits_processor=logits_processor,
            stopping_criteria=stopping_criteria, grammar=grammar)
        options["max_tokens"] = max(0, self.n_ctx() - len(held) - len(tokens))
        with self._start(tokens, options, (), keep=not reset) as stream:
            for token in _until_stopped(stream):
                if not token.is_rest:
                    yield token.id

    def save_state(self) -> LlamaState:
        if self.n_tokens == 0:
            return LlamaState(None, None)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            self._session.save(path)
            with open(path, "rb") as file:
                return LlamaState(file.read(), None if self._logits is None else self._logits.copy())

    def load_state(self, state: LlamaState) -> None:
        self.reset()
        if state.session is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            with open(path, "wb") as file:
                file.write(state.session)
            self._session.load(path)
        self._logits = state.logits

    # Embeddings

    def embed(self, input: str | list[str], normalize: bool = False, truncate: bool = True,
              return_count: bool = False) -> Any:
        """Returns a list of floats, or one for each text; with return_count also the tokens."""
        self._session.truncate(0)
        self._session.close()  # its place is needed; embed() takes one during the call
        try:
            rows, count = [], 0
            for text in [input] if isinstance(input, str) else input:
                tokens = self.model.tokenize(text)
                tokens = tokens[:self.n_ctx()] if truncate else tokens
                count += len(tokens)
                rows.append(self.model.embed(tokens, normalize=normalize).tolist())
        finally:
            self._session = self.model.session()
            self._logits, self._rows = None, []
        output = rows[0] if isinstance(input, str) else rows
        return (output, count) if return_count else output

    def create_embedding(self, input: str | list[str], model: str | None = None) -> dict[str, Any]:
        texts = [input] if isinstance(input, str) else input
        rows, count = self.embed(texts, return_count=True)
        return {"object": "list", "model": model or self.model_path,
                "data": [{"object": "embedding", "embedding": row, "index": i}
                         for i, row in enumerate(rows)],
                "usage": {"prompt_tokens": count, "total_tokens": count}}

    # Completions

    def create_completion(
        self, prompt: str | list[int], suffix: str | None = None, max_tokens: int | None = 16,
        temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0,
        logprobs: int | None = None, echo: bool = False, stop: str | list[str] | None = None,
        frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_penalty: float = 1.0,
        top_k: int = 40, stream: bool = False, seed: int | None = None, tfs_z: float = 1.0,
        mirostat_mode: int = 0, mirostat_tau: float = 5.0, mirostat_eta: float = 0.1,
        model: str | None = None, stopping_criteria: StoppingCriteriaList | None = None,
        logits_processor: LogitsProcessorList | LogitsProcessor | None = None,
        grammar: LlamaGrammar | None = None, logit_bias: Mapping[int, float] | None = None,
    ) -> dict[str, Any] | Iterator[Chunk]:
        """Completes a prompt: a dict in OpenAI's form, or with stream=True an iterator of chunks."""
        _check_samplers(tfs_z, mirostat_mode)
        if suffix is not None:
            raise Unsupported("suffix: the model's tokens for infilling are not known")
        tokens = (prompt if isinstance(prompt, list)
                  else self.tokenize(prompt.encode(), special=True))
        options = self._options(
            tokens, temperature=temperature, top_p=top_p, min_p=min_p, typical_p=typical_p,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
            repeat_penalty=repeat_penalty, top_k=top_k, seed=seed, grammar=grammar,
            logits_processor=logits_processor, stopping_criteria=stopping_criteria,
            logit_bias=logit_bias, stop=stop, logprobs=logprobs)
        room = self.n_ctx() - len(tokens)
        options["max_tokens"] = min(max_tokens, room) if max_tokens and max_tokens > 0 else room
        shape = _Completion(model or self.model_path, self, logprobs)
        shown = prompt if isinstance(prompt, str) else self.detokenize(prompt).decode("utf-8", "replace")
        chunks = self._chunks(shape, tokens, options, (), shown if echo else "")
        return chunks if stream else shape.whole(chunks)

    __call__ = create_completion

    def create_chat_completion(
        self, messages: list[dict[str, Any]], functions: Any = None, function_call: Any = None,
        tools: list[dict[str, Any]] | None = None, tool_choice: str | dict[str, Any] | None = None,
        temperature: float = 0.2, top_p: float = 0.95, top_k: int = 40, min_p: float = 0.05,
        typical_p: float = 1.0, stream: bool = False, stop: str | list[str] | None = None,
        seed: int | None = None, response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None, presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0, repeat_penalty: float = 1.0, tfs_z: float = 1.0,
        mirostat_mode: int = 0, mirostat_tau: float = 5.0, mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: LogitsProcessorList | LogitsProcessor | None = None,
        grammar: LlamaGrammar | None = None, logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None, top_logprobs: int | None = None,
    ) -> dict[str, Any] | Iterator[Chunk]:
        """Answers messages: a dict in OpenAI's form, or with stream=True an iterator of chunks."""
        _check_samplers(tfs_z, mirostat_mode)
        for name, value in (("functions", functions), ("function_call", function_call)):
            if value is not None:
                raise Unsupported(f"{name}: use tools")
        if tool_choice not in (None, "auto", "none"):
            raise Unsupported(f"tool_choice: {tool_choice!r}, expected auto or none")
        chat_format = self.chat_format
        prompt = self.model.chat_prompt(
            messages, tools=None if tool_choice == "none" else tools,
            chat_template=_CHAT_FORMATS.get(chat_format, chat_format) if chat_format else None)
        options = self._options(
            prompt.tokens, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p,
            typical_p=typical_p, stop=stop, seed=seed, presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty, repeat_penalty=repeat_penalty, grammar=grammar,
            logits_processor=logits_processor, logit_bias=logit_bias,
            logprobs=top_logprobs or 0 if logprobs else None)
        if response_format is not None and response_format.get("type") == "json_object":
            options["json_schema"] = response_format.get("schema", True)
        options["end_tokens"] = prompt.end_tokens
        room = self.n_ctx() - len(prompt.tokens)
        options["max_tokens"] = min(max_tokens, room) if max_tokens and max_tokens > 0 else room
        shape = _ChatCompletion(model or self.model_path, self, top_logprobs if logprobs else None)
        ends = [text.encode() for text in prompt.end_texts]
        chunks = self._chunks(shape, prompt.tokens, options, ends, "")
        return chunks if stream else shape.whole(chunks)

    def _chunks(self, shape: _Completion, tokens: Sequence[int], options: GenerateOptions,
                ends: Sequence[bytes], echo: str) -> Iterator[Chunk]:
        shape.prompt_tokens = len(tokens)
        yield from shape.first(echo)
        reason = "stop"
        with self._start(tokens, options, ends) as stream:
            for token in _until_stopped(stream):
                shape.count += not token.is_rest
                if token.text or shape.logprobs is not None:
                    yield shape.chunk(token.text, token, None)
            if stream.result is not None:
                reason = ("length" if stream.result.stop_reason in ("max_tokens", "context_full")
                          else "stop")
        yield shape.chunk("", None, reason)

    def _start(self, tokens: Sequence[int], options: GenerateOptions, ends: Sequence[bytes],
               keep: bool = False) -> Stream:
        """Begins a text in the session; what it has of the beginning is not computed again."""
        self._logits, self._rows = None, []
        if not keep:
            held, common = self._session.tokens, 0
            while common < min(len(held), len(tokens) - 1) and held[common] == tokens[common]:
                common += 1
            self._session.truncate(common)
            tokens = tokens[common:]
        return Stream(self.model._engine, self._session._handle, list(tokens), options, ends)

    def _options(self, prompt: Sequence[int], *, seed: int | None = None,
                 stop: str | list[str] | None = None, logprobs: int | None = None,
                 logit_bias: Mapping[int, float] | None = None,
                 grammar: LlamaGrammar | None = None,
                 logits_processor: LogitsProcessorList | LogitsProcessor | None = None,
                 stopping_criteria: StoppingCriteriaList | None = None,
                 **sampling: float) -> GenerateOptions:
        options = cast(GenerateOptions, dict(sampling))
        options["repeat_window"] = self.last_n_tokens_size
        number = self._seed if seed is None else seed
        options["seed"] = random.getrandbits(63) if number in (-1, DEFAULT_SEED) else number
        if stop:
            options["stop"] = stop
        if logprobs is not None:
            options["log_probs"] = logprobs or True
        if logit_bias:
            options["logit_bias"] = {int(token): bias for token, bias in logit_bias.items()}
        if grammar is not None:
            options = cast(GenerateOptions, {**options, **grammar.options})
        processors: list[LogitsProcessor] = (
            [] if logits_processor is None else list(logits_processor)
            if isinstance(logits_processor, list) else [logits_processor])
        if processors or stopping_criteria:
            options["logits_filter"] = _Filter(prompt, processors, stopping_criteria or [])
        return options

    # End

    def close(self) -> None:
        """Frees the model. Idempotent."""
        self.model.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Filter:
    """Processors and criteria, which see the tokens so far."""

    def __init__(self, prompt: Sequence[int], processors: list[LogitsProcessor],
                 criteria: Sequence[StoppingCriteria]) -> None:
        self.tokens = list(prompt)
        self._processors, self._criteria = processors, criteria

    def __call__(self, logits: NDArray[np.float32]) -> None:
        import numpy as np

        ids = np.array(self.tokens, np.intc)
        for processor in self._processors:
            logits[:] = processor(ids, logits)
        if any(criterion(ids, logits) for criterion in self._criteria):
            raise _Stop


def _until_stopped(stream: Stream) -> Iterator[Any]:
    logits_filter = stream._options.get("logits_filter")
    try:
        for token in stream:
            if isinstance(logits_filter, _Filter) and not token.is_rest:
                logits_filter.tokens.append(token.id)
            yield token
    except _Stop:
        return


class _Completion:
    """The shapes of a completion and its chunks."""

    kind, chunk_kind, prefix = "text_completion", "text_completion", "cmpl-"

    def __init__(self, model: str, llama: Llama, logprobs: int | None) -> None:
        self.id, self.created = self.prefix + str(uuid.uuid4()), int(time.time())
        self.model, self.llama, self.logprobs = model, llama, logprobs
        self.prompt_tokens = self.count = self._offset = 0

    def first(self, echo: str) -> Iterator[Chunk]:
        if echo:
            yield self.chunk(echo, None, None)

    def chunk(self, text: str, token: Any, reason: str | None) -> Chunk:
        choice = {"text": text, "index": 0, "logprobs": self._logprobs(text, token),
                  "finish_reason": reason}
        self._offset += len(text)
        return self._around(self.chunk_kind, choice)

    def _logprobs(self, text: str, token: Any) -> dict[str, Any] | None:
        if self.logprobs is None or token is None or token.is_rest:
            return None
        return {"tokens": [text], "text_offset": [self._offset], "token_logprobs": [token.log_prob],
                "top_logprobs": [{self._text(each): value for each, value in token.top}]}

    def _text(self, token: int) -> str:
        return self.llama.detokenize([token]).decode("utf-8", "replace")

    def _around(self, kind: str, choice: dict[str, Any]) -> Chunk:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model,
                "choices": [choice]}

    def whole(self, chunks: Iterator[Chunk]) -> dict[str, Any]:
        """Returns one result of all chunks."""
        choices = [chunk["choices"][0] for chunk in chunks]
        parts = [choice["logprobs"] for choice in choices if choice["logprobs"]]
        joined = {name: [value for part in parts for value in part[name]] for name in parts[0]} \
            if parts else None
        result = self._around(self.kind, self._choice(choices, joined))
        result["usage"] = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.count,
                           "total_tokens": self.prompt_tokens + self.count}
        return result

    def _choice(self, choices: list[dict[str, Any]], logprobs: Any) -> dict[str, Any]:
        return {"text": "".join(choice["text"] for choice in choices), "index": 0,
                "logprobs": logprobs, "finish_reason": choices[-1]["finish_reason"]}


class _ChatCompletion(_Completion):
    """The same of an answer."""

    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def first(self, echo: str) -> Iterator[Chunk]:
        yield self._around(self.chunk_kind, {"index": 0, "delta": {"role": "assistant"},
                                             "logprobs": None, "finish_reason": None})

    def chunk(self, text: str, token: Any, reason: str | None) -> Chunk:
        delta = {"content": text} if reason is None else {}
        return self._around(self.chunk_kind, {"index": 0, "delta": delta, "finish_reason": reason,
                                              "logprobs": self._logprobs(text, token)})

    def _logprobs(self, text: str, token: Any) -> dict[str, Any] | None:
        if self.logprobs is None or token is None or token.is_rest:
            return None
        top = [{"token": self._text(each), "logprob": value, "bytes": None}
               for each, value in token.top]
        return {"content": [{"token": text, "logprob": token.log_prob, "bytes": None,
                             "top_logprobs": top}]}

    def _choice(self, choices: list[dict[str, Any]], logprobs: Any) -> dict[str, Any]:
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        return {"index": 0, "message": {"role": "assistant", "content": text},
                "logprobs": logprobs, "finish_reason": choices[-1]["finish_reason"]}


def _check_keywords(given: Mapping[str, Any]) -> None:
    for name, default in _REFUSED.items():
        if given[name] != default:
            raise Unsupported(f"{name}: {given[name]!r} is not supported; leave it out")
    for names, why in ((_GPU, "there is no GPU code"), (_WITHOUT_MEANING, "it has no meaning here")):
        for name, default in names.items():
            if given[name] != default and name not in _told:
                _told.add(name)
                logger.info("Llama: %s is ignored: %s", name, why)


def _check_samplers(tfs_z: float, mirostat_mode: int) -> None:
    for name, value, default in (("tfs_z", tfs_z, 1.0), ("mirostat_mode", mirostat_mode, 0)):
        if value != default:
            raise Unsupported(f"{name}: {value!r} is not supported; leave it out")


def _kv_type(name: str, number: int | None) -> KvType:
    if number is None:
        return "f16"
    if number not in _KV_TYPES:
        raise Unsupported(f"{name}: {number}, expected 0 (f32), 1 (f16), 8 (8 bits) or 2 (4 bits)")
    return _KV_TYPES[number]


def _is_gguf(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False  # Model says what is wrong
