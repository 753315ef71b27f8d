# SPDX-License-Identifier: MIT
"""Tests of check_macho.py with files made here."""

import contextlib
import io
import struct
import tempfile
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import check_macho

SYSTEM = "/usr/lib/libSystem.B.dylib"


def command(kind, body):
    body += b"\0" * (-len(body) % 8)
    return struct.pack("<II", kind, 8 + len(body)) + body


def library(name):
    return command(check_macho.LC_LOAD_DYLIB, struct.pack("<IIII", 24, 0, 0, 0) + name.encode() + b"\0")


def made(libraries=(SYSTEM,), machine=check_macho.ARM64, build=(1, 13 << 16), names=("qsf_a",)):
    """Returns a Mach-O file of load commands and symbols alone."""
    commands = [library(name) for name in libraries]
    commands.append(command(check_macho.LC_BUILD_VERSION, struct.pack("<IIII", *build, 0, 0)))
    n_bytes = 32 + sum(map(len, commands)) + 24
    strings = b"\0" + b"".join(b"_" + name.encode() + b"\0" for name in names)
    symbols, at = b"", 1
    for name in names:
        symbols += struct.pack("<IBBHQ", at, 0x0F, 1, 0, 0)
        at += len(name) + 2
    commands.append(command(check_macho.LC_SYMTAB, struct.pack(
        "<IIII", n_bytes, len(names), n_bytes + len(symbols), len(strings))))
    header = struct.pack("<IIIIIIII", check_macho.MAGIC, machine, 0, 6, len(commands), 0, 0, 0)
    return header + b"".join(commands) + symbols + strings


class MachoTest(unittest.TestCase):
    def check(self, data, exports=frozenset({"qsf_a"})):
        return check_macho.violations(data, exports)

    def test_what_is_right(self):
        self.assertEqual(self.check(made()), [])

    def test_each_violation_is_found(self):
        for data, words in ((made(machine=0x01000007), "AArch64"), (made(build=(1, 14 << 16)), "macOS 13.0"),
                            (made(build=(2, 13 << 16)), "macOS 13.0"), (made(libraries=()), "libSystem"),
                            (made(libraries=(SYSTEM, "/opt/lib/libzstd.dylib")), "libzstd"),
                            (made(names=("qsf_b",)), "define qsf_a")):
            found = self.check(data)
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])

    def test_other_files_are_refused(self):
        with tempfile.NamedTemporaryFile() as file, contextlib.redirect_stdout(io.StringIO()):
            for data in (b"", b"\x7fELF" + bytes(60), made()[:40], made()[:-9]):
                file.seek(0)
                file.truncate()
                file.write(data)
                file.flush()
                self.assertEqual(check_macho.main([file.name]), 2, data[:8])


if __name__ == "__main__":
    unittest.main()
