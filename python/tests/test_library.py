# SPDX-License-Identifier: MIT
"""The library that is loaded, and what of it is bound."""

import os
import re
import subprocess
import sys

import pytest
from conftest import MODEL, ROOT

from qsf import _library


def run_python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT / "python"),
                                           **environment})


def exported():
    names = set()
    for path in (ROOT / "testdata" / "abi").glob("*.symbols"):
        names.update(path.read_text().split())
    return names


def test_every_exported_function_is_bound_or_named_as_unbound():
    bound, unbound = set(_library.FUNCTIONS), set(_library.UNBOUND)
    assert len(exported()) > 100
    assert not bound & unbound
    assert exported() - bound - unbound == set(), "neither bound nor listed in UNBOUND"
    assert (bound | unbound) - exported() == set(), "not exported"


def test_every_bound_function_has_as_many_parameters_as_in_the_header():
    text = "".join(path.read_text() for path in (ROOT / "include" / "qsf").glob("*.h"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    declared = dict(re.findall(r"QSF_API\s[^;(]*?\b(qsf_\w+)\(([^)]*)\)", text))
    for name, (_, parameters) in _library.FUNCTIONS.items():
        listed = declared[name].strip()
        assert len(parameters) == (0 if listed == "void" else listed.count(",") + 1), name


def test_a_missing_library_is_named_with_what_to_do():
    done = run_python("import qsf; qsf.library_version()", QSF_LIBRARY="/nowhere/libqsf.so.0")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("qsf.errors.Error: libqsf: QSF_LIBRARY=/nowhere/libqsf.so.0: ")
    assert "set QSF_LIBRARY" in last


def test_a_library_of_another_kind_is_refused():
    done = run_python("import qsf; qsf.library_version()", QSF_LIBRARY="libc.so.6")
    assert done.returncode == 1 and "Traceback" in done.stderr
    assert "interface 0 without qsf_version, expected 2 or later" in done.stderr


def test_import_loads_neither_numpy_nor_the_library_nor_asyncio():
    done = run_python("import sys, qsf; print([n for n in ('numpy', 'asyncio', 'tqdm') "
                      "if n in sys.modules], qsf._library._library)", QSF_LIBRARY="/nowhere")
    assert (done.stdout, done.stderr) == ("[] None\n", "")


def test_a_program_that_does_not_log_sees_nothing():
    done = run_python(
        "import qsf\n"
        f"path = {str(MODEL)!r}\n"
        "try: qsf.plan(path, ram_budget='1MB')\n"
        "except qsf.OutOfBudget as error: needed = error.needed\n"
        "with qsf.Model(path, ram_budget=needed + 2_000_000) as model:  # warns of reductions\n"
        "    print(len(model.generate('A', max_tokens=3).tokens))")
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_generating_needs_no_numpy():
    done = run_python(
        "import sys; sys.modules['numpy'] = None; import qsf\n"
        f"with qsf.Model({str(MODEL)!r}, threads=1) as model:\n"
        "    print(len(model.generate('A', max_tokens=3).tokens))")
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_the_versions_agree():
    import qsf

    assert qsf.library_version() == qsf.__version__
    with pytest.raises(qsf.Unsupported, match="nothing is downloaded"):
        qsf.from_pretrained("a/b")
