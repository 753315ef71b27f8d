# SPDX-License-Identifier: MIT
"""Finds and loads libqsf, and describes its functions to ctypes.

Looked for, in this order: the file that the environment variable QSF_LIBRARY names; lib/ of this
package, where wheels have it; where the system's loader looks.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from . import _types as t
from .errors import Error, OutOfBudget, from_code

# Of the header that _types.py mirrors. A library runs programs of its own and of lower numbers.
ABI_VERSION = 2
VARIABLE = "QSF_LIBRARY"
SONAME = "libqsf.so.0"

_Out = POINTER(c_void_p)
_Err = POINTER(t.Error)
_Ints = POINTER(c_int)
_Code = c_int

# Name: (result, parameters). Handles and float arrays are c_void_p.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "qsf_version": (c_char_p, []),
    "qsf_abi_version": (c_int, []),
    # Configuration
    "qsf_config_default": (c_void_p, []),
    "qsf_config_free": (None, [c_void_p]),
    "qsf_config_set_ram_budget": (None, [c_void_p, c_size_t]),
    "qsf_config_set_threads": (None, [c_void_p, c_int]),
    "qsf_config_set_max_seq_len": (None, [c_void_p, c_int]),
    "qsf_config_set_max_sessions": (None, [c_void_p, c_int]),
    "qsf_config_set_kv_positions": (None, [c_void_p, c_int]),
    "qsf_config_set_log_callback": (None, [c_void_p, t.LogCallback, c_void_p]),
    "qsf_config_set_progress_callback": (None, [c_void_p, t.ProgressCallback, c_void_p]),
    "qsf_config_set_io": (None, [c_void_p, c_int]),
    "qsf_config_set_preload": (None, [c_void_p, c_int]),
    "qsf_config_set_pin": (None, [c_void_p, c_int]),
    "qsf_config_set_experts": (None, [c_void_p, c_int, c_float]),
    "qsf_config_set_speculation": (None, [c_void_p, c_int, c_int]),
    "qsf_config_set_draft_model": (None, [c_void_p, c_char_p]),
    "qsf_config_set_head": (None, [c_void_p, c_int]),
    "qsf_config_set_rows_per_pass": (None, [c_void_p, c_int]),
    "qsf_config_set_exact": (None, [c_void_p, c_int]),
    "qsf_config_set_quality": (None, [c_void_p, c_float]),
    "qsf_config_set_kv_types": (None, [c_void_p, c_int, c_int]),
    "qsf_config_set_kv_policy": (None, [c_void_p, c_int, c_int, c_int, c_int]),
    "qsf_config_set_rope_reindex": (None, [c_void_p, c_int]),
    "qsf_config_set_kv_spill": (None, [c_void_p, c_char_p]),
    "qsf_h2o_options_init_sized": (None, [POINTER(t.H2oOptions), c_size_t]),
    "qsf_config_set_attention": (None, [c_void_p, c_int, POINTER(t.H2oOptions)]),
    "qsf_config_set_grammars": (None, [c_void_p, c_int, c_uint64]),
    "qsf_config_add_adapter": (None, [c_void_p, c_char_p, c_char_p]),
    "qsf_config_set_adapter": (None, [c_void_p, c_int, c_float]),
    "qsf_config_set_prefix_cache": (None, [c_void_p, c_int]),
    "qsf_config_set_reuse_answers": (None, [c_void_p, c_int]),
    "qsf_config_set_prefix_folder": (None, [c_void_p, c_char_p, c_uint64]),
    "qsf_config_add_memory": (None, [c_void_p, c_char_p, c_char_p, c_uint64]),
    # Hooks
    "qsf_config_set_layer_callback": (None, [c_void_p, t.LayerCallback, c_void_p]),
    "qsf_config_set_rank_callback": (None, [c_void_p, t.RankCallback, c_void_p]),
    "qsf_layer_get_info": (_Code, [c_void_p, POINTER(t.LayerInfo), _Err]),
    "qsf_layer_get_row": (_Code, [c_void_p, c_int, POINTER(t.LayerRow), _Err]),
    "qsf_layer_get_kv_block": (
        _Code, [c_void_p, c_int, c_int, c_int, c_int, _Out, POINTER(c_size_t), _Err]),
    "qsf_layer_get_attention": (_Code, [c_void_p, c_int, c_int, c_void_p, c_size_t, _Err]),
    # Engine
    "qsf_engine_open": (_Code, [c_char_p, c_void_p, _Out, _Err]),
    "qsf_free": (None, [c_void_p]),
    "qsf_engine_cancel": (None, [c_void_p]),
    "qsf_engine_model_info": (_Code, [c_void_p, POINTER(t.ModelInfo), _Err]),
    "qsf_engine_get_stats": (_Code, [c_void_p, POINTER(t.EngineStats), _Err]),
    "qsf_engine_prefix_stats": (_Code, [c_void_p, POINTER(t.PrefixStats), _Err]),
    "qsf_engine_adapter_count": (c_int, [c_void_p]),
    "qsf_engine_adapter_name": (c_char_p, [c_void_p, c_int]),
    # Generation
    "qsf_sampling_init_sized": (None, [POINTER(t.Sampling), c_size_t]),
    "qsf_generate_options_init_sized": (None, [POINTER(t.GenerateOptions), c_size_t]),
    "qsf_session_generate": (
        _Code, [c_void_p, POINTER(t.GenerateOptions), POINTER(t.GenerateResult), _Err]),
    "qsf_generation_create": (_Code, [c_void_p, POINTER(t.GenerateOptions), _Out, _Err]),
    "qsf_generation_free": (None, [c_void_p]),
    "qsf_generation_is_finished": (c_int, [c_void_p]),
    "qsf_generation_get_result": (_Code, [c_void_p, POINTER(t.GenerateResult), _Err]),
    "qsf_engine_step": (
        _Code, [c_void_p, _Out, c_size_t, POINTER(t.StepCounts), _Err]),
    # Grammars
    "qsf_grammar_create": (_Code, [c_void_p, c_int, c_char_p, c_size_t, _Out, _Err]),
    "qsf_grammar_free": (None, [c_void_p]),
    # Chats
    "qsf_chat_options_init_sized": (None, [POINTER(t.ChatOptions), c_size_t]),
    "qsf_chat_template_name": (c_char_p, [c_int]),
    "qsf_chat_create": (_Code, [c_void_p, POINTER(t.ChatOptions), _Out, _Err]),
    "qsf_chat_free": (None, [c_void_p]),
    "qsf_chat_send_options_init_sized": (None, [POINTER(t.ChatSendOptions), c_size_t]),
    "qsf_chat_send": (
        _Code,
        [c_void_p, c_char_p, c_size_t, POINTER(t.ChatSendOptions), POINTER(t.ChatResult), _Err]),
    "qsf_chat_clear": (None, [c_void_p]),
    "qsf_chat_set_system": (_Code, [c_void_p, c_char_p, c_size_t, _Err]),
    "qsf_chat_save": (_Code, [c_void_p, c_char_p, _Err]),
    "qsf_chat_load": (_Code, [c_void_p, c_char_p, _Err]),
    "qsf_chat_get_info": (_Code, [c_void_p, POINTER(t.ChatInfo), _Err]),
    "qsf_chat_get_message": (_Code, [c_void_p, c_int, POINTER(c_char_p), _Out, _Err]),
    "qsf_chat_prompt_options_init_sized": (None, [POINTER(t.ChatPromptOptions), c_size_t]),
    "qsf_chat_prompt_create": (_Code, [c_void_p, POINTER(t.ChatPromptOptions), _Out, _Err]),
    "qsf_chat_prompt_free": (None, [c_void_p]),
    "qsf_chat_prompt_get_info": (_Code, [c_void_p, POINTER(t.ChatPromptInfo), _Err]),
    # Sessions
    "qsf_session_create": (_Code, [c_void_p, _Out, _Err]),
    "qsf_session_free": (None, [c_void_p]),
    "qsf_session_prefill": (_Code, [c_void_p, _Ints, c_size_t, c_void_p, _Err]),
    "qsf_session_prefill_logits": (
        _Code, [c_void_p, _Ints, c_size_t, t.LogitsCallback, c_void_p, _Err]),
    "qsf_session_step": (_Code, [c_void_p, c_int, c_void_p, _Err]),
    "qsf_session_truncate": (_Code, [c_void_p, c_size_t, _Err]),
    "qsf_session_length": (c_size_t, [c_void_p]),
    "qsf_session_visible_positions": (
        _Code, [c_void_p, c_int, c_int, _Ints, c_size_t, POINTER(c_size_t), _Err]),
    "qsf_session_save": (_Code, [c_void_p, c_char_p, _Err]),
    "qsf_session_load": (_Code, [c_void_p, c_char_p, _Err]),
    "qsf_session_fork": (_Code, [c_void_p, _Out, _Err]),
    "qsf_session_get_tokens": (_Code, [c_void_p, _Ints, c_size_t, POINTER(c_size_t), _Err]),
    "qsf_session_cancel": (None, [c_void_p]),
    "qsf_session_set_adapter": (_Code, [c_void_p, c_int, c_float, _Err]),
    # Samplers of the caller's logits
    "qsf_sampler_create": (_Code, [c_void_p, POINTER(t.Sampling), _Out, _Err]),
    "qsf_sampler_free": (None, [c_void_p]),
    "qsf_sampler_sample": (_Code, [c_void_p, c_void_p, _Ints, _Err]),
    "qsf_sampler_accept": (_Code, [c_void_p, c_int, _Err]),
    "qsf_sampler_reset": (None, [c_void_p]),
    "qsf_sampler_set_seed": (None, [c_void_p, c_uint64]),
    # Memory plan
    "qsf_plan_create": (_Code, [c_char_p, c_void_p, _Out, _Err]),
    "qsf_plan_free": (None, [c_void_p]),
    "qsf_plan_get_refusal": (c_int, [POINTER(c_uint64), POINTER(c_uint64)]),
    "qsf_engine_plan": (c_void_p, [c_void_p]),
    "qsf_plan_get_info": (_Code, [c_void_p, POINTER(t.PlanInfo), _Err]),
    "qsf_plan_region_count": (c_int, [c_void_p]),
    "qsf_plan_region": (_Code, [c_void_p, c_int, POINTER(t.MemoryRegion), _Err]),
    "qsf_plan_step": (c_char_p, [c_void_p, c_int]),
    # Text, tokens, scores and embeddings
    "qsf_engine_tokenize": (
        _Code,
        [c_void_p, c_char_p, c_size_t, c_uint, _Ints, c_size_t, POINTER(c_size_t), _Err]),
    "qsf_engine_detokenize": (_Code, [c_void_p, _Ints, c_size_t, _Out, _Err]),
    "qsf_engine_get_token_bytes": (
        _Code, [c_void_p, c_int, c_char_p, c_size_t, POINTER(c_size_t), _Err]),
    "qsf_string_free": (None, [c_void_p]),
    "qsf_engine_score": (_Code, [c_void_p, _Ints, c_size_t, c_size_t, POINTER(c_double), _Err]),
    "qsf_engine_embed": (_Code, [c_void_p, _Ints, c_size_t, c_int, c_int, c_void_p, _Err]),
}

# Functions of the interface that the package has no use for, and why.
UNBOUND: dict[str, str] = {
    **dict.fromkeys(
        ["qsf_chat_options_init", "qsf_chat_prompt_options_init", "qsf_chat_send_options_init",
         "qsf_generate_options_init", "qsf_h2o_options_init", "qsf_sampling_init",
         "qsf_step_options_init"],
        "the sized form sets every field"),
    **dict.fromkeys(
        ["qsf_config_set_error_callback", "qsf_detokenize", "qsf_forward", "qsf_generate",
         "qsf_load", "qsf_sample", "qsf_tokenize", "qsf_tokens_free"],
        "a short form, of which the package has the full one"),
    **dict.fromkeys(
        ["qsf_engine_memory_region", "qsf_engine_memory_region_count"],
        "deprecated"),
    **dict.fromkeys(
        ["qsf_engine_kv_pages", "qsf_engine_step_sessions", "qsf_engine_step_with",
         "qsf_generation_admit", "qsf_generation_is_parked", "qsf_generation_is_waiting",
         "qsf_generation_park", "qsf_generation_resume", "qsf_generation_take_prompt",
         "qsf_step_options_init_sized"],
        "for servers, which qsf serve is"),
    **dict.fromkeys(
        ["qsf_grammar_matcher_accept", "qsf_grammar_matcher_can_end",
         "qsf_grammar_matcher_create", "qsf_grammar_matcher_free",
         "qsf_grammar_matcher_is_finished", "qsf_grammar_matcher_mask",
         "qsf_grammar_matcher_reset"],
        "generations apply grammars; samplers of the caller's do without"),
    **dict.fromkeys(
        ["qsf_config_set_ranks", "qsf_ranks_join", "qsf_ranks_leave"],
        "for programs that mpirun starts; the package's library has no MPI"),
    "qsf_config_set_kv_type": "qsf_config_set_kv_types sets both",
    "qsf_engine_apply_chat_template": "qsf_chat_prompt_create keeps control tokens apart",
    "qsf_engine_generate": "sessions generate",
    "qsf_print_stats": "prints; qsf_engine_get_stats does not",
}

_lock = threading.Lock()
_library: ctypes.CDLL | None = None


def _open() -> ctypes.CDLL:
    named = os.environ.get(VARIABLE)
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", SONAME)
    path = named or (bundled if os.path.exists(bundled) else SONAME)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        where = f"{VARIABLE}={named}" if named else path
        raise Error(
            f"libqsf: {where}: {error}; install the wheel of this platform, or set {VARIABLE} to "
            f"the path of {SONAME} (docs/installing.md)"
        ) from None


def _describe(library: ctypes.CDLL) -> None:
    found = library.qsf_abi_version() if hasattr(library, "qsf_abi_version") else 0
    missing = [name for name in FUNCTIONS if not hasattr(library, name)]
    if found < ABI_VERSION or missing:
        lacks = f" without {missing[0]}" if missing else ""
        raise Error(
            f"libqsf: {library._name}: interface {found}{lacks}, expected {ABI_VERSION} or later "
            "with all that this package uses; it is older than the package: update the library"
        )
    for name, (result, parameters) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = parameters


def load() -> ctypes.CDLL:
    """Returns the library, loaded and described at the first call.

    Raises:
        Error: there is none, or it is older than this package.
    """
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                library = _open()
                _describe(library)
                _library = library
    return _library


def check(code: int, error: t.Error) -> None:
    """Raises the exception of a call that did not return QSF_OK."""
    if code != t.OK:
        raise from_code(code, error.message.decode("utf-8", "replace"))


def check_budget(code: int, error: t.Error) -> None:
    """check() on the thread that planned or opened: OutOfBudget has its sizes."""
    try:
        check(code, error)
    except OutOfBudget as refusal:
        needed, budget = c_uint64(), c_uint64()
        if load().qsf_plan_get_refusal(ctypes.byref(needed), ctypes.byref(budget)):
            refusal.needed, refusal.budget = needed.value, budget.value
        raise


def sized(struct: Any) -> Any:
    """Returns a struct with its struct_size."""
    struct.struct_size = ctypes.sizeof(struct)
    return struct


def int_array(values: Any) -> Any:
    """Returns ints as int[n]."""
    return (c_int * len(values))(*values)


def text_array(texts: list[bytes]) -> Any:
    """Returns texts as const char*[n]."""
    return (c_char_p * len(texts))(*texts)
