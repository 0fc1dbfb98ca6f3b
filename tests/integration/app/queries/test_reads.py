"""Reads while partitions move: real workers, a real table, and a model that checks every answer."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.support.workers.readers import KEYS, Numbers, Readers, all_by_owners, all_known

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

#: A generous bound: the tests check that an answer is as old as its header states.
BOUND_S = 30.0


@contextlib.contextmanager
def readers(
    folder: Path, *names: str, bootstrap: str = "", **more: Any
) -> Iterator[tuple[Readers, Numbers]]:
    """Workers under load whose keys are all answered by their owners."""
    app_id = f"reads-{time.time_ns()}"
    settings = {
        "faust_assigner_stale_reads_s": BOUND_S,
        "faust_assigner_follow_up_s": 1,
        **more.pop("settings", {}),
    }
    with contextlib.ExitStack() as until_the_end:
        at = bootstrap or until_the_end.enter_context(broker_process()).bootstrap
        group = Readers(app_id, at, folder, settings=settings, **more)
        numbers = Numbers(at, app_id, group.partitions)
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


@pytest.mark.slow
def test_reads_go_on_from_copies_when_a_worker_is_killed_and_are_its_heirs_then(
    tmp_path: Path,
) -> None:
    """Until the group notices, a copy answers and states its lag; no answer is wrong."""
    with readers(
        tmp_path, "w1", "w2", session_s=2.0, settings={"faust_assigner_warmups": False}
    ) as (group, numbers):
        both = group.until("w1", lambda now: len({a.by for a in now}) == 2 and all_by_owners(now))
        group.until("w1", all_known, only_here=True)  # wait until the standbys are current, too
        group.kill("w2")
        answers = group.until(
            "w1", lambda now: all_by_owners(now) and {a.by for a in now} == {group.ports["w1"]}
        )
        copies = [a for a in answers if a.role == "standby"]
        assert {a.key for a in copies} == {
            a.key for a in both[-len(KEYS) :] if a.by == group.ports["w2"]
        }
        assert all(int(a.headers["X-Faust-Assigner-Lag"]) >= 0 for a in copies)
        assert all(0 <= float(a.headers["X-Faust-Assigner-Age"]) <= BOUND_S for a in copies)
        assert {a.status for a in answers} == {200}
        assert numbers.wrong(answers, BOUND_S) == []


@pytest.mark.slow
@pytest.mark.kafka
def test_copies_of_exactly_once_tables_answer_too(kafka: KafkaServer, tmp_path: Path) -> None:
    """The last offsets of their changelogs are transaction markers, which consumers do not see."""
    settings = {"processing_guarantee": "exactly_once"}
    with readers(
        tmp_path, "w1", "w2", bootstrap=kafka.bootstrap, session_s=6.0, settings=settings
    ) as (group, numbers):
        both = group.until("w1", lambda now: len({a.by for a in now}) == 2 and all_by_owners(now))
        group.until("w1", all_known, only_here=True)
        group.kill("w2")
        answers = group.until(
            "w1", lambda now: all_by_owners(now) and {a.by for a in now} == {group.ports["w1"]}
        )
        copies = {a.key for a in answers if a.role == "standby"}
        assert copies >= {a.key for a in both[-len(KEYS) :] if a.by == group.ports["w2"]}
        assert {a.status for a in answers} <= {200, 503}
        assert numbers.wrong(answers, BOUND_S) == []


@pytest.mark.slow
def test_reads_through_a_death_a_freeze_and_a_return(tmp_path: Path) -> None:
    """With any of the three workers asked, no answer is wrong and owners answer in the end."""
    with readers(tmp_path, "w1", "w2", "w3") as (group, numbers):
        group.until("w1", lambda now: len({a.by for a in now}) == 3 and all_by_owners(now))
        answers = []
        group.kill("w3")
        for name in ("w1", "w2"):
            answers += group.until(
                name, lambda now: all_by_owners(now) and len({a.by for a in now}) == 2
            )
        group.start("w3")
        for name in ("w3", "w1", "w2"):
            answers += group.until(name, all_by_owners)
        group.until("w1", lambda now: len({a.by for a in now}) == 3 and all_by_owners(now))
        group.processes["w2"].send_signal(signal.SIGSTOP)
        answers += group.until(
            "w1",
            lambda now: all_by_owners(now) and group.ports["w2"] not in {a.by for a in now},
            timeout_s=120.0,
        )
        group.processes["w2"].send_signal(signal.SIGCONT)
        for _ in range(20):  # its partitions have new owners, and it does not know yet
            answers += [group.ask("w2", key, only_here=True) for key in KEYS]
        answers += group.until("w2", all_by_owners)
        assert {a.status for a in answers} <= {0, 200, 503}
        assert {a.headers["Retry-After"] for a in answers if a.status == 503} <= {"1"}
        assert {a.role for a in answers if a.status == 200} == {"owner", "standby"}
        assert numbers.wrong(answers, BOUND_S) == []


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["ours", "stock"])
def test_a_table_that_is_restored_from_nothing_is_not_read(tmp_path: Path, assignor: str) -> None:
    """It answers 503 with Retry-After until its restore ends; stock returns partial rows."""
    with broker_process() as broker:
        app_id = f"cold-{time.time_ns()}"
        numbers = Numbers(broker.bootstrap, app_id, 4)
        numbers.prepare()
        numbers.fill(30_000)
        group = Readers(
            app_id,
            broker.bootstrap,
            tmp_path,
            replicas=0,
            assignor=assignor,
            settings={
                "faust_assigner_stale_reads_s": BOUND_S,
                "faust_assigner_batched_replay": False,
            },
        )
        try:
            group.start("w1")
            answers = group.until(
                "w1", lambda now: all(a.number == 30_000 for a in now), timeout_s=120.0
            )
        finally:
            group.stop()
    early = [a for a in answers if a.status == 200 and a.number != 30_000]
    if assignor == "stock":
        assert early, "if Faust restores tables before it answers, this can go"
        return
    assert early == []
    refused = [a for a in answers if a.status == 503]
    assert refused
    assert {a.headers["Retry-After"] for a in refused} == {"1"}
    assert all("Cannot answer for this key right now" in a.body for a in refused)


@pytest.mark.slow
def test_each_kind_of_route_finds_the_key(tmp_path: Path) -> None:
    """Keys in the path, in the query and in a windowed table, from owners and from standbys."""
    with readers(tmp_path, "w1", "w2") as (group, numbers):
        group.until("w1", lambda now: len({a.by for a in now}) == 2 and all_by_owners(now))
        for path in ("/latest?key={key}", "/recent/{key}"):
            by_owners = group.until("w1", all_by_owners, path=path)[-len(KEYS) :]
            here = group.until("w1", all_known, path=path, only_here=True)[-len(KEYS) :]
            assert {a.by for a in by_owners} == set(group.ports.values())
            assert {a.role for a in here} == {"owner", "standby"}
            assert numbers.wrong(by_owners, BOUND_S) == []
