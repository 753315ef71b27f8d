#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes testdata/chat/*.json: what transformers renders with chat templates.

    make_chat_golden.py [FOLDER]

Reads the templates of FOLDER (testdata/chat), those of src/chat/builtin_templates.cc and the cases of
chat_language_cases.py and chat_tool_cases.py, and renders them with transformers' own function, the
clock at a fixed time. A case holds the expected text, or "raises" with the message of a template's raise_exception,
or "fails" where Python or Jinja refuse; the wording of those is theirs.

Needs transformers and jinja2.
"""

import datetime
import json
import os
import re
import sys

import jinja2
from transformers.utils import chat_template_utils

import chat_language_cases
import chat_tool_cases

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "testdata", "chat")
NOW_SECONDS = 1740000000  # 19 February 2025

# What the tokenizers of these models have; all others have Llama's.
TOKENS = {
    "chatml": ("", "<|im_end|>"),
    "qwen": ("", "<|im_end|>"),
    "smollm2": ("<|im_start|>", "<|im_end|>"),
    "llama-3": ("<|begin_of_text|>", "<|eot_id|>"),
    "hermes": ("<|begin_of_text|>", "<|im_end|>"),
    "deepseek": ("<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    "gemma": ("<bos>", "<eos>"),
    "glm": ("", "<|endoftext|>"),
    "gpt-oss": ("<|startoftext|>", "<|return|>"),
}

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "You are brief."), ("user", "Hello")],
    [("user", "1+1?"), ("assistant", "2"), ("user", "2+2?")],
    [("system", "Be kind."), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")],
    [("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four"),
     ("user", "five")],
    [("system", ""), ("user", "")],
    [("user", "  spaces \n"), ("assistant", "\n\nlines\t\n"), ("user", "\u3000wide\u00a0")],
    [("user", "{{ 7*7 }} {% if %} {# x #} <|im_end|><|im_start|>system\n</s><s>[INST] [/INST]")],
    [("system", "<<SYS>>x<</SYS>>"), ("user", "<|eot_id|><|end|><end_of_turn><|user|>\n")],
    [("user", "na\u00efve e\u0301 \u65e5\u672c\u8a9e \U0001F600\U0001F468\u200d\U0001F469\u200d\U0001F467 \u05d0\u0628")],
    [("user", "\"q\" 'a' \\n \\ \t <b>&amp;</b>"), ("assistant", "`x = {'a': [1]}`"), ("user", "%s {}")],
    [("user", "go"), ("assistant", "<think>\nhm\n</think>\n\nanswer"), ("user", "more")],
    [("user", "go"), ("assistant", "<think>a</think>b"), ("user", "x"), ("assistant", "</think>")],
    [("assistant", "I begin.")],
    [("user", "a"), ("user", "b")],
    [("tool", "42"), ("user", "<tool_response>x</tool_response>")],
    [("narrator", "An unknown role.")],
    [],
]
LANGUAGE_MESSAGES = [("user", "Hello World"), ("assistant", " a b ")]


class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW_SECONDS, datetime.timezone.utc)


def as_messages(conversation):
    return [{"role": role, "content": content} for role, content in conversation]


def render(template, messages, add_generation_prompt, tokens, tools=None, more=None):
    """Returns {"expected": text}, {"raises": message} or {"fails": message}."""
    variables = {name: text for name, text in zip(("bos_token", "eos_token"), tokens) if text}
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template,
            add_generation_prompt=add_generation_prompt, **variables, **(more or {}))
    except jinja2.TemplateError as error:
        if type(error) is jinja2.TemplateError:
            return {"raises": str(error)}
        return {"fails": f"{type(error).__name__}: {error}"}
    except Exception as error:  # Python's own errors, of every type, come through Jinja unchanged.
        return {"fails": f"{type(error).__name__}: {error}"}
    return {"expected": rendered[0]}


def tokens_of(name):
    for prefix, tokens in TOKENS.items():
        if name.startswith(prefix):
            return tokens
    return ("<s>", "</s>")


def builtin_templates():
    """Returns the sources in builtin_templates.cc by the names of its table."""
    with open(os.path.join(ROOT, "src", "chat", "builtin_templates.cc"), encoding="utf-8") as file:
        text = file.read()
    sources = dict(re.findall(r'string_view (k\w+) = R"\((.*?)\)";', text, re.DOTALL))
    return {name: sources[constant] for name, constant in re.findall(r'\{"(\w+)", (k\w+)\}', text)}


def template_entry(name, source, tokens):
    cases = []
    for conversation in range(len(CONVERSATIONS)):
        for generate in (False, True):
            outcome = render(source, as_messages(CONVERSATIONS[conversation]), generate, tokens)
            cases.append({"conversation": conversation, "generate": generate, **outcome})
    return {"name": name, "bos_token": tokens[0], "eos_token": tokens[1], "cases": cases}


def tools_entry(name, source, tokens):
    cases = [render(source, messages, generate, tokens, tools, more)
             for messages, tools, more, generate in chat_tool_cases.CASES]
    return {"name": name, "bos_token": tokens[0], "eos_token": tokens[1], "cases": cases}


def write(name, value):
    with open(os.path.join(DATA, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=True, indent=0)
        file.write("\n")


def main():
    chat_template_utils.datetime = FixedDatetime
    templates = []
    with_tools = []
    for file_name in sorted(os.listdir(DATA)):
        name, extension = os.path.splitext(file_name)
        if extension != ".jinja":
            continue
        with open(os.path.join(DATA, file_name), encoding="utf-8", newline="") as file:
            source = file.read()
        templates.append(template_entry(name, source, tokens_of(name)))
        if re.search(r"\btools\b", source):
            with_tools.append(tools_entry(name, source, tokens_of(name)))
    builtin = [template_entry(name, source, ("<s>", "</s>"))
               for name, source in builtin_templates().items()]
    conversations = [as_messages(conversation) for conversation in CONVERSATIONS]
    write("templates.json", {"now_seconds": NOW_SECONDS, "conversations": conversations,
                             "templates": templates, "builtin": builtin})
    cases = [{"messages": messages, "tools": tools, "variables": more, "generate": generate}
             for messages, tools, more, generate in chat_tool_cases.CASES]
    write("tools.json", {"now_seconds": NOW_SECONDS, "cases": cases, "templates": with_tools})
    sources = ["{{ " + line + " }}" for line in chat_language_cases.EXPRESSIONS.splitlines() if line]
    cases = [{"template": source, **render(source, as_messages(LANGUAGE_MESSAGES), True, ("<s>", ""))}
             for source in sources + chat_language_cases.TEMPLATES]
    write("language.json", {"now_seconds": NOW_SECONDS, "messages": as_messages(LANGUAGE_MESSAGES),
                            "cases": cases})
    print(f"{len(templates)} templates, {len(builtin)} built in, {len(cases)} cases of the language")
    return 0


if __name__ == "__main__":
    sys.exit(main())
