#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests the man pages and completions of a build in the programs that read them.

    documentation_test.py man|bash|zsh|fish BUILD_DIR

man: every tool has a page that mandoc or man formats without a warning. bash, zsh, fish: the shell
completes options and values as in the tool's --help. Exits with 77 and a reason when the program is
not installed.
"""

import glob
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

import cli_help

SKIPPED = 77
READ_TIMEOUT_S = 20


def skip(reason):
    print(reason)
    sys.exit(SKIPPED)


def tools_of(build):
    tools = sorted(path for path in glob.glob(os.path.join(build, "bin", "qsf-*")) if os.access(path, os.X_OK))
    if len(tools) < 4:
        sys.exit(f"documentation_test: only {len(tools)} tools in {build}/bin")
    return [cli_help.read_help(tool) for tool in tools]


def check_man(build, pages):
    formatters = [(name, arguments) for name, arguments in (
        ("mandoc", ["-Tlint", "-W", "style"]), ("man", ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]))
        if shutil.which(name)]
    if not formatters:
        skip("neither mandoc nor man is installed")
    failures = []
    for page in pages:
        path = os.path.join(build, "packaging", "man", page.tool + ".1")
        with open(path, encoding="ascii") as file:
            text = file.read().replace("\\", "")
        failures += [f"{path}: no word of {name}" for entry in page.entries for name in entry.names
                     if name not in text]
        for name, arguments in formatters:
            done = subprocess.run([name, *arguments, path], capture_output=True, text=True, check=False)
            said = done.stderr + (done.stdout if name == "mandoc" else "")
            if done.returncode != 0 or said:
                failures.append(f"{path}: {name}: {said.strip() or done.returncode}")
    return failures


class Bash:
    """Completions as bash computes them for a line, whose words end where bash ends them."""

    SCRIPT = 'source "$1"; f=$2; shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); ' \
             '"$f"; printf "%s\\n" "${COMPREPLY[@]}"'

    def __init__(self, build):
        self.folder = os.path.join(build, "packaging", "completions", "bash")

    def complete(self, line, scratch):
        words = re.sub("=", " = ", line).split(" ")
        if line.endswith("="):
            words = words[:-1]
        path = os.path.join(self.folder, words[0])
        registered = subprocess.run(["bash", "--norc", "-c", 'source "$1"; complete -p "$2"', "-", path, words[0]],
                                    capture_output=True, text=True, check=True).stdout.split()
        function = registered[registered.index("-F") + 1]
        done = subprocess.run(["bash", "--norc", "-c", self.SCRIPT, "-", path, function, *words],
                              cwd=scratch, capture_output=True, text=True, check=True)
        return {word for word in done.stdout.split("\n") if word}


class Fish:
    def __init__(self, build):
        self.folder = os.path.join(build, "packaging", "completions", "fish")

    def complete(self, line, scratch):
        tool = line.split(" ")[0]
        environment = dict(os.environ, HOME=scratch, XDG_CONFIG_HOME=scratch, XDG_DATA_HOME=scratch)
        done = subprocess.run(["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
                               os.path.join(self.folder, tool + ".fish"), line],
                              cwd=scratch, env=environment, capture_output=True, text=True, check=True)
        found = {word.split("\t")[0].rstrip("/") for word in done.stdout.split("\n") if word}
        return {word.partition("=")[2] if word.startswith("--") and "=" in line else word for word in found}


class Zsh:
    """Completions as an interactive zsh finds them at a terminal of its own. It lists none: of a long
    list it would ask whether to show it, and take the next line's first letter for the answer."""

    SETUP = """\
KEYTIMEOUT=1; PS1=; PS2=; RPS1=; unsetopt zle_bracketed_paste 2>/dev/null; unset zle_bracketed_paste
unsetopt auto_list auto_menu
fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D
offered=()
compadd() {{
  local -a found; local -i shown=1
  [[ " $* " == *" -O "* || " $* " == *" -A "* || " $* " == *" -D "* ]] && {{ builtin compadd "$@"; return }}
  builtin compadd -O found "$@"; offered+=("${{found[@]}}"); builtin compadd "$@"
}}
report() {{ zle complete-word; print -r -- "<<${{(j:|:)offered}}>>"; offered=(); BUFFER=; zle redisplay }}
zle -N report; bindkey '^X' report; cd {scratch}; print -r -- "<<rea""dy>>"
"""

    def __init__(self, build):
        self.folder = os.path.join(build, "packaging", "completions", "zsh")
        self.terminal = None

    def start(self, scratch):
        child, self.terminal = pty.fork()
        if child == 0:
            os.chdir(scratch)
            os.execvpe("zsh", ["zsh", "-f", "-i"],
                       dict(os.environ, TERM="dumb", HOME=scratch, ZDOTDIR=scratch))
        os.write(self.terminal, self.SETUP.format(folder=self.folder, scratch=scratch).encode())
        self.wait_for(self.terminal, rb"<<ready>>")

    def complete(self, line, scratch):
        if self.terminal is None:
            self.start(scratch)
        os.write(self.terminal, line.encode() + b"\x18")
        offered = self.wait_for(self.terminal, rb"<<([^>]*)>>")
        return {word.rstrip("/") for word in offered.group(1).decode().replace("\r\n", "").split("|") if word}

    @staticmethod
    def wait_for(terminal, pattern):
        seen, deadline = b"", time.monotonic() + READ_TIMEOUT_S
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 65536)
            match = re.search(pattern, seen)
            if match:
                return match
        raise RuntimeError(f"zsh: no {pattern!r} in {seen!r}")


