#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the Python reader of .qsf files on the golden files: check_format_reader.py DIRECTORY.

Decodes every tensor of every NAME.qsf and compares its CRC-32 with NAME.expected. A test compares
the C++ reader with the same files, so the two readers agree bit for bit. The reader must also
refuse a file in which a byte of any part is flipped.
"""

import pathlib
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
from qsf_reader import FormatError, MissingPackage, QsfFile  # noqa: E402  (the path has to be there first)


def tensor_crc(rows):
    return zlib.crc32(b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))


def check_file(path):
    """Returns (tensors compared, tensors skipped, failures)."""
    qsf = QsfFile(path.read_bytes())
    lines = path.with_suffix(".expected").read_text().splitlines()
    compared, skipped, failures = 0, 0, []
    for section_name, section in qsf.sections.items():
        for index, tensor in enumerate(section["tensors"]):
            if not lines:
                failures.append(f"{section_name} {tensor['kind']}: not expected")
                continue
            *expected, crc = lines.pop(0).split()
            found = [section_name, tensor["kind"], *(str(tensor[k]) for k in ("expert", "rows", "cols"))]
            if found != expected:
                failures.append(f"found {found}, expected {expected}")
            try:
                actual = f"{tensor_crc(qsf.values(section_name, index)):08x}"
            except MissingPackage:
                skipped += 1
                continue
            compared += 1
            if actual != crc:
                failures.append(f"{section_name} {tensor['kind']}: CRC {actual}, expected {crc}")
    failures += [f"missing: {line}" for line in lines]
    return compared, skipped, failures


def check_damage(path):
    """Returns failures: damaged copies that were accepted."""
    data = bytearray(path.read_bytes())
    qsf = QsfFile(bytes(data))
    places = [0, 20, 96, 108, 120, qsf.header["metadata_offset"] + 20,
              qsf.header["layer_index_offset"] + 9, qsf.header["embedding_offset"] + 5]
    failures = []
    for place in places:
        data[place] ^= 1
        try:
            QsfFile(bytes(data))
            failures.append(f"a flipped bit in byte {place} goes unnoticed")
        except (FormatError, struct.error, KeyError, UnicodeDecodeError):
            pass
        data[place] ^= 1
    return failures


def main():
    if len(sys.argv) != 2:
        print("usage: check_format_reader.py DIRECTORY", file=sys.stderr)
        return 2
    paths = sorted(pathlib.Path(sys.argv[1]).glob("*.qsf"))
    total, failed = 0, not paths
    for path in paths:
        compared, skipped, failures = check_file(path)
        failures += check_damage(path)
        total += compared
        note = f", {skipped} skipped: neither zstandard nor libzstd is installed" if skipped else ""
        print(f"{path.name}: {compared} tensors equal{note}" if not failures else f"{path.name}: FAILED")
        for failure in failures:
            print(f"  {failure}")
        failed = failed or bool(failures) or compared == 0
    print(f"{len(paths)} files, {total} tensors")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
