# SPDX-License-Identifier: MIT
"""The program in processes: convert, inspect, and python -m qsf."""

import os
import subprocess
import sys
import time

import pytest
from conftest import MODEL, ROOT

import qsf
from qsf import tools

SOURCE = ROOT / "models" / "tales-5M"


@pytest.fixture(autouse=True)
def has_tool():
    assert os.path.exists(os.environ.get("QSF_TOOL", "")), "QSF_TOOL names no program"


def test_convert_and_inspect(tmp_path):
    target = tmp_path / "model.qsf"
    qsf.convert(SOURCE, target, quant_type="8bit", threads=1)
    content = qsf.inspect(target)
    assert content["model"]["architecture"] == "llama" and content["model"]["weight_type"] == "8bit"
    assert qsf.inspect(target, verify=True)["bytes"] == target.stat().st_size
    with qsf.Model(target, threads=1) as model:
        assert model.generate("A", max_tokens=2).tokens


def test_progress_is_reported(tmp_path):
    calls = []
    qsf.convert(SOURCE, tmp_path / "a.qsf", progress=lambda *call: calls.append(call), threads=1)
    assert all(isinstance(stage, str) and 0 <= percent <= 100 for stage, percent in calls)
    qsf.convert(SOURCE, tmp_path / "b.qsf", progress=True, threads=1)
    assert (tmp_path / "a.qsf").read_bytes() == (tmp_path / "b.qsf").read_bytes()


def test_progress_lines_are_parsed():
    class Terminal:
        parts = [b"qsf convert: conv", b"erting [##......]  25 %, layer.0\rqsf convert: converting "
                 b"[########] 100 %, x, 0 s left\r\x1b[K", b"done: 3.4 MB\r\n", b""]

        def read(self, _):
            return self.parts.pop(0)

    calls = []
    assert tools._read_progress(Terminal(), lambda *call: calls.append(call)) == "done: 3.4 MB\n"
    assert [percent for _, percent in calls] == [25, 100]
    assert calls[0][0].endswith("converting")


def test_an_error_in_the_callback_ends_the_tool(tmp_path, monkeypatch):
    tool = tmp_path / "qsf"
    tool.write_text("#!/bin/sh\nprintf 'qsf: converting [##..]  50 %%, x\\r' >&2\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("QSF_TOOL", str(tool))
    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        qsf.convert(SOURCE, tmp_path / "x.qsf", progress=lambda stage, percent: 1 / 0)
    assert time.monotonic() - begun < 20


def test_errors_of_the_tool_are_raised(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        qsf.inspect(tmp_path / "missing.qsf")
    with pytest.raises(qsf.Error, match="5bit"):
        qsf.convert(SOURCE, tmp_path / "x.qsf", quant_type="5bit")
    with pytest.raises(qsf.Error):
        qsf.convert(tmp_path, tmp_path / "x.qsf", progress=lambda *_: None)
    damaged = tmp_path / "damaged.qsf"
    data = bytearray(MODEL.read_bytes())
    data[-5000] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(qsf.Error):
        qsf.inspect(damaged, verify=True)
    assert os.listdir(tmp_path) == ["damaged.qsf"]


def test_python_m_qsf_is_the_tool():
    done = subprocess.run([sys.executable, "-m", "qsf", "--version"], capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0 and qsf.__version__ in done.stdout
    done = subprocess.run([sys.executable, "-m", "qsf", "run", str(MODEL), "A", "--max-tokens", "2"],
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0 and done.stdout.strip()


def test_a_missing_tool_is_named(monkeypatch):
    monkeypatch.setenv("QSF_TOOL", "/nowhere/qsf")
    with pytest.raises(qsf.NotFound, match="/nowhere/qsf; install the wheel"):
        tools.tool_path()
