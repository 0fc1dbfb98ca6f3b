"""What the watchdog counts, and when it begins a recovery again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.repairs import watchdog
from faust_assigner.app.repairs.watchdog import LOOK_S, STALLED_S, Watched


def test_the_time_that_a_process_was_stopped_counts_as_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an hour of sleep nothing has waited for an hour."""
    counted: list[float] = []

    def look(seconds: float, *, group_answers: bool) -> list[str]:
        counted.append(seconds)
        return []

    monkeypatch.setattr(watchdog, "waits_of", lambda app: SimpleNamespace(look=look))
    times = iter([1.0, 3_601.0])
    monkeypatch.setattr(watchdog, "monotonic", lambda: next(times))
    manager: Any = SimpleNamespace(app=SimpleNamespace(consumer=None))
    looked = Watched._look_at_waits(manager, 0.0)
    Watched._look_at_waits(manager, looked)
    assert counted == [1.0, 2 * LOOK_S]


def test_a_stalled_recovery_has_its_time_again_each_time_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not begun at each look once it was late."""
    begun: list[float] = []
    now = 0.0
    monkeypatch.setattr(watchdog, "monotonic", lambda: now)
    recovery = SimpleNamespace(
        idle=True,
        signal_recovery_start=SimpleNamespace(is_set=lambda: False),
        _generation_id=2,
        completed_generation=1,
        begin_again=lambda: begun.append(now),
    )
    consumer = SimpleNamespace(between_generations=False, assignment=lambda: {"orders-0"})
    manager: Any = SimpleNamespace(
        recovery=recovery, app=SimpleNamespace(consumer=consumer, consumer_generation_id=2)
    )
    since: float | None = None
    for look in range(26):
        now = float(look)
        since = Watched._begin_stalled_again(manager, since)
    assert begun == [STALLED_S, 2 * STALLED_S + 1]
