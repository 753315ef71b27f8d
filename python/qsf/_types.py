# SPDX-License-Identifier: MIT
"""The structs, callbacks and numbers of include/qsf/*.h, in the order of the headers.

A mirror that drifts from its header reads wrong bytes: tests/test_types.py compares every size and
offset with those that a C compiler gives.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)

OK, INVALID_ARGUMENT, NOT_FOUND, CORRUPT, UNSUPPORTED, OUT_OF_BUDGET, IO, CANCELLED, INTERNAL = range(9)

# qsf_stop_reason, by the names that Python uses.
STOP_REASONS = ("max_tokens", "end_of_text", "stop", "context_full", "cancelled", "callback")
STOP_CANCELLED = STOP_REASONS.index("cancelled")

TOKENIZE_NO_BOS = 1
TOKENIZE_PARSE_SPECIAL = 2

GRAMMAR_GBNF, GRAMMAR_JSON_SCHEMA, GRAMMAR_JSON_OBJECT = range(3)

LOG_WARNING = 1

LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
ProgressCallback = ctypes.CFUNCTYPE(None, c_uint64, c_uint64, c_void_p)
TokenCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
LogitsCallback = ctypes.CFUNCTYPE(None, c_size_t, c_int, c_void_p, c_size_t, c_void_p)
LogitsFilterCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)
MaskCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)


class Error(ctypes.Structure):
    """qsf_error"""

    _fields_ = [("code", c_int), ("message", c_char * 256)]


class H2oOptions(ctypes.Structure):
    """qsf_h2o_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("local", c_int),
        ("heavy", c_int),
        ("chunk", c_int),
        ("sinks", c_int),
        ("ranking", c_int),
    ]


class ModelInfo(ctypes.Structure):
    """qsf_model_info"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("architecture", c_char_p),
        ("quant_type", c_char_p),
        ("chat_template", c_char_p),
        ("n_layers", c_int),
        ("n_vocab", c_int),
        ("hidden_size", c_int),
        ("trained_context", c_int),
        ("context", c_int),
        ("bos_token", c_int),
        ("eos_token", c_int),
        ("n_parameters", c_uint64),
        ("file_bytes", c_uint64),
        ("n_kv_heads", c_int),
    ]


class EngineStats(ctypes.Structure):
    """qsf_engine_stats"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("n_threads", c_int),
        ("instruction_set", c_char_p),
        ("load_ns", c_uint64),
        ("weight_bytes_read", c_uint64),
        ("prompt_tokens", c_uint64),
        ("prompt_ns", c_uint64),
        ("generated_tokens", c_uint64),
        ("generate_ns", c_uint64),
        ("matmul_ns", c_uint64),
        ("attention_ns", c_uint64),
        ("other_ns", c_uint64),
        ("sample_ns", c_uint64),
        ("planned_bytes", c_uint64),
        ("resident_bytes", c_uint64),
        ("peak_resident_bytes", c_uint64),
        ("read_wait_ns", c_uint64),
        ("read_ns", c_uint64),
        ("unpack_ns", c_uint64),
        ("prompt_passes", c_uint64),
        ("drafted_tokens", c_uint64),
        ("accepted_tokens", c_uint64),
        ("model_drafted_tokens", c_uint64),
        ("model_accepted_tokens", c_uint64),
        ("draft_ns", c_uint64),
    ]


class LogitBias(ctypes.Structure):
    """qsf_logit_bias"""

    _fields_ = [("token", c_int), ("bias", c_float)]


class Sampling(ctypes.Structure):
    """qsf_sampling"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("temperature", c_float),
        ("top_k", c_int),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repeat_penalty", c_float),
        ("repeat_window", c_int),
        ("seed", c_uint64),
        ("logit_bias", POINTER(LogitBias)),
        ("n_logit_bias", c_size_t),
        ("typical_p", c_float),
        ("frequency_penalty", c_float),
        ("presence_penalty", c_float),
        ("dry_multiplier", c_float),
        ("dry_base", c_float),
        ("dry_allowed_length", c_int),
        ("dry_window", c_int),
        ("xtc_probability", c_float),
        ("xtc_threshold", c_float),
        ("dry_breakers", POINTER(c_char_p)),
        ("n_dry_breakers", c_size_t),
        ("on_logits", LogitsFilterCallback),
        ("on_mask", MaskCallback),
        ("user_data", c_void_p),
        ("grammar", c_void_p),
        ("grammar_trigger", c_char_p),
    ]


class LogProb(ctypes.Structure):
    """qsf_log_prob"""

    _fields_ = [("token", c_int), ("log_prob", c_float)]


class GeneratedToken(ctypes.Structure):
    """qsf_generated_token"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("token", c_int),
        ("is_rest", c_int),
        ("text", c_char_p),
        ("top", POINTER(LogProb)),
        ("n_top", c_int),
        ("log_prob", c_float),
        ("is_end", c_int),
    ]


