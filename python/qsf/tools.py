# SPDX-License-Identifier: MIT
"""The program `qsf`, which the wheel holds: converting and inspecting files are processes of it.

Looked for, in this order: the file that the environment variable QSF_TOOL names; bin/ of this
package, where wheels have it; PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Union

from .config import PathLike, logger
from .errors import Error, InvalidArgument, NotFound

VARIABLE = "QSF_TOOL"

# What the tool writes on a terminal: "STAGE [####....]  42 %, ITEM, 3 s left".
_PROGRESS = re.compile(r"([^\r\n\[]*) \[[#.]+\] +(\d+) %")
Option = Union[bool, int, float, str, "os.PathLike[str]", Sequence[str]]


def tool_path() -> str:
    """Returns the path of the program.

    Raises:
        NotFound: there is none.
    """
    named = os.environ.get(VARIABLE)
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "qsf")
    found = named if named else bundled if os.path.exists(bundled) else shutil.which("qsf")
    if found is None or not os.path.exists(found):
        raise NotFound(
            f"qsf: {found or 'no such program in the package or on PATH'}; install the wheel of "
            f"this platform, or set {VARIABLE} to the path of the program")
    return found


def arguments_of(options: Mapping[str, Option | None]) -> list[str]:
    """Returns command line options of keywords.

    >>> arguments_of({"quant_type": "4bit", "gptq": True, "report": None, "lora": ["a", "b"]})
    ['--quant-type', '4bit', '--gptq', '--lora', 'a', '--lora', 'b']
    """
    arguments: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif isinstance(value, (list, tuple)):
            for each in value:
                arguments += [flag, os.fspath(each)]
        elif value is not None and value is not False:
            arguments += [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return arguments


def convert(source: PathLike, target: PathLike, *, progress: bool | Callable[[str, int], None] = False,
            **options: Option | None) -> None:
    """Converts a model to a .qsf file, as a process of `qsf convert`.

    Args:
        source: a Hugging Face folder or a GGUF file; with base=..., a LoRA adapter.
        target: replaced when the new file is complete.
        progress: True: a bar of tqdm, where it is installed; or called with (stage, percent).
        options: those of `qsf convert`, with underscores: quant_type="4bit", target_size=60,
            calibration="text.txt", gptq=True, ram_budget=1000, threads=2 ...

    Raises:
        NotFound, Error: what the tool says. KeyboardInterrupt ends the tool; with work_folder=...
            the same call goes on from there.
    """
    command = [tool_path(), "convert", *arguments_of(options), os.fspath(source), os.fspath(target)]
    if not progress:
        _check(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False))
        return
    report, close = _bar(os.fspath(target)) if progress is True else (progress, lambda: None)
    try:
        _check(_run_on_terminal(command, report))
    finally:
        close()


def inspect(path: PathLike, *, verify: bool = False) -> dict[str, Any]:
    """Returns what `qsf inspect --json` tells of a .qsf or GGUF file.

    Args:
        verify: True: reads every tile and checks all checksums and weights.

    Raises:
        NotFound, Error: what the tool says, damage included.
    """
    import json

    command = [tool_path(), "inspect", "--json", *arguments_of({"verify": verify}), os.fspath(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", check=False)
    _check(done)
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def _check(done: subprocess.CompletedProcess[str]) -> None:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode == 0:
        for line in lines:
            logger.info("%s", line)
        return
    message = lines[-1] if lines else f"{done.args[0]}: ended with status {done.returncode}"
    kind = (NotFound if "no such file" in message.lower() else
            InvalidArgument if done.returncode == 2 else Error)
    raise kind(message)


def _bar(name: str) -> tuple[Callable[[str, int], None], Callable[[], None]]:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return lambda stage, percent: None, lambda: None
    bar = tqdm(total=100, desc=os.path.basename(name), unit="%")

    def show(stage: str, percent: int) -> None:
        bar.set_description(f"{os.path.basename(name)}: {stage}", refresh=False)
        bar.update(percent - bar.n)

    return show, bar.close


def _run_on_terminal(command: list[str],
                     report: Callable[[str, int], None]) -> subprocess.CompletedProcess[str]:
    """Runs a command whose error output is a terminal, which is where the tool shows progress."""
    import pty

    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal, tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=theirs)
        finally:
            os.close(theirs)
        try:
            text = _read_progress(terminal, report)
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return subprocess.CompletedProcess(command, status, "", text)


def _read_progress(terminal: IO[bytes], report: Callable[[str, int], None]) -> str:
    """Returns the lines that are no progress."""
    kept, part = "", ""
    while True:
        try:
            data = terminal.read(4096)
        except OSError:  # Linux's way to say that the other side is closed
            data = b""
        if not data:
            return kept + part
        *lines, part = re.split(r"\r\n|\n|\r|\x1b\[K", part + data.decode("utf-8", "replace"))
        for line in lines:
            match = _PROGRESS.search(line)
            if match:
                report(match[1].strip(), int(match[2]))
            elif line.strip():
                kept += line + "\n"
