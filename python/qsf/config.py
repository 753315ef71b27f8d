# SPDX-License-Identifier: MIT
"""The configuration of an engine: keywords of Model and plan, and how they reach QSFConfig."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from . import _types as t
from ._library import load, sized
from .errors import InvalidArgument
from .hooks import Hooks, LayerHook, RankHook

logger = logging.getLogger("qsf")
logger.addHandler(logging.NullHandler())  # silent, unless the program wants to hear

PathLike = Union[str, "os.PathLike[str]"]
KvType = Literal["f16", "f32", "8bit", "4bit", "2bit"]
KvPolicy = Literal["full", "window", "h2o"]
Attention = Literal["full", "chunked", "symmetric", "h2o"]
Speculation = Literal["auto", "off", "lookup", "draft"]
Head = Literal["full", "certified", "approximate"]
ReadPath = Literal["auto", "uring", "pread", "mmap"]
Progress = Callable[[int, int], None]

_KV_TYPES = ("f16", "f32", "8bit", "4bit", "2bit")
_KV_POLICIES = ("full", "window", "h2o")
_ATTENTIONS = ("none", "full", "chunked", "symmetric", "h2o")
_SPECULATIONS = ("auto", "off", "lookup", "draft")
_HEADS = ("full", "certified", "approximate")
_READ_PATHS = ("auto", "uring", "pread", "mmap")
_RANKINGS = ("mean", "sum")

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)
_MEGABYTE = 10**6
_GRAMMAR_MASK_BYTES = 1 << 20  # of kept masks; some 170 of a vocabulary of 49,152 tokens

_logging = threading.local()  # .ids: of the configurations whose log line this thread passes on


def parse_size(size: int | float | str) -> int:
    """Returns bytes: an int as it is, or text such as "200MB", "1.5 GB", "512MiB".

    >>> parse_size("200MB"), parse_size("1GiB"), parse_size(5)
    (200000000, 1073741824, 5)

    Raises:
        InvalidArgument: no size.
    """
    if isinstance(size, (int, float)) and not isinstance(size, bool) and size >= 0:
        return int(size)
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise InvalidArgument(
            f'size: {size!r}, expected a number of bytes or text such as "200MB" or "1.5GiB"')
    number, unit, binary = match.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** " KMGT".index(unit.upper() or " "))


def _index(name: str, value: str, names: Sequence[str]) -> int:
    if value not in names or value == "none":
        expected = ", ".join(repr(each) for each in names if each != "none")
        raise InvalidArgument(f"{name}: {value!r}, expected one of {expected}")
    return names.index(value)


@dataclass
class Config:
    """Settings of an engine; Model documents them."""

    ram_budget: int | float | str | None = None
    threads: int = 0
    context: int = 0
    sessions: int = 1
    kv_positions: int = 0
    kv_type: KvType | tuple[KvType, KvType] = "f16"
    kv_policy: KvPolicy = "full"
    kv_window: int = 1024
    kv_sinks: int = 4
    kv_heavy: int = 256
    rope_reindex: bool = False
    kv_spill: PathLike | None = None
    attention: Attention = "full"
    attention_options: Mapping[str, int | str] | None = None
    draft_model: PathLike | None = None
    speculation: Speculation = "auto"
    max_drafts: int = 0
    adapters: Sequence[PathLike | tuple[PathLike, str]] = ()
    adapter: int = 0
    adapter_scale: float = 1.0
    head: Head = "certified"
    quality: float = 1.0
    experts: int = 0
    expert_margin: float = 0.0
    exact: bool = False
    rows_per_pass: int = 0
    grammars: int = 1
    prefix_cache: bool = False
    reuse_answers: bool = False
    prefix_folder: PathLike | None = None
    prefix_folder_bytes: int | str = "1GB"
    extra_memory: Mapping[str, int | str] | None = None
    read_path: ReadPath = "auto"
    preload: bool = True
    pin: bool = False
    on_load: Progress | None = None
    on_layer: LayerHook | None = None
    kv_rank: RankHook | None = None
    hooks: Hooks = field(init=False, repr=False)
    _log: Any = field(init=False, repr=False)
    _progress: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # ctypes objects that the engine calls as long as it lives.
        self.hooks = Hooks(self.on_layer, self.kv_rank)
        self._log = t.LogCallback(_log_function(id(self)))
        self._progress = t.ProgressCallback(_progress_function(self.on_load) if self.on_load else 0)

    @contextmanager
    def handle(self) -> Iterator[int]:
        """A QSFConfig, freed behind the block: opening an engine copies it.

        Raises:
            InvalidArgument: a value that has no number in C; the engine checks the others.
        """
        lib = load()
        config = lib.qsf_config_default()
        if config is None:
            raise MemoryError("no memory for a configuration")
        try:
            self._apply(lib, config)
            yield config
        finally:
            lib.qsf_config_free(config)

    def _apply(self, lib: Any, config: int) -> None:
        if self.ram_budget is not None:
            lib.qsf_config_set_ram_budget(config, max(1, parse_size(self.ram_budget) // _MEGABYTE))
        lib.qsf_config_set_threads(config, self.threads)
        lib.qsf_config_set_max_seq_len(config, self.context)
        lib.qsf_config_set_max_sessions(config, self.sessions)
        lib.qsf_config_set_rows_per_pass(config, self.rows_per_pass)
        lib.qsf_config_set_exact(config, self.exact)
        lib.qsf_config_set_quality(config, self.quality)
        lib.qsf_config_set_experts(config, self.experts, self.expert_margin)
        lib.qsf_config_set_head(config, _index("head", self.head, _HEADS))
        lib.qsf_config_set_grammars(config, self.grammars, _GRAMMAR_MASK_BYTES if self.grammars else 0)
        lib.qsf_config_set_io(config, _index("read_path", self.read_path, _READ_PATHS))
        lib.qsf_config_set_preload(config, self.preload)
        lib.qsf_config_set_pin(config, self.pin)
        kind = _index("speculation", self.speculation, _SPECULATIONS)
        lib.qsf_config_set_speculation(config, kind, self.max_drafts)
        if self.draft_model is not None:
            lib.qsf_config_set_draft_model(config, os.fsencode(self.draft_model))
        for entry in self.adapters:
            path, name = entry if isinstance(entry, tuple) else (entry, None)
            lib.qsf_config_add_adapter(config, os.fsencode(path), name.encode() if name else None)
        lib.qsf_config_set_adapter(config, self.adapter, self.adapter_scale)
        for region, size in (self.extra_memory or {}).items():
            lib.qsf_config_add_memory(config, region.encode(), None, parse_size(size))
        self._apply_kv(lib, config)
        lib.qsf_config_set_log_callback(config, self._log, None)
        lib.qsf_config_set_progress_callback(config, self._progress, None)
        lib.qsf_config_set_layer_callback(config, self.hooks.layer_callback, None)
        lib.qsf_config_set_rank_callback(config, self.hooks.rank_callback, None)

    def _apply_kv(self, lib: Any, config: int) -> None:
        both = self.kv_type if isinstance(self.kv_type, tuple) else (self.kv_type, self.kv_type)
        keys, values = (_index("kv_type", each, _KV_TYPES) for each in both)
        lib.qsf_config_set_kv_types(config, keys, values)
        lib.qsf_config_set_kv_positions(config, self.kv_positions)
        policy = _index("kv_policy", self.kv_policy, _KV_POLICIES)
        lib.qsf_config_set_kv_policy(config, policy, self.kv_window, self.kv_sinks, self.kv_heavy)
        lib.qsf_config_set_rope_reindex(config, self.rope_reindex)
        if self.kv_spill is not None:
            lib.qsf_config_set_kv_spill(config, os.fsencode(self.kv_spill))
        lib.qsf_config_set_prefix_cache(config, self.prefix_cache)
        lib.qsf_config_set_reuse_answers(config, self.reuse_answers)
        if self.prefix_folder is not None:
            limit = parse_size(self.prefix_folder_bytes)
            lib.qsf_config_set_prefix_folder(config, os.fsencode(self.prefix_folder), limit)
        attention = _index("attention", self.attention, _ATTENTIONS)
        lib.qsf_config_set_attention(config, attention, self._attention_struct(lib))

    def _attention_struct(self, lib: Any) -> t.H2oOptions | None:
        if self.attention_options is None:
            return None
        struct: t.H2oOptions = sized(t.H2oOptions())
        lib.qsf_h2o_options_init_sized(struct, struct.struct_size)
        for name, value in self.attention_options.items():
            if name not in ("local", "heavy", "chunk", "sinks", "ranking"):
                raise InvalidArgument(
                    f"attention_options: {name!r}, expected local, heavy, chunk, sinks or ranking")
            number = _index("ranking", str(value), _RANKINGS) if name == "ranking" else value
            setattr(struct, name, number)
        return struct


def ids_of_log_lines() -> tuple[int, ...]:
    """Returns the ids of the configurations whose engines wait for this thread's log handler."""
    ids: tuple[int, ...] = getattr(_logging, "ids", ())
    return ids


def _log_function(config_id: int) -> Callable[[int, bytes, object], None]:
    def pass_on(level: int, line: bytes, _: object) -> None:
        before = ids_of_log_lines()
        _logging.ids = (*before, config_id)
        try:
            number = logging.WARNING if level == t.LOG_WARNING else logging.INFO
            logger.log(number, "%s", line.decode("utf-8", "replace"))
        finally:
            _logging.ids = before

    return pass_on


def _progress_function(progress: Progress) -> Callable[[int, int, object], None]:
    def pass_on(done: int, total: int, _: object) -> None:
        try:
            progress(done, total)
        except Exception:
            logger.exception("on_load: the callback failed; loading goes on")

    return pass_on
