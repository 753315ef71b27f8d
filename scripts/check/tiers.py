# SPDX-License-Identifier: MIT
"""The instruction-set tiers of this machine, read from /proc/cpuinfo.

src/platform/cpu.cc asks the processor itself. The tests compare it with this independent reading.
"""

import os
import platform

# What each tier adds to the one before it, as Linux spells it. Those of BRANCHES may be missing below
# a higher one.
X86_TIERS = (("sse42", "sse4_2 popcnt"), ("avx2", "avx2 fma f16c"),
             ("avxvnni", "avx_vnni"), ("avx512", "avx512f avx512bw avx512dq avx512vl"),
             ("avx512vnni", "avx512_vnni"), ("avx512vbmi", "avx512vbmi"),
             ("amx", "amx_tile amx_int8 amx_bf16"))
ARM_TIERS = (("neon", "asimd"), ("neondot", "asimddp"), ("neoni8mm", "i8mm"))
BRANCHES = ("avxvnni",)
CPUINFO = "/proc/cpuinfo"


def covered_tiers(machine, cpuinfo):
    """Returns the tiers that a processor has, lowest first, given the machine's name and the text of
    /proc/cpuinfo."""
    tiers = {"x86_64": X86_TIERS, "aarch64": ARM_TIERS}.get(machine, ())
    flags = set()
    for line in cpuinfo.split("\n"):
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags = set(value.split())
            break
    covered = ["scalar"]
    for tier, needed in tiers:
        if flags.issuperset(needed.split()):
            covered.append(tier)
        elif tier not in BRANCHES:
            break
    return covered


def expected_tier():
    """Returns the best tier of this machine, or None where there is no /proc/cpuinfo."""
    if not os.path.exists(CPUINFO):
        return None
    with open(CPUINFO, encoding="utf-8", errors="replace") as file:
        return covered_tiers(platform.machine(), file.read())[-1]