def check_shell(shell, pages):
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(os.path.join(scratch, "folder"))
        for name in ("a.qsf", "b.txt", "m.gguf"):
            with open(os.path.join(scratch, name), "w", encoding="ascii"):
                pass

        def expect(line, wanted, unwanted=()):
            offered = shell.complete(line, scratch)
            if not set(wanted) <= offered or set(unwanted) & offered:
                failures.append(f"'{line}': offered {sorted(offered)}, expected {sorted(wanted)}"
                                + (f" and not {sorted(unwanted)}" if unwanted else ""))

        for page in pages:
            long_names = [entry.names[-1] for entry in page.options()]
            expect(page.tool + " --", long_names)
            for entry in page.options():
                if entry.choices:
                    expect(f"{page.tool} {entry.names[-1]} ", entry.choices, ["a.qsf", "--help"])
        # What a kind of argument means, once each: it is the same code for every tool.
        expect("qsf-run --kv-type f3", ["f32"], ["f16"])
        expect("qsf-run --kv-type=f3", ["f32"], ["f16"])
        expect("qsf-run --kv-type-k ", ["8", "4", "2"], ["a.qsf"])
        expect("qsf-run --prompt ", [], ["a.qsf", "b.txt", "folder"])
        expect("qsf-run --prompt-file ", ["a.qsf", "b.txt", "folder"])
        expect("qsf-run --seed 7 ", ["a.qsf", "m.gguf", "folder"], ["b.txt"])
        expect("qsf-perplexity --context 7 ", ["a.qsf", "folder"], ["b.txt", "m.gguf"])
        expect("qsf-convert ", ["folder", "m.gguf"])
        expect("qsf-convert --quant-type 8bit folder ", ["a.qsf", "b.txt"])
    return failures


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in ("man", "bash", "zsh", "fish"):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    what, build = arguments[0], os.path.abspath(arguments[1])
    pages = tools_of(build)
    if what == "man":
        failures = check_man(build, pages)
    else:
        if not shutil.which(what):
            skip(f"{what} is not installed")
        failures = check_shell({"bash": Bash, "zsh": Zsh, "fish": Fish}[what](build), pages)
    for failure in failures:
        print(f"documentation_test: {failure}")
    print(f"documentation_test: {what}: {len(pages)} tools, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
