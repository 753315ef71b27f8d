# SPDX-License-Identifier: MIT
"""`python -m qsf`, and the command `qsf` of the wheel: the bundled program with these arguments."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from .errors import NotFound
from .tools import tool_path


def main() -> NoReturn:
    """Becomes the program."""
    try:
        path = tool_path()
    except NotFound as error:
        sys.exit(str(error))
    sys.stdout.flush()
    os.execv(path, ["qsf", *sys.argv[1:]])


if __name__ == "__main__":
    main()
