# SPDX-License-Identifier: MIT
"""Puts the folders of scripts/ on the path of modules; every test imports this before the script that it tests."""

import os
import sys

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = {name: os.path.join(SCRIPTS, name) for name in ("check", "golden", "measure", "models", "package")}
sys.path[:0] = FOLDERS.values()
