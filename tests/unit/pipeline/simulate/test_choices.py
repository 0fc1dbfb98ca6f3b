"""Choices of a simulation: the other policy, the trial of a policy, and the printed rebalances."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.simulate import console
from faust_assigner.pipeline.simulate.console import EVENTS_PRINTED
from faust_assigner.pipeline.simulate.policies import Placement, arms
from faust_assigner.pipeline.simulate.settings import recommend, summarise
from tests.unit.pipeline.simulate.test_settings import row


def test_of_the_other_policies_the_calmest_is_shown_and_of_equally_calm_ones_the_first() -> None:
    """The name decides only between equals."""
    stopped = {"ours": 50.0, "b": 70.0, "c": 60.0, "d": 60.0, "e": 90.0}
    rows = [row(n, policy, 1, value + n) for n in range(5) for policy, value in stopped.items()]
    line = recommend(summarise(rows), policy="ours")[0]
    assert (line.instead_of, line.difference_s) == ("c, standbys 1", pytest.approx(-1.0))


def no_standbys(*_args: Any, **_said: Any) -> Placement:
    """Return a plan whose standbys are not numbers."""
    return Placement({"first": {"source": [0, 1]}}, {"first": {"state": ["x"]}})


def ends(*_args: Any, **_said: Any) -> Placement:
    """End the process while it plans."""
    raise SystemExit("no plan")


@pytest.mark.parametrize(("name", "said"), [("no_standbys", "ValueError"), ("ends", "no plan")])
def test_a_policy_is_tried_out_with_its_standbys(name: str, said: str) -> None:
    """The message has the policy and the reason in one line."""
    path = f"{__name__}:{name}"
    with pytest.raises(ConfigError, match=rf"^policy '{path}' does not answer as .*{said}"):
        arms((path,))


def test_recorded_rebalances_that_differ_equally_are_printed_by_time() -> None:
    """Groups are recorded one after the other; the first in time are kept."""
    told = [
        {
            "ts": f"2026-11-21T03:{number:02d}:00",
            "group_id": group,
            "trigger": "t",
            "policy": "p",
            "standbys": 1,
            **{side: {"rebalances": 1, "moved": 2, "cold_moves": 0} for side in ("predicted", "recorded")},
        }
        for group, first in (("g", 1), ("h", 0))
        for number in range(first, 2 * EVENTS_PRINTED, 2)
    ]  # fmt: skip
    shown: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "show_rows", lambda title, columns, rows: shown.extend(rows))
        console._show_events(told)  # type: ignore[arg-type]
    minutes = [(row["group_id"], int(row["ts"][14:16])) for row in shown]
    assert minutes == [("g", n) for n in range(1, 20, 2)] + [("h", n) for n in range(0, 20, 2)]
