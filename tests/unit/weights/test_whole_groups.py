"""Weights of several groups in one document: each group gets its own, and its own age."""

from __future__ import annotations

import datetime as dt

import pytest

from faust_assigner.weights.document import MAX_AGE_S, decode, encode
from faust_assigner.weights.limits import Limits
from tests.unit.weights.test_document import NOON, weight_row

WIDE = Limits(0.01, 100.0)
ROWS = [
    weight_row("orders", 0, 3.0, "shop"),
    weight_row("orders", 0, 8.0, "shop-eu"),
    weight_row("orders", 1, 1.0, "shop"),
    weight_row("orders", 1, 2.0, "shop-eu"),
    weight_row("clicks", 0, 2.0, "shop"),
    weight_row("clicks", 0, 5.0, "my-shop"),
]


@pytest.mark.parametrize(
    ("group_id", "weights"),
    [
        ("shop", {("orders", 0): 1.5, ("orders", 1): 0.5, ("clicks", 0): 1.0}),
        ("shop-eu", {("orders", 0): 1.6, ("orders", 1): 0.4}),
        ("my-shop", {("clicks", 0): 1.0}),
        ("sho", None),
        ("shop-", None),
        ("", None),
    ],
)
def test_a_group_gets_the_weights_under_its_very_name(
    group_id: str, weights: dict[tuple[str, int], float] | None
) -> None:
    """Another group's name may begin or end with it; the median is that of the group."""
    found = decode(encode(ROWS, version=5, computed_at=NOON)).for_group(
        group_id, now=NOON, limits=WIDE
    )
    if weights is None:
        assert (found.code, found.version, dict(found.weights)) == ("unnamed", None, {})
        assert found.reason == f"version 5 has no partition of group {group_id!r}"
    else:
        assert (found.code, found.reason, found.version) == (None, None, 5)
        assert dict(found.weights) == pytest.approx(weights)


def test_the_age_of_a_group_is_that_of_its_own_samples_in_days() -> None:
    """A group without a time has the document's; at the limit the weights are still in force."""
    day = dt.timedelta(days=1)
    data = encode(ROWS, version=5, computed_at=NOON, sampled_at={"shop-eu": NOON - 3 * day})
    old = decode(data)
    limit = dt.timedelta(seconds=MAX_AGE_S)
    for group_id, newest in (("shop", NOON), ("shop-eu", NOON - 3 * day), ("my-shop", NOON)):
        at = newest + limit
        for now, code in (
            (at, None),
            (at + dt.timedelta(seconds=1), "stale"),
            (at + 9 * day, "stale"),
        ):
            if now >= NOON:
                assert old.for_group(group_id, now=now).code == code, (group_id, now)
    found = old.for_group("shop-eu", now=NOON + 2 * day, max_age_s=5 * 86_400.0 - 1)
    assert (
        found.reason == "version 5 is stale: its newest sample is 432000 s old, the limit is 431999"
    )
