# SPDX-License-Identifier: MIT
"""The files of the repository and what kind each is: shared by the checkers.

Files come from git (tracked, and untracked but not ignored), or from a walk where there is no git.
Checkers do not import each other; shared functions are here.
"""

import os
import subprocess

SKIPPED_FOLDERS = {".git", "build", "__pycache__", ".cache"}
CODE_SUFFIXES = (".cc", ".h", ".c", ".cu", ".inc")
SCRIPT_SUFFIXES = (".py", ".sh", ".cmake", ".js")


def repository_root():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def repository_files(root):
    """Returns the sorted paths of the repository's files, relative to root, with forward slashes."""
    try:
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=True).stdout.decode().split("\0")
        top = subprocess.run(["git", "-C", root, "rev-parse", "--show-toplevel"],
                             capture_output=True, check=True).stdout.decode().strip()
        if os.path.realpath(top) == os.path.realpath(root):
            return sorted(path for path in set(listed)
                          if path and os.path.isfile(os.path.join(root, path)))
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path.replace(os.sep, "/") for path in found)


def is_code(path):
    return path.endswith(CODE_SUFFIXES)


def is_data(path):
    """Test data and models: bytes that tests read, held to no rule of style."""
    return path.startswith(("testdata/", "models/")) and not path.endswith(".md")


def is_script(root, path):
    """Scripts and build files: by suffix or name, or by a first line that names an interpreter."""
    name = os.path.basename(path)
    if path.endswith(SCRIPT_SUFFIXES) or name == "CMakeLists.txt":
        return True
    if "." in name.lstrip("."):
        return False
    with open(os.path.join(root, path), "rb") as file:
        return file.read(2) == b"#!"


def read_text(root, path):
    """Returns the text of a file; a byte that is no UTF-8 becomes U+FFFD."""
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def without_comments(text, keep_strings=True):
    """Returns C or C++ text with comments blanked out, lines kept.

    With keep_strings false the insides of string and character literals are blanked as well. Raw
    strings are understood.
    """
    out = []
    position, end = 0, len(text)
    while position < end:
        char = text[position]
        if text.startswith("//", position):
            stop = text.find("\n", position)
            position = end if stop < 0 else stop
        elif text.startswith("/*", position):
            stop = text.find("*/", position + 2)
            stop = end if stop < 0 else stop + 2
            out.append("\n" * text.count("\n", position, stop))
            position = stop
        elif text.startswith('R"', position) and text.find("(", position) > 0:
            delimiter = text[position + 2:text.find("(", position)]
            stop = text.find(")" + delimiter + '"', position)
            stop = end if stop < 0 else stop + len(delimiter) + 2
            literal = text[position:stop]
            out.append(literal if keep_strings else '""' + "\n" * literal.count("\n"))
            position = stop
        elif char == '"' or (char == "'" and not (out and out[-1].isalnum())):
            stop = position + 1
            while stop < end and text[stop] != char and text[stop] != "\n":
                stop += 2 if text[stop] == "\\" else 1
            stop = min(stop + 1, end)
            out.append(text[position:stop] if keep_strings else char + char)
            position = stop
        else:
            out.append(char)
            position += 1
    return "".join(out)


def report(name, violations, checked):
    """Prints the violations and a closing line. Returns the exit status: 0 clean, 1 otherwise.

    Nothing checked is a failure: a checker that saw no file proves nothing.
    """
    for line in violations:
        print(line)
    if checked == 0:
        print(f"{name}: nothing to check: no file was found")
        return 1
    print(f"{name}: {checked} files, {len(violations)} violation{'s' * (len(violations) != 1)}")
    return 1 if violations else 0
