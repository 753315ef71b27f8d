# SPDX-License-Identifier: MIT
"""Options of a generation, and how they reach qsf_sampling and qsf_generate_options."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union

from . import _types as t
from ._library import int_array, sized, text_array
from .errors import Caught, InvalidArgument
from .grammar import Grammar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ._engine import Engine

Tokens = Union[Sequence[int], "NDArray[np.integer[Any]]"]
Prompt = Union[str, Tokens]
LogitsFilter = Callable[["NDArray[np.float32]"], None]
MAX_INT = 2**31 - 1


class GenerateOptions(TypedDict, total=False):
    """Keywords of generate(), stream() and their siblings. The defaults stand in parentheses.

    Sampling, in the order of the steps: `logits_filter` changes the logits float32[n_vocab] in
    place; it makes generation slow. `repeat_penalty` (1), `frequency_penalty` (0) and
    `presence_penalty` (0) look at `repeat_window` (64) tokens. `dry_multiplier` (0, off),
    `dry_base` (1.75), `dry_allowed_length` (2), `dry_window` (-1: all), `dry_breakers`.
    `logit_bias` {token: bias}. `grammar` (GBNF text or a Grammar) or `json_schema` (a schema, or
    True for any object), from behind `grammar_trigger` on. `temperature` (0.7; 0 is greedy),
    `top_k` (40; 0 keeps all), `typical_p` (1), `top_p` (0.9), `min_p` (0), `xtc_probability` (0)
    and `xtc_threshold` (0.1). `seed` (0): the same seed gives the same text.

    End: `max_tokens` (256; also as `max_new_tokens`), `stop` (a text or several), `end_tokens`,
    `ignore_end_of_text` (False).

    Prompt: `bos` (True: a beginning-of-text token where the model wants one), `special` (False:
    special tokens in the text are text), `prefix_key` (text; shares the prompt's beginning in the
    prefix cache), `on_prompt(done, total)`.

    Result: `log_probs` (False; True, or how many of the likeliest tokens too), `keep_special`.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    repeat_window: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_window: int
    dry_breakers: Sequence[str]
    xtc_probability: float
    xtc_threshold: float
    seed: int
    logit_bias: Mapping[int, float]
    logits_filter: LogitsFilter
    grammar: str | Grammar
    json_schema: Mapping[str, Any] | str | bool
    grammar_trigger: str
    max_tokens: int
    max_new_tokens: int
    stop: str | Sequence[str]
    end_tokens: Sequence[int]
    ignore_end_of_text: bool
    bos: bool
    special: bool
    prefix_key: str
    on_prompt: Callable[[int, int], None]
    log_probs: bool | int
    keep_special: bool


_PLAIN = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_window",
    "frequency_penalty", "presence_penalty", "dry_multiplier", "dry_base", "dry_allowed_length",
    "dry_window", "xtc_probability", "xtc_threshold", "seed",
)
NAMES = frozenset(GenerateOptions.__annotations__)


def check_names(options: Mapping[str, object]) -> None:
    """Raises TypeError for an option that does not exist, by name."""
    for name in options:
        if name not in NAMES:
            raise TypeError(f"unexpected keyword argument {name!r}; see qsf.GenerateOptions")


class Callbacks(Caught):
    """Functions of the caller within one generation, and the first exception of them."""

    def guard(self, function: Callable[..., Any]) -> Callable[..., int]:
        """Returns a function for C: 0, or 1 once it has raised."""

        def call(*arguments: Any) -> int:
            if self.error is not None:
                return 1
            try:
                function(*arguments)
            except BaseException as error:  # noqa: B036  raised by the thread that waits
                self.keep(error)
                return 1
            return 0

        return call


def grammar_of(engine: Engine, options: GenerateOptions) -> Grammar | None:
    """Returns the grammar that the options name, compiled unless it is one."""
    grammar, schema = options.get("grammar"), options.get("json_schema")
    if grammar is not None and schema is not None:
        raise InvalidArgument("grammar and json_schema: both are given, expected at most one")
    if isinstance(grammar, Grammar):
        if grammar._handle.engine is not engine:
            raise InvalidArgument("grammar: compiled for another model")
        return grammar
    if grammar is not None:
        return Grammar._compile(engine, t.GRAMMAR_GBNF, grammar)
    if schema is None or schema is False:
        return None
    if schema is True:
        return Grammar._compile(engine, t.GRAMMAR_JSON_OBJECT, "")
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Grammar._compile(engine, t.GRAMMAR_JSON_SCHEMA, text)


