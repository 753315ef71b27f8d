# SPDX-License-Identifier: MIT
"""Wine for tests: a system of its own for each of them, which leaves nothing behind."""

import os
import shutil
import subprocess

TIMEOUT_S = 300
WINE = next((path for path in map(shutil.which, ("wine64", "/usr/lib/wine/wine64", "wine")) if path), None)


def missing(bin_dir):
    """Returns what is missing for programs of a folder to run, empty for nothing."""
    if WINE is None:
        return "Wine is not installed (wine64)"
    if not os.path.exists(os.path.join(bin_dir, "qsf.exe")):
        return "there is no qsf.exe in " + bin_dir
    return ""


def environment(folder):
    """Returns the environment of programs whose Wine keeps its system in a folder, and has neither .NET nor a browser
    nor a debugger, which would start for each program that crashes on purpose."""
    return dict(os.environ, WINEPREFIX=os.path.join(folder, "prefix"), WINEDEBUG="-all",
                WINEDLLOVERRIDES="mscoree,mshtml,winedbg.exe=")


def end(env):
    """Ends the services of a system, which would stay for a minute."""
    server = shutil.which("wineserver") or "/usr/lib/wine/wineserver"
    for step in ("-k", "-w"):
        subprocess.run([server, step], env=env, check=False, timeout=TIMEOUT_S)
