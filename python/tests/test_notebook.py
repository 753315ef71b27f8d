# SPDX-License-Identifier: MIT
"""The notebook runs from top to bottom, with a real model where there is one.

Its plots are drawn where matplotlib is installed, and left out elsewhere.
"""

import importlib.util
import json
import os
import pathlib
import sys
from unittest import mock

import pytest
from conftest import ROOT

NOTEBOOK = ROOT / "examples" / "python" / "budget.ipynb"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
SMOLLM2 = CACHE / "qsf" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def cells():
    notebook = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_it_is_stored_without_results():
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


def test_it_runs(monkeypatch, capsys):
    if not SMOLLM2.exists():
        pytest.skip(f"no {SMOLLM2}: scripts/models/get_models fetches it")
    monkeypatch.setenv("QSF_GGUF", str(SMOLLM2))
    if importlib.util.find_spec("matplotlib") is None:
        plots = mock.MagicMock()
        plots.subplots.return_value = (mock.MagicMock(), mock.MagicMock())
        monkeypatch.setitem(sys.modules, "matplotlib", mock.MagicMock(pyplot=plots))
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plots)
    else:
        monkeypatch.setenv("MPLBACKEND", "Agg")
    names = {}
    for cell in cells():
        exec(compile(cell, NOTEBOOK.name, "exec"), names)
    assert names["rates"][-1] > names["rates"][0] > 0
    perplexity = names["perplexity"]
    assert perplexity["full"] < perplexity["newest"] and perplexity["full"] < perplexity["h2o"]
    assert "Name three birds." in capsys.readouterr().out