GeneratedCallback = ctypes.CFUNCTYPE(c_int, POINTER(GeneratedToken), c_void_p)


class GenerateOptions(ctypes.Structure):
    """qsf_generate_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt", c_char_p),
        ("prompt_bytes", c_size_t),
        ("tokenize_flags", c_uint),
        ("max_tokens", c_int),
        ("sampling", POINTER(Sampling)),
        ("stop", POINTER(c_char_p)),
        ("n_stop", c_size_t),
        ("on_token", TokenCallback),
        ("user_data", c_void_p),
        ("echo_prompt", c_int),
        ("on_prompt", ProgressCallback),
        ("on_generated", GeneratedCallback),
        ("log_probs", c_int),
        ("n_top_log_probs", c_int),
        ("reserve_tokens", c_int),
        ("prompt_tokens", POINTER(c_int)),
        ("n_prompt_tokens", c_size_t),
        ("end_tokens", POINTER(c_int)),
        ("n_end_tokens", c_size_t),
        ("ignore_end_of_text", c_int),
        ("keep_special", c_int),
        ("prefix_key", c_char_p),
        ("prefix_key_bytes", c_size_t),
        ("on_prompt_token", GeneratedCallback),
        ("report_end", c_int),
    ]


class GenerateResult(ctypes.Structure):
    """qsf_generate_result"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("reason", c_int),
        ("prompt_tokens", c_int),
        ("generated_tokens", c_int),
        ("prompt_ns", c_uint64),
        ("first_token_ns", c_uint64),
        ("generate_ns", c_uint64),
        ("cached_tokens", c_int),
        ("drafted_tokens", c_int),
        ("accepted_tokens", c_int),
    ]


class ChatOptions(ctypes.Structure):
    """qsf_chat_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("system", c_char_p),
        ("system_bytes", c_size_t),
        ("chat_template", c_char_p),
        ("now_seconds", c_int64),
    ]


class ChatSendOptions(ctypes.Structure):
    """qsf_chat_send_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("max_tokens", c_int),
        ("sampling", POINTER(Sampling)),
        ("stop", POINTER(c_char_p)),
        ("n_stop", c_size_t),
        ("on_token", TokenCallback),
        ("user_data", c_void_p),
        ("on_prompt", ProgressCallback),
    ]


class ChatResult(ctypes.Structure):
    """qsf_chat_result"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("reason", c_int),
        ("prompt_tokens", c_int),
        ("reused_tokens", c_int),
        ("generated_tokens", c_int),
        ("dropped_messages", c_int),
        ("context_tokens", c_int),
        ("prompt_ns", c_uint64),
        ("first_token_ns", c_uint64),
        ("generate_ns", c_uint64),
    ]


class ChatInfo(ctypes.Structure):
    """qsf_chat_info"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("template_name", c_char_p),
        ("system_merged", c_int),
        ("n_messages", c_int),
        ("context_tokens", c_int),
        ("context", c_int),
    ]


class ChatPromptOptions(ctypes.Structure):
    """qsf_chat_prompt_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("messages", c_char_p),
        ("messages_bytes", c_size_t),
        ("tools", c_char_p),
        ("tools_bytes", c_size_t),
        ("variables", c_char_p),
        ("variables_bytes", c_size_t),
        ("chat_template", c_char_p),
        ("now_seconds", c_int64),
        ("add_generation_prompt", c_int),
        ("continue_final_message", c_int),
    ]


class ChatPromptInfo(ctypes.Structure):
    """qsf_chat_prompt_info"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("tokens", POINTER(c_int)),
        ("n_tokens", c_size_t),
        ("text", c_void_p),
        ("text_bytes", c_size_t),
        ("end_tokens", POINTER(c_int)),
        ("n_end_tokens", c_size_t),
        ("end_texts", POINTER(c_char_p)),
        ("n_end_texts", c_size_t),
        ("merges_system", c_int),
        ("tools_in_system", c_int),
    ]