def sampling_struct(engine: Engine, options: GenerateOptions, callbacks: Callbacks,
                    keep: list[object]) -> t.Sampling:
    """Returns qsf_sampling of the options; what it points to is added to `keep`."""
    struct: t.Sampling = sized(t.Sampling())
    engine.lib.qsf_sampling_init_sized(struct, struct.struct_size)
    for name in _PLAIN:
        if name in options:
            setattr(struct, name, options[name])  # type: ignore[literal-required]
    bias = options.get("logit_bias")
    if bias:
        struct.logit_bias = (t.LogitBias * len(bias))(*(t.LogitBias(*each) for each in bias.items()))
        struct.n_logit_bias = len(bias)
    breakers = options.get("dry_breakers")
    if breakers is not None:
        struct.dry_breakers = text_array([text.encode() for text in breakers])
        struct.n_dry_breakers = len(breakers)
    if "logits_filter" in options:
        struct.on_logits = t.LogitsFilterCallback(_filter(options["logits_filter"], callbacks))
    grammar = grammar_of(engine, options)
    if grammar is not None:
        struct.grammar = grammar._handle.address
        keep.append(grammar)
    if "grammar_trigger" in options:
        struct.grammar_trigger = options["grammar_trigger"].encode()
    keep.append(struct)
    return struct


def _filter(function: LogitsFilter, callbacks: Callbacks) -> Callable[..., int]:
    from .arrays import copy_of_floats

    def run(address: int, n: int, _: object) -> None:
        with copy_of_floats(address, n) as logits:
            function(logits)

    return callbacks.guard(run)


def stop_texts(options: GenerateOptions) -> list[bytes]:
    stop = options.get("stop", ())
    texts: Iterable[str] = (stop,) if isinstance(stop, str) else stop or ()
    return [text.encode() for text in texts]


def max_tokens_of(options: GenerateOptions, default: int) -> int:
    if "max_tokens" in options and "max_new_tokens" in options:
        raise TypeError("max_tokens and max_new_tokens: both are given, expected at most one")
    return options.get("max_tokens", options.get("max_new_tokens", default))


class Request:
    """qsf_generate_options of a prompt, with all that they point to.

    `on_token` receives (token, text in UTF-8, log probability, [(token, log probability)],
    is_rest) for every token; log probabilities are NaN and [] unless asked for.
    """

    DEFAULT_MAX_TOKENS = 256

    def __init__(self, engine: Engine, prompt: Prompt, options: GenerateOptions,
                 on_token: Callable[[int, bytes, float, list[tuple[int, float]], bool], None],
                 end_texts: Sequence[bytes] = ()) -> None:
        check_names(options)
        self.callbacks = Callbacks()
        self._keep: list[object] = []
        self.struct: t.GenerateOptions = sized(t.GenerateOptions())
        struct = self.struct
        engine.lib.qsf_generate_options_init_sized(struct, struct.struct_size)
        self._set_prompt(prompt, options)
        struct.max_tokens = max_tokens_of(options, self.DEFAULT_MAX_TOKENS)
        sampling = sampling_struct(engine, options, self.callbacks, self._keep)
        struct.sampling = ctypes.pointer(sampling)
        stop = [*stop_texts(options), *end_texts]
        struct.stop, struct.n_stop = text_array(stop), len(stop)
        ends = options.get("end_tokens", ())
        struct.end_tokens, struct.n_end_tokens = int_array(ends), len(ends)
        struct.ignore_end_of_text = options.get("ignore_end_of_text", False)
        struct.keep_special = options.get("keep_special", False)
        log_probs = options.get("log_probs", False)
        struct.log_probs = log_probs is not False
        struct.n_top_log_probs = 0 if log_probs is True else int(log_probs)
        if "prefix_key" in options:
            key = options["prefix_key"].encode()
            struct.prefix_key, struct.prefix_key_bytes = key, len(key)
        if "on_prompt" in options:
            progress = options["on_prompt"]
            report = self.callbacks.guard(lambda done, total, _: progress(done, total))
            struct.on_prompt = t.ProgressCallback(report)
        struct.on_generated = t.GeneratedCallback(
            self.callbacks.guard(_receiver(on_token, bool(struct.log_probs))))

    def _set_prompt(self, prompt: Prompt, options: GenerateOptions) -> None:
        struct = self.struct
        if isinstance(prompt, str):
            text = prompt.encode()
            struct.prompt, struct.prompt_bytes = text, len(text)
            struct.tokenize_flags = tokenize_flags(options.get("bos", True),
                                                   options.get("special", False))
        else:
            struct.prompt_tokens, struct.n_prompt_tokens = int_array(prompt), len(prompt)


def tokenize_flags(bos: bool, special: bool) -> int:
    return (0 if bos else t.TOKENIZE_NO_BOS) | (t.TOKENIZE_PARSE_SPECIAL if special else 0)


def _receiver(on_token: Callable[[int, bytes, float, list[tuple[int, float]], bool], None],
              log_probs: bool) -> Callable[..., None]:
    nan = float("nan")

    def receive(pointer: Any, _: object) -> None:
        token = pointer.contents
        if not log_probs:
            on_token(token.token, token.text, nan, [], bool(token.is_rest))
            return
        top = [(each.token, each.log_prob) for each in token.top[:token.n_top]] if token.n_top else []
        on_token(token.token, token.text, token.log_prob, top, bool(token.is_rest))

    return receive
