# SPDX-License-Identifier: MIT
"""Conversations with tools, parts, reasoning and template variables for make_chat_golden.py."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather",
    "description": "Weather of a place, in \u00b0C or \u00b0F; e.g. 'Kyoto' <now> & \"later\".",
    "parameters": {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "Town\u2014\u65e5\u672c \U0001F600"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615},
        },
        "required": ["place"],
    }}}
SUM = {"type": "function", "function": {
    "name": "sum",
    "description": "Adds numbers.\nSecond line.",
    "parameters": {
        "type": "object",
        "properties": {
            "values": {"type": "array", "items": {"type": "number"}, "description": "Terms"},
            "scale": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": 1.0,
                      "description": "Factor"},
            "mode": {"type": "object", "properties": {"exact": {"type": "boolean"}},
                     "description": "Details", "nullable": True},
        },
        "required": ["values", "mode"],
        "additionalProperties": False,
    },
    "strict": True}}


def call(number, name, arguments):
    return {"id": f"callnr{number:03d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def result(number, name, content):
    return {"role": "tool", "tool_call_id": f"callnr{number:03d}", "name": name,
            "content": content}


def user(content):
    return {"role": "user", "content": content}


ASKED = [user("Weather in Kyoto?")]
CALLED = ASKED + [
    {"role": "assistant", "content": "",
     "tool_calls": [call(1, "get_weather", {"place": "Kyoto \u4eac", "days": 2, "odd": None})]},
    result(1, "get_weather", '{"sky": "clear"}')]
SYSTEM = [{"role": "system", "content": "Be brief."}]

# Messages, tools or None, further variables, whether to begin an answer.
CASES = [
    (SYSTEM + ASKED, [WEATHER, SUM], {}, True),
    (ASKED, [SUM], {"enable_thinking": False}, True),
    (CALLED, [WEATHER], {}, True),
    (SYSTEM + CALLED + [{"role": "assistant", "content": "Clear."}, user("Thanks")],
     [WEATHER], {"enable_thinking": True}, True),
    (ASKED + [
        {"role": "assistant", "content": "", "reasoning_content": "Two sums.",
         "thinking": "Two sums.",
         "tool_calls": [call(1, "sum", {"values": [1, -2.5, 1e21], "mode": {"exact": True}}),
                        call(2, "sum", {"values": [], "text": "a\n\"b\" <c>"})]},
        result(1, "sum", "-1.5"), result(2, "sum", "0")], [SUM], {}, True),
    (ASKED + [{"role": "assistant", "content": "Sure.", "thinking": "Hm.",
               "reasoning_content": "Hm."}], [SUM], {"reasoning_effort": "low"}, False),
    (SYSTEM + ASKED, None, {"reasoning_effort": "high", "thinking": True,
                            "documents": [{"title": "T\u00fc", "text": "Clear sky.", "doc_id": 1}]},
     True),
    ([user([{"type": "text", "text": "Hello "}, {"type": "text", "text": "there."}])], None, {},
     True),
    ([{"role": "developer", "content": "Rhyme."}] + ASKED, [WEATHER],
     {"model_identity": "You are a poet."}, True),
]
