# SPDX-License-Identifier: MIT
"""Holds a program's reads of a disk to a rate."""

import os

from control_group import ControlGroup


class DiskGroup(ControlGroup):
    """A control group that reads at most `bytes_per_second` from the disk that holds `path`."""

    def __init__(self, path, bytes_per_second):
        super().__init__("io", v1="blkio")
        device = os.stat(path).st_dev
        self.device, self.rate = f"{os.major(device)}:{os.minor(device)}", bytes_per_second

    def set_limits(self):
        if self.is_v1:
            self.write("blkio.throttle.read_bps_device", f"{self.device} {self.rate}")
        else:
            self.write("io.max", f"{self.device} rbps={self.rate}")
