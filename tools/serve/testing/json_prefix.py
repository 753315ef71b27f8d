# SPDX-License-Identifier: MIT
"""Tells whether a text is the beginning of a JSON value, such as an answer that was cut."""

import json
import re

SPACE = " \t\n\r"
# What a scalar may be until its end is seen.
LITERALS = ("true", "false", "null")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)?((?<=[0-9])\.[0-9]*)?((?<=[0-9])[eE][+-]?[0-9]*)?")
STRING = re.compile(r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{0,3})?")


def is_json_prefix(text):
    """Returns whether some text behind `text` makes it a JSON value. A value is its own prefix."""
    end = _skip_value(text, _skip_space(text, 0))
    return end is None or (end >= 0 and _skip_space(text, end) == len(text))


def _skip_space(text, at):
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def _skip_value(text, at):
    """Returns the end of the value at `at`, None where the text ends first, -1 where it is wrong."""
    if at == len(text):
        return None
    if text[at] == '"':
        return _skip_string(text, at)
    if text[at] in "{[":
        return _skip_items(text, at)
    for literal in LITERALS:
        if text.startswith(literal, at):
            return at + len(literal)
        if literal.startswith(text[at:]):
            return None
    return _skip_number(text, at)


def _skip_string(text, at):
    end = STRING.match(text, at).end()
    if end == len(text):
        return None
    if text[end] == '"':
        return end + 1
    escape = ESCAPE.match(text, end)
    return None if escape and escape.end() == len(text) else -1


def _skip_number(text, at):
    end = NUMBER.match(text, at).end()
    if end == len(text):
        return None
    try:
        json.loads(text[at:end])
    except ValueError:
        return -1
    return end


def _skip_items(text, at):
    is_object = text[at] == "{"
    close = "}" if is_object else "]"
    at = _skip_space(text, at + 1)
    if at < len(text) and text[at] == close:
        return at + 1
    while at < len(text):
        if is_object:
            if text[at] != '"':
                return -1
            at = _skip_string(text, at)
            if at is None or at < 0:
                return at
            at = _skip_space(text, at)
            if at == len(text):
                return None
            if text[at] != ":":
                return -1
            at = _skip_space(text, at + 1)
        at = _skip_value(text, at)
        if at is None or at < 0:
            return at
        at = _skip_space(text, at)
        if at == len(text):
            return None
        if text[at] == close:
            return at + 1
        if text[at] != ",":
            return -1
        at = _skip_space(text, at + 1)
    return None
