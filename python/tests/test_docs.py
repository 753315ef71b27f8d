# SPDX-License-Identifier: MIT
"""Docstrings: their examples run; every public name has one. Types: mypy agrees."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys

import pytest
from conftest import MODEL, ROOT

import qsf

MODULES = [importlib.import_module("qsf." + each.name) for each in pkgutil.iter_modules(qsf.__path__)
           if each.name != "__main__"]


def test_examples_run(model):
    counts = {module.__name__: doctest.testmod(module, extraglobs={
        "qsf": qsf, "model": model, "path": str(MODEL)}) for module in MODULES}
    assert all(count.failed == 0 for count in counts.values()), counts
    assert sum(count.attempted for count in counts.values()) >= 12


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").symlink_to(ROOT / "models" / "tales-5M")
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert capsys.readouterr().out


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    block, = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.qsf").symlink_to(MODEL)
    exec(compile(block, "README.md", "exec"), {})
    assert len(capsys.readouterr().out) > 40


def public_members():
    for name in qsf.__all__:
        thing = getattr(qsf, name)
        yield name, thing
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            for member, value in vars(thing).items():
                if not member.startswith("_") and callable(getattr(value, "fget", value)):
                    yield f"{name}.{member}", value


def test_every_public_name_has_a_docstring():
    named = list(public_members())
    assert len(named) > 60
    assert [name for name, thing in named if not (getattr(thing, "__doc__", "") or "").strip()] == []


@pytest.mark.long
def test_types_are_strict():
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", ROOT / "python" / "qsf"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
