# SPDX-License-Identifier: MIT
"""QSF: run a language model in the memory you give it.

    import qsf

    qsf.convert("path/to/folder", "model.qsf")             # or a GGUF file
    with qsf.Model("model.qsf", ram_budget="200MB") as model:
        for token in model.stream("Once upon a time", max_tokens=100):
            print(token, end="", flush=True)
        print(model.chat("Hello!", max_tokens=50))
        rows = model.logits("Once upon a time")            # float32[n_tokens, n_vocab]

Model, Session, Chat, Stream and Grammar compute; plan() tells what a model would take; convert()
and inspect() run the tool. Errors are one tree below qsf.Error. What the engine reports goes to
logging.getLogger("qsf"). qsf.compat.Llama has the names of llama-cpp-python.
"""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn

from ._library import load
from .chat import Chat, ChatPrompt
from .errors import (
    Cancelled,
    Corrupt,
    Error,
    Internal,
    InvalidArgument,
    IoError,
    NotFound,
    OutOfBudget,
    Unsupported,
)
from .generation import Completion, Stream, Token
from .grammar import Grammar
from .hooks import Candidates, Layer
from .model import Model
from .memory_plan import Plan, Region, plan
from .sampler import Sampler
from .sampling import GenerateOptions
from .session import Session
from .tools import convert, inspect

__version__ = "0.2.0"

__all__ = [
    "Cancelled", "Candidates", "Chat", "ChatPrompt", "Completion", "Corrupt", "Error",
    "GenerateOptions", "Grammar", "Internal", "InvalidArgument", "IoError", "Layer", "Model",
    "NotFound", "OutOfBudget", "Plan", "Region", "Sampler", "Session", "Stream", "Token",
    "Unsupported", "convert", "from_pretrained", "inspect", "library_version", "plan",
]


def __getattr__(name: str) -> ModuleType:
    """Imports qsf.compat at its first use."""
    if name == "compat":
        import importlib

        return importlib.import_module("qsf.compat")
    raise AttributeError(f"module 'qsf' has no attribute {name!r}")


def library_version() -> str:
    """Returns the version of libqsf, such as "0.2.0".

    Raises:
        Error: there is no library, or it is older than this package.
    """
    version: bytes = load().qsf_version()
    return version.decode()


def from_pretrained(*_: object, **__: object) -> NoReturn:
    """Refused: the package downloads nothing.

    Raises:
        Unsupported: always, with what to do.
    """
    raise Unsupported(
        "from_pretrained: nothing is downloaded; fetch the files with the tool of their host, "
        'then qsf.convert(folder, "model.qsf") and qsf.Model("model.qsf")')
