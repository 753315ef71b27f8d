# SPDX-License-Identifier: MIT
"""Memory plans: what a model takes, before it is opened."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

from . import _types as t
from ._library import check, check_budget, load, sized
from .config import Config, PathLike


@dataclass(frozen=True)
class Region:
    """A region of memory: its name, why it is there, and its bytes."""

    name: str
    reason: str
    bytes: int


@dataclass(frozen=True)
class Plan:
    """A memory plan.

    Attributes:
        budget_bytes: planned for; 0: no limit is known.
        budget_named: True: set by ram_budget.
        planned_bytes: of all regions.
        context: positions.
        everything_resident: True: no weights are read in passes.
        resident_share: of the weights that a pass multiplies, 0 to 1.
        weight_bytes: of all weights.
        pass_read_bytes: read from the file for a generated token.
        disk_bytes_per_second, memory_bytes_per_second: measured; 0: not.
        tokens_per_second: of generation, limited by both; 0: unknown.
        regions: of memory.
        reductions: made to fit the budget.
        details: every field of qsf_plan_info, these included.
    """

    budget_bytes: int
    budget_named: bool
    planned_bytes: int
    context: int
    everything_resident: bool
    resident_share: float
    weight_bytes: int
    pass_read_bytes: int
    disk_bytes_per_second: float
    memory_bytes_per_second: float
    tokens_per_second: float
    regions: tuple[Region, ...]
    reductions: tuple[str, ...]
    details: dict[str, Any]


def read_plan(lib: Any, handle: int) -> Plan:
    """Returns a copy of a QSFPlan."""
    info, error = sized(t.PlanInfo()), t.Error()
    check(lib.qsf_plan_get_info(handle, info, error), error)
    regions = []
    for i in range(lib.qsf_plan_region_count(handle)):
        region = sized(t.MemoryRegion())
        check(lib.qsf_plan_region(handle, i, region, error), error)
        regions.append(Region(region.name.decode(), (region.reason or b"").decode(), region.bytes))
    reductions: list[str] = []
    while (step := lib.qsf_plan_step(handle, len(reductions))) is not None:
        reductions.append(step.decode())
    details = {name: getattr(info, name) for name, _ in info._fields_[1:]}
    details["reading_mode"] = (details["reading_mode"] or b"").decode()
    return Plan(
        budget_bytes=info.budget_bytes, budget_named=bool(info.budget_named),
        planned_bytes=info.planned_bytes, context=info.context,
        everything_resident=bool(info.everything_resident), resident_share=info.resident_share,
        weight_bytes=info.weight_bytes, pass_read_bytes=info.pass_read_bytes,
        disk_bytes_per_second=info.disk_bytes_per_second,
        memory_bytes_per_second=info.memory_bytes_per_second,
        tokens_per_second=info.tokens_per_second, regions=tuple(regions),
        reductions=tuple(reductions), details=details)


def plan(path: PathLike, **settings: Any) -> Plan:
    """Plans a model without loading it, as Model would open it now.

    Measures disk and memory, which takes up to a second.

    Args:
        path: a .qsf file.
        settings: keywords of qsf.Model.

    Raises:
        OutOfBudget: with `needed`, the smallest budget that works. As Model before it reads
        weights.

    >>> qsf.plan(path).weight_bytes > 0
    True
    """
    lib, out, error = load(), ctypes.c_void_p(), t.Error()
    config = Config(**settings)
    with config.handle() as handle:
        code = lib.qsf_plan_create(os.fsencode(path), handle, ctypes.byref(out), error)
    check_budget(code, error)
    assert out.value is not None
    try:
        return read_plan(lib, out.value)
    finally:
        lib.qsf_plan_free(out)