class StepCounts(ctypes.Structure):
    """qsf_step_counts"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt_rows", c_int),
        ("generated_rows", c_int),
        ("n_finished", c_int),
        ("n_waiting", c_int),
        ("pass_ns", c_uint64),
        ("read_wait_ns", c_uint64),
        ("weight_bytes_read", c_uint64),
        ("n_reading", c_int),
        ("drafted_rows", c_int),
        ("accepted_rows", c_int),
    ]


class PrefixStats(ctypes.Structure):
    """qsf_prefix_stats"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("keys", c_int),
        ("entries", c_int),
        ("pages", c_int),
        ("idle_pages", c_int),
        ("hits", c_uint64),
        ("hit_tokens", c_uint64),
        ("misses_no_entry", c_uint64),
        ("misses_other_key", c_uint64),
        ("misses_too_short", c_uint64),
        ("continued", c_uint64),
        ("evicted_pages", c_uint64),
        ("folder_files", c_uint64),
        ("folder_bytes", c_uint64),
        ("folder_hits", c_uint64),
        ("folder_hit_tokens", c_uint64),
        ("folder_bytes_written", c_uint64),
        ("folder_bytes_read", c_uint64),
        ("folder_removed_files", c_uint64),
        ("folder_dropped_pages", c_uint64),
        ("folder_write_errors", c_uint64),
        ("folder_read_errors", c_uint64),
    ]


class PlanInfo(ctypes.Structure):
    """qsf_plan_info"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("budget_bytes", c_uint64),
        ("budget_named", c_int),
        ("planned_bytes", c_uint64),
        ("context", c_int),
        ("rows_per_pass", c_int),
        ("everything_resident", c_int),
        ("resident_share", c_double),
        ("weight_bytes", c_uint64),
        ("pass_read_bytes", c_uint64),
        ("disk_bytes_per_second", c_double),
        ("memory_bytes_per_second", c_double),
        ("tokens_per_second", c_double),
        ("reading_mode", c_char_p),
        ("sequences", c_int),
        ("kv_pages", c_int),
        ("kv_page_positions", c_int),
        ("max_row_delay", c_int),
        ("experts", c_int),
        ("experts_kept", c_int),
        ("expert_pass_bytes", c_uint64),
        ("expert_read_bytes", c_uint64),
    ]


class MemoryRegion(ctypes.Structure):
    """qsf_memory_region"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("reason", c_char_p),
        ("bytes", c_uint64),
    ]


class LayerInfo(ctypes.Structure):
    """qsf_layer_info"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layer", c_int),
        ("n_layers", c_int),
        ("n_rows", c_int),
        ("hidden_size", c_int),
        ("n_kv_heads", c_int),
        ("head_dim", c_int),
        ("k_type", c_int),
        ("v_type", c_int),
        ("kv_bytes", c_uint64),
    ]


class LayerRow(ctypes.Structure):
    """qsf_layer_row"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("token", c_int),
        ("position", c_int),
        ("sequence", c_int),
        ("is_generated", c_int),
        ("hidden", POINTER(c_float)),
    ]


class KvCandidates(ctypes.Structure):
    """qsf_kv_candidates"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layer", c_int),
        ("kv_head", c_int),
        ("n", c_size_t),
        ("n_kept", c_size_t),
        ("n_positions", c_int),
        ("positions", POINTER(c_int)),
        ("attention", POINTER(c_float)),
    ]


LayerCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
RankCallback = ctypes.CFUNCTYPE(None, POINTER(KvCandidates), c_void_p, c_void_p)

# The C name of each struct.
STRUCTS: dict[str, type[ctypes.Structure]] = {
    str(mirror.__doc__): mirror
    for mirror in (
        Error, H2oOptions, ModelInfo, EngineStats, LogitBias, Sampling, LogProb, GeneratedToken,
        GenerateOptions, GenerateResult, ChatOptions, ChatSendOptions, ChatResult, ChatInfo,
        ChatPromptOptions, ChatPromptInfo, StepCounts, PrefixStats, PlanInfo, MemoryRegion, LayerInfo,
        LayerRow, KvCandidates,
    )
}
