#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Follows the Dockerfile without a container engine: in folders, with chroot.

    dockerfile_test.py

The first stage starts from the Debian root file system that scripts/package/rootfs_test.sh keeps in
build/rootfs, the last one from an empty folder, in which the entry point runs as the image's user.
The script understands only the instructions that the Dockerfile uses, and refuses others. It takes
minutes, because it installs a compiler and builds. Needs root; exits with 77 and a reason when
something is missing.
"""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "check"))
import repo_files  # noqa: E402  (the path has to be there first)

ROOT = repo_files.repository_root()
SKIPPED = 77
STORY = ["--prompt", "Once upon a time", "--max-tokens", "20", "--seed", "7"]


class Stage:
    def __init__(self, folder):
        self.folder = folder
        self.directory = "/"
        self.user = None
        self.entry_point = None


def instructions(text):
    """Yields (instruction, rest) with continued lines joined."""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).split("\n"):
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def copy(sources, target, stage):
    """Copies files and folders as COPY does. A folder's content goes to the target."""
    destination = stage.folder + (target if target.startswith("/") else os.path.join(stage.directory, target))
    for source in sources:
        if os.path.isdir(source):
            shutil.copytree(source, destination, symlinks=True, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("build") if source == ROOT else None)
        else:
            os.makedirs(destination if target.endswith("/") else os.path.dirname(destination), exist_ok=True)
            shutil.copy2(source, destination)


def in_chroot(stage, arguments, user=None):
    os.chroot(stage.folder)
    os.chdir(stage.directory)
    if user:
        uid, gid = map(int, user.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    os.execve(arguments[0], arguments, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})


def run_in(stage, arguments, user=None):
    """Runs a program with the stage's folder as root. Returns its standard output."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            try:
                in_chroot(stage, arguments, user)
            finally:
                os._exit(127)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if status != 0:
        raise RuntimeError(f"{' '.join(arguments)}: exit {status}: {text[-3000:]}")
    return text


def perform(word, rest, stages, stage):
    """Does one instruction other than FROM."""
    if word == "COPY":
        words, origin = rest.split(), ROOT
        if words[0].startswith("--from="):
            origin = stages[words.pop(0)[len("--from="):]].folder
        sources = []
        for pattern in words[:-1]:
            found = glob.glob(os.path.normpath(origin + "/" + pattern))
            if not found:
                raise RuntimeError(f"COPY {pattern}: no such file")
            sources += found
        copy(sources, words[-1], stage)
    elif word == "RUN":
        run_in(stage, ["/bin/sh", "-c", rest])
    elif word == "WORKDIR":
        stage.directory = rest
    elif word == "USER":
        stage.user = rest
    elif word == "ENTRYPOINT":
        stage.entry_point = json.loads(rest)
    else:
        raise RuntimeError(f"{word}: an instruction that this test does not know")


def build(text, base, scratch):
    """Follows a Dockerfile. Returns its last stage."""
    stages, stage = {}, None
    for word, rest in instructions(text):
        print(f"== {word} {rest}", flush=True)
        if word != "FROM":
            perform(word, rest, stages, stage)
            continue
        image, _, name = rest.partition(" AS ")
        stage = stages[name] = Stage(os.path.join(scratch, f"stage{len(stages)}"))
        os.mkdir(stage.folder)
        if image == "debian:bookworm-slim":
            subprocess.run(["tar", "-C", stage.folder, "--numeric-owner", "-xf", base], check=True)
            shutil.copy("/etc/resolv.conf", os.path.join(stage.folder, "etc", "resolv.conf"))
        elif image != "scratch":
            raise RuntimeError(f"FROM {image}: an image that this test does not have")
    return stage


def main():
    # So that a stopped test leaves no root file system behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    bases = glob.glob(os.path.join(ROOT, "build", "rootfs", "bookworm-*.tar"))
    if os.getuid() != 0 or not bases:
        print("dockerfile_test: needs root, and the root file system that scripts/package/rootfs_test.sh leaves in build/rootfs")
        return SKIPPED
    with open(os.path.join(ROOT, "Dockerfile"), encoding="ascii") as file:
        text = file.read()
    with tempfile.TemporaryDirectory(dir=os.path.dirname(bases[0])) as scratch:
        try:
            image = build(text, bases[0], scratch)
            if not image.user or image.user.startswith("0"):
                raise RuntimeError("the image's user is root")
            story = run_in(image, image.entry_point + STORY, image.user)
        except RuntimeError as failure:
            print(f"dockerfile_test: {failure}")
            return 1
        if len(story) < 40:
            print(f"dockerfile_test: the entry point printed {story!r}")
            return 1
        files = sum(len(names) for _, _, names in os.walk(image.folder))
    print(f"dockerfile_test: the image of {files} files tells: {story.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
