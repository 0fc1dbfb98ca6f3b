"""What the answer from a copy says of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from faust.types import TP

from faust_assigner.app.reads.decide import Here, Who
from faust_assigner.app.reads.reading import AGE, LAG, ROLE, Reading


def test_an_answer_from_two_copies_names_the_greatest_lag_and_the_greatest_age() -> None:
    """The copy that is read last may be the better one."""
    known = {TP("a", 0): Here(lag=7, age_s=2.0), TP("b", 0): Here(lag=1, age_s=0.5)}
    standing: Any = SimpleNamespace(
        app=SimpleNamespace(tables={}), bound_s=30.0, here=known.__getitem__
    )
    reading = Reading(standing, None, "k", TP("a", 0), Who.COPY_HERE)
    reading._vouch(TP("b", 0))
    assert reading.headers() == {ROLE: "standby", LAG: "7", AGE: "2.000"}
