#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs qsf-serve in the place of llama-server, for llama-server's own tests.

llama_server_tests.py sets the environment:
  QSF_SERVE_PROGRAM  qsf-serve
  QSF_TEST_MODEL     Hugging Face folder of stories260K, which stands for every model
  QSF_WORK_DIR       folder for files of this run
"""

import json
import os
import sys

# Flags of llama-server with a value that changes what is served; all others are left out.
TAKEN = {"--port", "--host", "--alias", "--ctx-size", "--parallel", "--n-predict", "--api-key",
         "--chat-template-file"}
SWITCHES = {"--jinja", "--no-jinja", "--slots", "--no-slots", "--offline", "--embedding", "--metrics",
            "--cont-batching", "--kv-unified", "--reranking", "--swa-full", "--context-shift", "--verbose",
            "--no-ui", "--no-mmproj", "--no-models-autoload", "--no-cache-idle-slots", "--ui-mcp-proxy",
            "--backend_sampling"}

# llama-server ignores the name of a model; the tests use these.
OTHER_NAMES = ["test", "gpt-3.5-turbo", "gpt-3.5-turbo-instruct", "gpt-4.1", "davinci-002",
               "text-embedding-3-small"]


def read_flags(arguments):
    """Returns the values of the flags in TAKEN, and the set of switches."""
    values = {}
    switches = set()
    position = 0
    while position < len(arguments):
        flag = arguments[position]
        if flag in SWITCHES:
            switches.add(flag)
            position += 1
            continue
        if flag in TAKEN:
            values[flag] = arguments[position + 1]
        position += 2
    return values, switches


def model_with_template(model, template, work_dir):
    """Returns a folder with the files of `model` and the chat template in a file."""
    folder = os.path.join(work_dir, f"model-{os.getpid()}")
    os.mkdir(folder)
    for name in os.listdir(model):
        os.symlink(os.path.join(model, name), os.path.join(folder, name))
    os.symlink(os.path.abspath(template), os.path.join(folder, "chat_template.jinja"))
    return folder


def trained_context(model):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        return json.load(file)["max_position_embeddings"]


def serve_arguments(arguments, model, work_dir):
    values, switches = read_flags(arguments)
    if "--chat-template-file" in values:
        model = model_with_template(model, values["--chat-template-file"], work_dir)
    texts = int(values.get("--parallel", 4))
    context = int(values.get("--ctx-size", 512))
    each = min(context if "--kv-unified" in switches else context // texts, trained_context(model))
    serve = ["--host", values["--host"], "--port", values["--port"], "--texts", str(texts),
             "--max-seq-len", str(each), "--kv-positions", str(max(context, each + 64 * texts)),
             "--cache-dir", work_dir]
    if "--n-predict" in values:
        serve += ["--default-max-tokens", values["--n-predict"]]
    if "--api-key" in values:
        keys = os.path.join(work_dir, f"keys-{os.getpid()}")
        with open(keys, "w", encoding="utf-8") as file:
            file.write(values["--api-key"] + "\n")
        serve += ["--api-key", keys]
    names = [values.get("--alias", "model"), *OTHER_NAMES]
    return serve + [f"{name}={model}" for name in names]


def main():
    program = os.environ["QSF_SERVE_PROGRAM"]
    os.execv(program, [program, *serve_arguments(sys.argv[1:], os.environ["QSF_TEST_MODEL"],
                                                 os.environ["QSF_WORK_DIR"])])


if __name__ == "__main__":
    main()
