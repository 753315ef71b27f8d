#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of control groups: the kernel's, skipped where none can be made, and folders that stand in for them."""

import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import control_group
import disk_group
import memory_group


class KernelGroupTest(unittest.TestCase):
    def check(self, make):
        """A program runs in the group from the start, and nothing of the group is left."""
        try:
            with make() as group:
                command = [*group.wrapper(), "cat", "/proc/self/cgroup"]
                groups = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        except control_group.NoControlGroup as error:
            self.skipTest(str(error))
        self.assertIn("/" + os.path.basename(group.path) + "\n", groups)
        self.assertFalse(os.path.exists(group.path))

    def test_memory(self):
        self.check(lambda: memory_group.MemoryGroup(64 << 20))

    def test_disk(self):
        self.check(lambda: disk_group.DiskGroup(os.path.dirname(__file__), 1 << 20))


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        patches = [mock.patch.object(control_group, "ROOT", folder.name),
                   mock.patch.object(control_group.time, "sleep")]
        for each in patches:
            each.start()
            self.addCleanup(each.stop)
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def mount(self, *v1):
        """Mounts version 2, or the named controllers of version 1."""
        for name in v1:
            self.root.joinpath(name).mkdir()
        if not v1:
            self.root.joinpath("cgroup.controllers").touch()

    def entered(self, group):
        """Returns the files of a group that has been entered, and their texts."""
        path = pathlib.Path(group.__enter__().path)
        return {file.name: file.read_text() for file in path.iterdir()}

    def test_limits_of_version_2(self):
        self.mount()
        self.assertEqual(self.entered(memory_group.MemoryGroup(4096)), {"memory.max": "4096"})
        control = self.root / "cgroup.subtree_control"
        self.assertEqual(control.read_text(), "+memory")
        device = os.stat(__file__).st_dev
        self.assertEqual(self.entered(disk_group.DiskGroup(__file__, 5000)),
                         {"io.max": f"{os.major(device)}:{os.minor(device)} rbps=5000"})
        self.assertEqual(control.read_text(), "+io")

    def test_limits_of_version_1(self):
        self.mount("memory", "blkio")
        group = memory_group.MemoryGroup(4096)
        self.assertEqual(self.entered(group), {"memory.limit_in_bytes": "4096"})
        self.assertEqual(os.path.dirname(group.path), str(self.root / "memory"))
        device = os.stat(__file__).st_dev
        self.assertEqual(self.entered(disk_group.DiskGroup(__file__, 5000)),
                         {"blkio.throttle.read_bps_device": f"{os.major(device)}:{os.minor(device)} 5000"})

    def test_groups_have_names_of_their_own(self):
        self.mount()
        with control_group.ControlGroup("io", v1="blkio") as one, \
                control_group.ControlGroup("io", v1="blkio") as two:
            self.assertNotEqual(one.path, two.path)
            self.assertTrue(os.path.isdir(one.path) and os.path.isdir(two.path))

    def test_is_removed_when_its_last_process_is_gone(self):
        self.mount()
        remove = os.rmdir
        with mock.patch.object(control_group.os, "rmdir",
                               side_effect=[OSError(16, "busy"), mock.DEFAULT], wraps=remove) as tries:
            with control_group.ControlGroup("io", v1="blkio") as group:
                pass
        self.assertEqual(tries.call_count, 2)
        self.assertFalse(os.path.exists(group.path))

    def test_a_limit_that_is_refused_leaves_no_group(self):
        self.mount()
        group = memory_group.MemoryGroup(4096)
        with mock.patch.object(group, "write", side_effect=PermissionError(1, "Not permitted")):
            with self.assertRaisesRegex(control_group.NoControlGroup, group.path + ": Not permitted; run as root"):
                group.__enter__()
        self.assertFalse(os.path.exists(group.path))

    def test_no_controller_is_mounted(self):
        with self.assertRaisesRegex(control_group.NoControlGroup, f"no io controller is mounted under {self.root}"):
            disk_group.DiskGroup(__file__, 5000)
        self.assertEqual(list(self.root.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
