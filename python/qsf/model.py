# SPDX-License-Identifier: MIT
"""Models: opening, generating, scoring."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from . import _types as t
from ._engine import Engine, Handle
from ._library import check, int_array, sized
from .arrays import address_of, output
from .chat import Chat, ChatPrompt, Message
from .config import (
    Attention, Config, Head, KvPolicy, KvType, PathLike, Progress, ReadPath, Speculation,
)
from .errors import InvalidArgument
from .generation import Completion, Stream, generate
from .grammar import Grammar
from .hooks import LayerHook, RankHook
from .memory_plan import Plan, read_plan
from .sampler import Sampler
from .sampling import GenerateOptions, Prompt, Tokens, tokenize_flags
from .session import Session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Pooling = Literal["mean", "last", "first", "model"]
_POOLINGS = ("mean", "last", "first", "model")


def encode(engine: Engine, text: str | bytes, flags: int) -> list[int]:
    """Returns the tokens of a text; bytes may be any, as far as the model has tokens for them."""
    data, n = text.encode() if isinstance(text, str) else text, ctypes.c_size_t()
    capacity = len(data) + 8  # a token of text has a byte at least
    tokens, error = (ctypes.c_int * capacity)(), t.Error()
    with engine.text() as address:
        check(engine.lib.qsf_engine_tokenize(address, data, len(data), flags, tokens, capacity,
                                             ctypes.byref(n), error), error)
    return list(tokens[:n.value])


class Model:
    """A model, opened from a .qsf file (qsf.convert makes them) within a memory budget.

    Args:
        path: a .qsf file.
        ram_budget: limit of the memory of the whole process, as bytes or text ("200MB", "1.5GiB");
            what Python and NumPy hold when the model is opened counts too. Weights that do not fit
            are read from the file in every pass; results are the same. None: the memory that is
            free.
        threads: that compute; 0: the physical cores.
        context: positions; 0: the smaller of the trained length and 4,096.
        sessions: sequences that may exist at once. A session, a chat, an open stream and a running
            generate(), score() or embed() take one each.
        kv_positions: of all sessions together; 0: a context, and 1,024 for each further session.
        kv_type: of the KV cache, or (keys, values): "f16", "f32", "8bit", "4bit", "2bit".
        kv_policy: "full", "window" (`kv_sinks` first and `kv_window` last positions) or "h2o"
            (also `kv_heavy` heavy hitters).
        rope_reindex: True, with "window": texts may be longer than the trained context.
        kv_spill: a new file that holds the KV cache instead of memory.
        attention: of prompts: "full", "chunked", "symmetric", "h2o", with attention_options
            {"local", "heavy", "chunk", "sinks", "ranking": "mean" or "sum"}.
        draft_model: a .qsf file that drafts tokens.
        speculation: "auto", "off", "lookup" or "draft", with at most max_drafts a pass; the text
            is the same with any.
        adapters: LoRA files, or (file, name); `adapter` (1, 2, ...) is the one of new sessions,
            added adapter_scale times.
        head: "full", "certified" or "approximate", for files with a sketch of the output head.
        quality: share of the layers that tokens pass, above 0.
        experts: that a token takes of a mixture of experts; 0: the model's number.
        expert_margin: experts in memory may replace missing ones within this margin.
        exact: True: products take 32-bit activations.
        rows_per_pass: most prompt rows of a pass; 0: chosen.
        grammars: that may exist at once, about 2 MiB each and 40 bytes a token of the vocabulary;
            0: none.
        prefix_cache: True: prompts with a prefix_key share their beginnings; reuse_answers: and
            answers; prefix_folder: pages that leave memory go to files there, at most
            prefix_folder_bytes.
        extra_memory: {name: size} of memory of the caller that the budget shall count.
        read_path: "auto", "uring", "pread" or "mmap".
        preload: False: returns before the weights are read.
        pin: True: binds each thread to a core.
        on_load: called with (done, total) bytes while the weights are read.
        on_layer, kv_rank: hooks for research; see qsf.hooks.

    Raises:
        NotFound, IoError, Corrupt, Unsupported: the file.
        OutOfBudget: with `needed` and `budget` in bytes where ram_budget is too small.
        InvalidArgument: a value out of range.
        TypeError: a keyword that does not exist, by name.

    Threads: any number may call a model; their calls wait for each other, first in, first out.
    cancel(), tokenize() and detokenize() do not wait. Ctrl-C stops the call of the main thread. A
    callback that calls its model gets InvalidArgument.

    >>> with qsf.Model(path, ram_budget="200MB") as model:
    ...     text = model.generate("Once upon a time", max_tokens=8, temperature=0).text
    """

    def __init__(
        self,
        path: PathLike,
        *,
        ram_budget: int | float | str | None = None,
        threads: int = 0,
        context: int = 0,
        sessions: int = 1,
        kv_positions: int = 0,
        kv_type: KvType | tuple[KvType, KvType] = "f16",
        kv_policy: KvPolicy = "full",
        kv_window: int = 1024,
        kv_sinks: int = 4,
        kv_heavy: int = 256,
        rope_reindex: bool = False,
        kv_spill: PathLike | None = None,
        attention: Attention = "full",
        attention_options: Mapping[str, int | str] | None = None,
        draft_model: PathLike | None = None,
        speculation: Speculation = "auto",
        max_drafts: int = 0,
        adapters: Sequence[PathLike | tuple[PathLike, str]] = (),
        adapter: int = 0,
        adapter_scale: float = 1.0,
        head: Head = "certified",
        quality: float = 1.0,
        experts: int = 0,
        expert_margin: float = 0.0,
        exact: bool = False,
        rows_per_pass: int = 0,
        grammars: int = 1,
        prefix_cache: bool = False,
        reuse_answers: bool = False,
        prefix_folder: PathLike | None = None,
        prefix_folder_bytes: int | str = "1GB",
        extra_memory: Mapping[str, int | str] | None = None,
        read_path: ReadPath = "auto",
        preload: bool = True,
        pin: bool = False,
        on_load: Progress | None = None,
        on_layer: LayerHook | None = None,
        kv_rank: RankHook | None = None,
    ) -> None:
        settings = {name: value for name, value in locals().items() if name not in ("self", "path")}
        self._path = os.fspath(path)
        self._engine = Engine(self._path, Config(**settings))
        self._info: t.ModelInfo = sized(t.ModelInfo())
        self._read("qsf_engine_model_info", self._info)
        self.n_vocab: int = self._info.n_vocab
        self.hidden_size: int = self._info.hidden_size
        self.context: int = self._info.context
        self.bos_token: int | None = self._info.bos_token if self._info.bos_token >= 0 else None
        self.eos_token: int | None = self._info.eos_token if self._info.eos_token >= 0 else None

    # Texts

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Completion:
        """Completes a prompt from an empty context.

        Args:
            prompt: text, or token ids that are taken as they are.
            options: see qsf.GenerateOptions.

        Raises:
            OutOfBudget: the prompt exceeds the context, or there are `sessions` sessions already.

        >>> model.generate("Once upon a time", max_tokens=2, temperature=0).stop_reason
        'max_tokens'
        """
        handle = self._new_session()
        try:
            return generate(self._engine, handle, prompt, options)
        finally:
            handle.close()

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """generate() token by token, for `for` and `async for`.

        >>> for token in model.stream("Once upon a time", max_tokens=2):
        ...     _ = str(token)
        """
        return self._stream(prompt, options)

    def _stream(self, prompt: Prompt, options: GenerateOptions,
                end_texts: Sequence[bytes] = ()) -> Stream:
        handle = self._new_session()
        try:
            return Stream(self._engine, handle, prompt, options, end_texts, owns_session=True)
        except BaseException:
            handle.close()
            raise

    @overload
    def chat(self, messages: str | Sequence[Message], *, stream: Literal[False] = False,
             tools: Sequence[Mapping[str, Any]] | None = None,
             variables: Mapping[str, Any] | None = None, chat_template: str | None = None,
             **options: Unpack[GenerateOptions]) -> Completion: ...

    @overload
    def chat(self, messages: str | Sequence[Message], *, stream: Literal[True],
             tools: Sequence[Mapping[str, Any]] | None = None,
             variables: Mapping[str, Any] | None = None, chat_template: str | None = None,
             **options: Unpack[GenerateOptions]) -> Stream: ...

    def chat(self, messages: str | Sequence[Message], *, stream: bool = False,
             tools: Sequence[Mapping[str, Any]] | None = None,
             variables: Mapping[str, Any] | None = None, chat_template: str | None = None,
             **options: Unpack[GenerateOptions]) -> Completion | Stream:
        """Answers a conversation, from an empty context; start_chat() keeps the context.

        Args:
            messages: a user's message, or messages in OpenAI's form:
                [{"role": "user", "content": "Hello"}].
            stream: True: returns the answer token by token.
            tools: functions in OpenAI's form, for the template.
            variables: of the template, such as {"enable_thinking": False}.
            chat_template: a built-in name or Jinja source; None: the model's.
            options: see qsf.GenerateOptions. max_tokens: by default the room in the context.

        Raises:
            InvalidArgument: a message that the template cannot read, by name.
        """
        prompt = self.chat_prompt(messages, tools=tools, variables=variables,
                                  chat_template=chat_template)
        if "max_tokens" not in options and "max_new_tokens" not in options:
            options["max_tokens"] = max(1, self.context - len(prompt.tokens))
        options["end_tokens"] = [*options.get("end_tokens", ()), *prompt.end_tokens]
        ends = [text.encode() for text in prompt.end_texts]
        if stream:
            return self._stream(prompt.tokens, options, ends)
        handle = self._new_session()
        try:
            return generate(self._engine, handle, prompt.tokens, options, ends)
        finally:
            handle.close()

    def chat_prompt(self, messages: str | Sequence[Message], *,
                    tools: Sequence[Mapping[str, Any]] | None = None,
                    variables: Mapping[str, Any] | None = None,
                    chat_template: str | None = None,
                    add_generation_prompt: bool = True) -> ChatPrompt:
        """Formats a conversation with a chat template and encodes it; see chat()."""
        return ChatPrompt._make(self._engine, messages, tools, variables, chat_template,
                                add_generation_prompt)

    def start_chat(self, system: str | None = None, *, chat_template: str | None = None) -> Chat:
        """Begins a conversation in a session of its own, which keeps its context between turns."""
        return Chat._create(self._engine, system, chat_template)

    def session(self) -> Session:
        """Returns a new, empty session.

        Raises:
            OutOfBudget: there are `sessions` already.
        """
        return Session(self._engine, self._new_session(), self.n_vocab)

    def load_session(self, path: PathLike) -> Session:
        """Returns a session read from a file of Session.save."""
        session = self.session()
        try:
            session.load(path)
        except BaseException:
            session.close()
            raise
        return session

    def grammar(self, source: str) -> Grammar:
        """Compiles a GBNF grammar.

        Raises:
            InvalidArgument: a syntax error, with line and column. OutOfBudget: there are `grammars`
                already.
        """
        return Grammar._compile(self._engine, t.GRAMMAR_GBNF, source)

    def json_schema(self, schema: Mapping[str, Any] | str) -> Grammar:
        """Compiles a JSON Schema.

        Raises:
            Unsupported: a keyword that is not supported, with its path.
        """
        import json

        text = schema if isinstance(schema, str) else json.dumps(schema)
        return Grammar._compile(self._engine, t.GRAMMAR_JSON_SCHEMA, text)

    def sampler(self, **options: Unpack[GenerateOptions]) -> Sampler:
        """Returns what draws tokens from logits, such as those of Session.step.

        Args:
            options: the sampling of qsf.GenerateOptions, without grammars.
        """
        return Sampler(self._engine, self.n_vocab, **options)

    def _new_session(self) -> Handle:
        create, engine = self._engine.lib.qsf_session_create, self._engine
        return engine.create("qsf_session_free",
                             lambda out, error: int(create(engine.check_open(), out, error)))

    # Tokens

    def tokenize(self, text: str, *, bos: bool = True, special: bool = False) -> list[int]:
        """Encodes text.

        Args:
            bos: True: with a beginning-of-text token where the model wants one.
            special: True: special tokens in the text are parsed.

        >>> model.detokenize(model.tokenize("a cat"))
        'a cat'
        """
        return encode(self._engine, text, tokenize_flags(bos, special))

    def detokenize(self, tokens: Tokens) -> str:
        """Decodes tokens; special ones are left out, invalid UTF-8 becomes U+FFFD."""
        lib, error, out = self._engine.lib, t.Error(), ctypes.c_void_p()
        with self._engine.text() as address:
            check(lib.qsf_engine_detokenize(address, int_array(tokens), len(tokens),
                                            ctypes.byref(out), error), error)
        try:
            return ctypes.string_at(out.value or 0).decode()
        finally:
            lib.qsf_string_free(out)

    def token_bytes(self, token: int) -> bytes:
        """Returns the bytes that a token adds to a text; of special tokens, their names."""
        lib, error, n = self._engine.lib, t.Error(), ctypes.c_size_t()
        with self._engine.text() as address:
            check(lib.qsf_engine_get_token_bytes(address, token, None, 0, ctypes.byref(n), error),
                  error)
            text = ctypes.create_string_buffer(max(1, n.value))
            check(lib.qsf_engine_get_token_bytes(address, token, text, n.value, ctypes.byref(n),
                                                 error), error)
        return text.raw[:n.value]

    # Arrays

    def logits(self, prompt: Prompt, *, last: bool = False,
               out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Computes a prompt from an empty context. The engine writes into NumPy's memory.

        Args:
            last: True: the logits after the last token alone.
            out: an array to fill instead of a new one.

        Returns:
            float32[n_tokens, n_vocab], or float32[n_vocab] with `last`.

        >>> model.logits("Once upon", last=True).shape == (model.n_vocab,)
        True
        """
        with self.session() as session:
            if not last:
                return session.logits(prompt, out=out)
            array = session.prefill(prompt, logits=True, out=out)
        assert array is not None
        return array

    def score(self, prompt: Prompt, *, first: int = 1,
              out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Computes natural log probabilities of tokens `first`, first + 1 ..., each given all
        before it.

        Returns:
            float64[n_tokens - first].
        """
        ids = self._ids(prompt)
        if not 0 < first < len(ids):
            raise InvalidArgument(f"first: {first}, expected 1 to {len(ids) - 1}, the last token")
        array: NDArray[np.float64] = output(out, (len(ids) - first,), "float64")
        memory = ctypes.cast(address_of(array), ctypes.POINTER(ctypes.c_double))
        self._run("qsf_engine_score", int_array(ids), len(ids), first, memory)
        return array

    def embed(self, prompt: Prompt | Sequence[str], *, pooling: Pooling = "model",
              normalize: bool = True,
              out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Computes an embedding: the hidden rows behind the final norm, pooled.

        Args:
            prompt: text, token ids, or several texts.
            pooling: "mean", "last", "first", or "model": as its file says, else the mean.
            normalize: True: divided by its Euclidean length.

        Returns:
            float32[hidden_size], or float32[n_texts, hidden_size] for several texts.
        """
        if pooling not in _POOLINGS:
            raise InvalidArgument(f"pooling: {pooling!r}, expected one of {', '.join(_POOLINGS)}")
        several = not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], str)
        texts: Any = prompt if several else [prompt]
        shape = (len(texts), self.hidden_size) if several else (self.hidden_size,)
        array: NDArray[np.float32] = output(out, shape, "float32")
        for i, text in enumerate(texts):
            ids = int_array(self._ids(text))
            memory = address_of(array) + 4 * self.hidden_size * i
            self._run("qsf_engine_embed", ids, len(ids), _POOLINGS.index(pooling), normalize,
                      memory)
        return array

    def _ids(self, prompt: Prompt) -> Tokens:
        return self.tokenize(prompt) if isinstance(prompt, str) else prompt

    # Facts

    @property
    def path(self) -> str:
        """The file that it was opened from."""
        return self._path

    @property
    def info(self) -> dict[str, Any]:
        """The model: architecture, quant_type, chat_template, n_layers, n_parameters ..."""
        return self._as_dict(self._info)

    @property
    def stats(self) -> dict[str, Any]:
        """Counters since the model was opened, as qsf_engine_stats has them: _ns are nanoseconds,
        _bytes bytes."""
        return self._as_dict(self._read("qsf_engine_get_stats", sized(t.EngineStats())))

    @property
    def prefix_stats(self) -> dict[str, Any]:
        """What the prefix cache holds and has done."""
        return self._as_dict(self._read("qsf_engine_prefix_stats", sized(t.PrefixStats())))

    @property
    def plan(self) -> Plan:
        """The memory plan; qsf.plan() makes one without opening the model."""
        with self._engine.text() as address:
            return read_plan(self._engine.lib, self._engine.lib.qsf_engine_plan(address))

    @property
    def adapters(self) -> list[str]:
        """Names of the LoRA adapters, of which the first is number 1."""
        lib = self._engine.lib
        with self._engine.text() as address:
            n = lib.qsf_engine_adapter_count(address)
            return [lib.qsf_engine_adapter_name(address, i + 1).decode() for i in range(n)]

    def _read(self, function: str, struct: Any) -> Any:
        self._run(function, struct)
        return struct

    def _run(self, function: str, *arguments: Any) -> None:
        engine, call = self._engine, getattr(self._engine.lib, function)
        engine.run(lambda error: int(call(engine.check_open(), *arguments, error)))

    def _as_dict(self, struct: Any) -> dict[str, Any]:
        with self._engine.text():  # its strings are the engine's
            values = {name: getattr(struct, name) for name, _ in struct._fields_[1:]}
        return {name: value.decode() if isinstance(value, bytes) else value
                for name, value in values.items()}

    # End

    def cancel(self) -> None:
        """Stops the call in progress within about one weight tile, and ends every open stream.

        Generations return what they have, with the stop reason "cancelled"; other calls raise
        Cancelled. Any thread may call it, and a signal handler; nothing happens without a call.
        """
        self._engine.cancel()

    def close(self) -> None:
        """Frees the model and all that was made of it; calls in progress are cancelled.
        Idempotent."""
        self._engine.close()

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._engine._handle is None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<qsf.Model {self._path!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model cannot be pickled or copied: open it in each process")
