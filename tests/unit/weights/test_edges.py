"""The limits that a reader of a weights document chooses, and values that no writer writes."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pytest

from faust_assigner.weights.document import WeightsDocument, WeightsRefused, decode, encode, neutral
from faust_assigner.weights.limits import Limits, clamp_to_median
from faust_assigner.weights.trial import task_costs

from .test_document import NOON, document, weight_row


def test_a_reader_clamps_with_its_own_limits_and_keeps_the_version() -> None:
    """The median of the group is 4; another group does not shift it."""
    rows = [weight_row("orders", n, weight) for n, weight in enumerate((1.0, 4.0, 4.0, 10.0, 40.0))]
    rows.append(weight_row("orders", 7, 900.0, "bank"))
    found = decode(encode(rows, version=8, computed_at=NOON)).for_group(
        "shop", now=NOON, limits=Limits(0.5, 3.0)
    )
    assert (found.version, found.in_force, found.code, found.reason) == (8, True, None, None)
    assert dict(found.weights) == {
        ("orders", 0): 0.5,
        ("orders", 1): 1.0,
        ("orders", 2): 1.0,
        ("orders", 3): 2.5,
        ("orders", 4): 3.0,
    }


def test_an_infinite_cost_is_unknown_and_does_not_shift_the_median() -> None:
    """Neither of the unknown costs counts among the known ones."""
    costs = [1.0, np.inf, 2.0, np.nan, 4.0, -np.inf]
    assert clamp_to_median(costs).tolist() == [0.5, 1.0, 1.0, 1.0, 2.0, 1.0]
    assert clamp_to_median([np.inf, np.nan, -1.0]).tolist() == [1.0, 1.0, 1.0]
    assert clamp_to_median([]).tolist() == []


@pytest.mark.parametrize("value", [None, [], "", 0, False])
def test_times_of_samples_are_an_object_even_if_there_are_none(value: Any) -> None:
    """An empty value of another type is no document of ours; a missing one is an older document."""
    with pytest.raises(WeightsRefused, match="'sampled_at' is not an object"):
        decode(document(sampled_at=value))
    found = json.loads(document())
    del found["sampled_at"]
    assert decode(json.dumps(found).encode()).sampled_at == {}


@pytest.mark.parametrize(
    ("age_s", "max_age_s", "code"), [(50, 50.0, None), (51, 50.0, "stale"), (0, 0.0, None)]
)
def test_weights_of_exactly_the_highest_age_are_in_force(
    age_s: int, max_age_s: float, code: str | None
) -> None:
    """The age counts from the sample, not from the later computation."""
    sampled = {"shop": NOON, "bank": NOON - dt.timedelta(days=9)}
    computed = NOON + dt.timedelta(seconds=20)
    rows = [weight_row("orders", 0, 1.0)]
    made = decode(encode(rows, version=3, computed_at=computed, sampled_at=sampled))
    found = made.for_group("shop", now=NOON + dt.timedelta(seconds=age_s), max_age_s=max_age_s)
    assert found.code == code
    if code:
        assert found.reason == "version 3 is stale: its newest sample is 51 s old, the limit is 50"
        assert (found.version, found.in_force) == (None, False)


def test_a_group_without_a_row_has_weights_of_one_with_the_reason() -> None:
    """The reason names the version and the group."""
    made = WeightsDocument(6, NOON, ())
    expected = neutral("unnamed", "version 6 has no partition of group 'shop'")
    assert made.for_group("shop", now=NOON) == expected


def test_no_group_has_no_costs() -> None:
    """The result is an array of floats, even without a task."""
    found = task_costs([], {})
    assert (found.tolist(), found.dtype) == ([], np.float64)
