# SPDX-License-Identifier: MIT
"""Shared by the tests of the package: the bundled model, opened once.

Run through CTest (`ctest -R python`), or with QSF_LIBRARY naming a libqsf.so.0 and QSF_TOOL a qsf.
"""

import pathlib
import signal
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "tales-5M-4bit.qsf"
PROMPT = "Once upon a time"
# By which the memory of a test's process may grow before a budget is used that a refusal named.
MOVEMENT_BYTES = 4_000_000

sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

import qsf  # noqa: E402  behind the path

# A shell starts its background jobs without Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also runs tests marked long")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        kept = [item for item in items if "long" not in item.keywords]
        config.hook.pytest_deselected(items=[item for item in items if "long" in item.keywords])
        items[:] = kept


@pytest.fixture(scope="session")
def shared_model():
    """Several sessions; tests leave none behind."""
    with qsf.Model(MODEL, threads=1, sessions=4) as model:
        yield model


@pytest.fixture
def model(shared_model):
    yield shared_model
    left = [shared_model.session() for _ in range(4)]  # all are free again
    for session in left:
        session.close()


@pytest.fixture
def other_model():
    """One of the test's own, for what ends or counts."""
    with qsf.Model(MODEL, threads=1) as opened:
        yield opened
