#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the completions of a tool for bash, zsh and fish, made from its --help.

    make_completions.py PROGRAM OUT_DIR

OUT_DIR/bash/TOOL, OUT_DIR/zsh/_TOOL and OUT_DIR/fish/TOOL.fish are written. Options are offered
with their choices. An argument that is a model offers .qsf files (and .gguf where the help names
them) and folders; FILE and FOLDER offer files and folders. Other values are not completed.
"""

import os
import sys

import cli_help

BASH = """\
# Completion of {tool} for bash, made from its --help.
{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  # In --option=value bash takes "=" for a word.
  if [ "$current" = = ]; then
    current=
  elif [ "$previous" = = ] && [ "$COMP_CWORD" -ge 2 ]; then
    previous=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  COMPREPLY=()
  local kind=
  case $previous in
{values}
  esac
  if [ -z "$kind" ]; then
    case $current in
      -*) mapfile -t COMPREPLY < <(compgen -W '{options}' -- "$current"); return ;;
    esac
    # Which argument this is: words before it that are neither option nor value.
    local index position=0 word
    for ((index = 1; index < COMP_CWORD; index++)); do
      word=${{COMP_WORDS[index]}}
      case $word in
        {valued}) if [ "${{COMP_WORDS[index+1]}}" = = ]; then index=$((index + 2)); else index=$((index + 1)); fi ;;
        -*) ;;
        *) position=$((position + 1)) ;;
      esac
    done
    case $position in
{positions}
    esac
  fi
  case $kind in
    model) compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -X '!*.qsf' -- "$current"; compgen -d -- "$current") ;;
    model_or_gguf) compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -X '!*.qsf' -- "$current"; compgen -f -X '!*.gguf' -- "$current"
                               compgen -d -- "$current") ;;
    folder) compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    file) compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
  esac
}}
complete -F {function} {tool}
"""


# Of a program that is several: the completion of the link TOOL-COMMAND goes on behind the command.
BASH_COMMANDS = """\
# Completion of {tool} for bash, made from its --help.
{function}() {{
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '{words}' -- "${{COMP_WORDS[1]}}")
    return
  fi
  local command=${{COMP_WORDS[1]}}
  if ! declare -F "{function}_$command" >/dev/null; then
    [ -r "${{BASH_SOURCE[0]%/*}}/{tool}-$command" ] || return
    source "${{BASH_SOURCE[0]%/*}}/{tool}-$command"
  fi
  COMP_WORDS=("{tool}-$command" "${{COMP_WORDS[@]:2}}")
  COMP_CWORD=$((COMP_CWORD - 1))
  "{function}_$command"
}}
complete -F {function} {tool}
"""

ZSH_COMMANDS = """\
#compdef {tool}
# Completion of {tool} for zsh, made from its --help.
if (( CURRENT == 2 )); then
  compadd -- {words}
else
  shift words
  (( CURRENT-- ))
  words[1]={tool}-$words[1]
  _normal
