"""Reads while partitions move: real workers, a real table, and a model that judges every answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.testing.broker import broker_process
from tests.support.workers.readers import KEYS, Numbers, Readers, all_by_owners

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

BOUND_S = 8.0


@contextlib.contextmanager
def readers(folder: Path, *names: str, **more: Any) -> Iterator[tuple[Readers, Numbers]]:
    """Workers on the embedded broker under load, each of which answers for every key by its owner."""
    app_id = f"reads-{time.time_ns()}"
    settings = {"faust_assigner_stale_reads": BOUND_S, "faust_assigner_follow_up_s": 1,
                **more.pop("settings", {})}
    with broker_process() as broker:
        group = Readers(app_id, broker.bootstrap, folder, settings=settings, **more)
        numbers = Numbers(broker.bootstrap, app_id, group.partitions)
        try:
            numbers.prepare()
            for name in names:
                group.start(name)
            numbers.start()
            for name in names:
                group.until(name, all_by_owners)
            yield group, numbers
        finally:
            numbers.stop()
            group.stop()


def test_reads_go_on_from_copies_when_a_worker_is_killed_and_are_its_heirs_then(tmp_path: Path) -> None:
    """Until the group knows of the death a copy answers, and says how much it lacks; no answer is wrong."""
    with readers(tmp_path, "w1", "w2") as (group, numbers):
        both = group.until("w1", lambda now: len({a.by for a in now}) == 2 and all_by_owners(now))
        time.sleep(1.0)  # so that the copies are seen to keep up
        group.kill("w2")
        answers = group.until("w1", lambda now: all_by_owners(now) and {a.by for a in now} == {
            group.ports["w1"]})
        copies = [a for a in answers if a.role == "standby"]
        assert {a.key for a in copies} == {a.key for a in both[-len(KEYS):] if a.by == group.ports["w2"]}
        assert all(int(a.headers["X-Faust-Assigner-Lag"]) >= 0 for a in copies)
        assert all(0 <= float(a.headers["X-Faust-Assigner-Age"]) <= BOUND_S for a in copies)
        assert {a.status for a in answers} == {200}
        assert numbers.wrong(answers, BOUND_S) == []
