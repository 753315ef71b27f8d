# SPDX-License-Identifier: MIT
"""Puts the folders of scripts/ on the path of modules; every test imports this before the script that it tests."""

import importlib.machinery
import importlib.util
import os
import sys

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = {name: os.path.join(SCRIPTS, name) for name in ("check", "golden", "measure", "models", "package")}
sys.path[:0] = FOLDERS.values()


def load(room, name):
    """Returns a script whose name has no .py as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(FOLDERS[room], name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
