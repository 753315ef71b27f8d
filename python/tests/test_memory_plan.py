# SPDX-License-Identifier: MIT
"""Plans, and budgets that are too small."""

import pytest
from conftest import MODEL, MOVEMENT_BYTES, PROMPT

import qsf


def test_a_plan_tells_what_a_model_takes():
    plan = qsf.plan(MODEL, ram_budget="400MB", context=256, threads=1)
    assert (plan.budget_bytes, plan.budget_named, plan.context) == (400_000_000, True, 256)
    assert plan.everything_resident and plan.resident_share == 1 and plan.reductions == ()
    assert sum(region.bytes for region in plan.regions) <= plan.planned_bytes < 400_000_000
    assert plan.weight_bytes > 2_000_000 and all(region.name for region in plan.regions)
    with qsf.Model(MODEL, ram_budget="400MB", context=256, threads=1) as model:
        assert {r.name: r.bytes for r in model.plan.regions}.keys() == \
            {r.name: r.bytes for r in plan.regions}.keys()


@pytest.mark.parametrize("refuse", [qsf.plan, qsf.Model])
def test_a_budget_that_is_too_small_names_the_one_that_works(refuse):
    with pytest.raises(MemoryError) as caught:
        refuse(MODEL, ram_budget="2MB")
    error = caught.value
    assert isinstance(error, qsf.OutOfBudget) and error.budget == 2_000_000
    assert error.needed > error.budget and f"{error.needed // 1_000_000} MB" in str(error)
    with qsf.Model(MODEL, ram_budget=error.needed + MOVEMENT_BYTES) as model:
        assert model.generate(PROMPT, max_tokens=2).tokens


def test_other_refusals_have_no_sizes():
    with qsf.Model(MODEL, threads=1) as model:
        with pytest.raises(qsf.OutOfBudget) as caught:
            model.generate("word " * 5000)
    assert (caught.value.needed, caught.value.budget) == (None, None)


@pytest.mark.parametrize("text, expected", [
    ("200MB", 200_000_000), ("1.5 GB", 1_500_000_000), ("512MiB", 512 << 20), ("7", 7), (8, 8),
    ("2k", 2000), ("1 TiB", 1 << 40)])
def test_sizes(text, expected):
    from qsf.config import parse_size

    assert parse_size(text) == expected