fi
"""


def quote(text):
    """Returns text in single quotes of sh, zsh and bash."""
    return "'" + text.replace("'", "'\\''") + "'"


def command_words(help_page):
    """Returns the words that may stand first behind a program that is several."""
    names = [name for entry in help_page.commands + help_page.options() for name in entry.names]
    return " ".join([*names, "help"])


def bash(help_page):
    if help_page.commands:
        return BASH_COMMANDS.format(tool=help_page.tool, function="_" + help_page.tool,
                                    words=command_words(help_page))
    values = []
    for entry in help_page.options():
        if not entry.takes_value():
            continue
        pattern = "|".join(entry.names)
        if entry.kind() == "choice":
            words = " ".join(entry.choices)
            values.append(f"    {pattern}) mapfile -t COMPREPLY < <(compgen -W '{words}' -- \"$current\"); return ;;")
        elif entry.kind() == "text":
            values.append(f"    {pattern}) return ;;")
        else:
            values.append(f"    {pattern}) kind={entry.kind()} ;;")
    valued = [name for entry in help_page.options() if entry.takes_value() for name in entry.names]
    positions = [f"      {index}) kind={entry.kind()} ;;"
                 for index, entry in enumerate(help_page.positionals())]
    return BASH.format(
        tool=help_page.tool, function="_" + help_page.tool.replace("-", "_"),
        values="\n".join(values) or "    '') ;;",
        options=" ".join(name for entry in help_page.options() for name in entry.names),
        valued="|".join(valued) or "''", positions="\n".join(positions) or "      '') ;;")


ZSH_ACTIONS = {"model": '_files -g "*.qsf"', "model_or_gguf": '_files -g "*.(qsf|gguf)"',
               "folder": "_files -/", "file": "_files", "text": " "}


def zsh_value(entry):
    """Returns :message:action of _arguments."""
    if entry.kind() == "choice":
        action = "(" + " ".join(entry.choices) + ")"
    else:
        action = ZSH_ACTIONS[entry.kind()]
    message = entry.argument or entry.names[0]
    return f":{message}:{action}"


def zsh(help_page):
    def escape(text):
        return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    if help_page.commands:
        return ZSH_COMMANDS.format(tool=help_page.tool, words=command_words(help_page))
    lines = [f"#compdef {help_page.tool}", f"# Completion of {help_page.tool} for zsh, made from its --help.",
             "_arguments \\"]
    for entry in help_page.options():
        group = "(" + " ".join(entry.names) + ")" if not entry.repeated else "*"
        for name in entry.names:
            joined = "=" if entry.takes_value() and name.startswith("--") else ""
            value = zsh_value(entry) if entry.takes_value() else ""
            lines.append("  " + quote(f"{group}{name}{joined}[{escape(entry.text)}]{value}") + " \\")
    for index, entry in enumerate(help_page.positionals(), 1):
        lines.append("  " + quote(f"{index}{zsh_value(entry)}") + " \\")
    lines[-1] = lines[-1].rstrip(" \\")
    return "\n".join(lines) + "\n"


FISH_ARGUMENTS = {"model": r"""'(__fish_complete_suffix .qsf | string match -r ".*(?:\.qsf|/)(?:\t.*)?\$")'""",
                  "model_or_gguf": r"""'(begin; __fish_complete_suffix .qsf; __fish_complete_suffix .gguf; end """
                                   r"""| string match -r ".*(?:\.qsf|\.gguf|/)(?:\t.*)?\$" | sort -u)'""",
                  "folder": "'(__fish_complete_directories)'"}


def fish(help_page):
    def escape(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    tool = help_page.tool
    lines = [f"# Completion of {tool} for fish, made from its --help."]
    kinds = [entry.kind() for entry in help_page.positionals()]
    if "file" not in kinds:
        lines.append(f"complete -c {tool} -f")
        lines += [f"complete -c {tool} -k -a {FISH_ARGUMENTS[kind]}" for kind in kinds
                  if kind in FISH_ARGUMENTS]
    for entry in help_page.commands:
        lines.append(f"complete -c {tool} -n __fish_use_subcommand -f -a {entry.names[0]} -d {escape(entry.text)}")
    for entry in help_page.options():
        line = f"complete -c {tool}"
        for name in entry.names:
            line += f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
        if entry.kind() == "choice":
            line += f" -x -a {escape(' '.join(entry.choices))}"
        elif entry.kind() == "file":
            line += " -r -F"
        elif entry.takes_value() and entry.kind() in FISH_ARGUMENTS:
            line += f" -x -k -a {FISH_ARGUMENTS[entry.kind()]}"
        elif entry.takes_value():
            line += " -x"
        lines.append(f"{line} -d {escape(entry.text)}")
    return "\n".join(lines) + "\n"


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    help_page = cli_help.read_help(arguments[0])
    tool, folder = help_page.tool, arguments[1]
    write(os.path.join(folder, "bash", tool), bash(help_page))
    write(os.path.join(folder, "zsh", "_" + tool), zsh(help_page))
    write(os.path.join(folder, "fish", tool + ".fish"), fish(help_page))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
