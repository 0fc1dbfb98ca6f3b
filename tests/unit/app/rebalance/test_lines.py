"""The log lines of a round without problems: a line of the leader and a line of each worker."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from faust_assigner import Member, plan
from faust_assigner.app.ledger.rows import decision_rows
from faust_assigner.app.rebalance import fallback, leader
from faust_assigner.app.rebalance.findings import (
    MOST_NAMED,
    _list_names,
    _log_refused_claims,
    own_assignment_line,
)
from faust_assigner.app.rebalance.leader import leader_topic
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.app.rebalance.outcome import moved_tasks
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs
from tests.support.faust_group import WireGroup, make_app

LOG = "shop-totals-changelog"
TOPICS = {"orders": 6, LOG: 6, "clicks": 3}

Round = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture
def lines_of(caplog: pytest.LogCaptureFixture) -> Round:
    """Return a function that plays a round and returns the INFO lines of leader and workers."""
    caplog.set_level(logging.INFO)

    def play(found: WireGroup, leads: str | None = None) -> tuple[list[str], list[str]]:
        caplog.clear()
        found.rebalance(leads)
        ours = [
            r
            for r in caplog.records
            if r.name.startswith("faust_assigner") and r.levelno == logging.INFO
        ]
        return (
            [
                r.getMessage()
                for r in ours
                if r.name.endswith((".findings", ".leading")) and " members, " in r.getMessage()
            ],
            [r.getMessage() for r in ours if " members, " not in r.getMessage()],
        )

    return play


def member(found: WireGroup, name: str) -> None:
    """Add a worker with a table."""
    found.add(name, make_app(f"http://{name}:6066", tables=["totals"]), TOPICS)


def test_each_round_is_one_line_of_the_leader_and_one_of_each_worker(lines_of: Round) -> None:
    """The lines have the trigger and the numbers of tasks."""
    found = WireGroup(TOPICS)
    member(found, "m0")
    member(found, "m1")
    assert lines_of(found) == (
        ["Generation 0 (first): 2 members, 9 tasks, 0 moved, 0 cold, 0 off target; 9 placed"],
        [
            "Generation 0: 8 active and 3 standby partitions; of the active changelogs 0 warm, 3 cold",
            "Generation 0: 7 active and 3 standby partitions; of the active changelogs 0 warm, 3 cold",
        ],
    )
    by_leader, by_workers = lines_of(found)
    assert by_leader == [
        "Generation 1 (rejoin): 2 members, 9 tasks, 0 moved, 0 cold, 0 off target; 9 kept"
    ]
    assert [line.partition("; ")[2] for line in by_workers] == [
        "of the active changelogs 3 warm, 0 cold"
    ] * 2


def test_fausts_leader_topic_is_no_task(lines_of: Round) -> None:
    """The line would otherwise report one task more than the page shows."""
    app = make_app("http://m0:6066")
    found = WireGroup({"clicks": 3, leader_topic(app.conf.id): 1})
    found.add("m0", app, ["clicks", leader_topic(app.conf.id)])
    (by_leader,), _ = lines_of(found)
    assert by_leader.endswith(" 3 tasks, 0 moved, 0 cold, 0 off target; 3 placed")


def test_a_join_is_named_with_what_it_moves(lines_of: Round) -> None:
    """The new member has no state: its changelogs count as cold in both lines."""
    found = WireGroup(TOPICS)
    member(found, "m0")
    member(found, "m1")
    found.rebalance()
    member(found, "m2")
    (by_leader,), by_workers = lines_of(found, "m0")
    assert by_leader == (
        "Generation 1 (join): 3 members, 9 tasks, 3 moved, 2 cold, 0 off target; 6 kept, 3 moved"
    )
    assert by_workers[2].endswith("of the active changelogs 0 warm, 2 cold")


def test_a_death_promotes_standbys_and_says_what_is_off_target(lines_of: Round) -> None:
    """A promoted task is warm for its new owner and counts as promoted."""
    found = WireGroup(TOPICS)
    for name in ("m0", "m1", "m2"):
        member(found, name)
    found.rebalance()
    found.rebalance("m0")
    found.remove("m2")
    (by_leader,), by_workers = lines_of(found, "m0")
    plan = found.apps["m0"].assignor.last_round.plan
    assert by_leader.startswith("Generation 2 (leave): 2 members, 9 tasks, 2 moved, 0 cold, ")
    assert f"{plan.report()['off_target']} off target; 6 kept, 1 placed, 2 promoted" in by_leader
    assert all(line.endswith(" 0 cold") for line in by_workers)


def test_after_a_death_log_and_ledger_say_the_same_number_of_moves(lines_of: Round) -> None:
    """The tasks that standbys of a dead owner take over count as moved in both, once each."""
    found = WireGroup(TOPICS)
    for name in ("m0", "m1", "m2"):
        member(found, name)
    found.rebalance()
    found.remove("m1")
    (by_leader,), _ = lines_of(found, "m0")
    made = found.apps["m0"].assignor.last_round
    rows = [*decision_rows(made.inputs, made.plan, at=0.0, config={})]
    moved = {
        (row["partition"], "clicks" in row["topic"])
        for table, row in rows
        if table == "assignment" and row["role"] == "active" and row["moved"]
    }
    assert rows[0][1]["moves"] == len(moved) > 0
    assert f" {len(moved)} moved, 0 cold" in by_leader


def test_a_topic_without_work_is_no_move() -> None:
    """Faust's leader topic is such a topic."""
    members = [Member("a", ["orders", "leads"])]
    made = plan(members, {"orders": 4, "leads": 2}, weightless={"leads"})
    all_moved = np.ones(made.layout.tasks, dtype=np.bool_)
    assert made.layout.tasks == 6
    assert moved_tasks(Mock(layout=made.layout, flat_moved=all_moved)) == 4


@pytest.mark.parametrize(
    ("event", "why"),
    [("nothing", "rejoin"), ("join", "join"), ("leave", "leave"), ("replace", "join+leave")],
)
def test_a_new_leader_says_what_changed(lines_of: Round, event: str, why: str) -> None:
    """A new leader has no earlier decision and compares with its last assignment."""
    found = WireGroup(TOPICS)
    for name in ("m0", "m1", "m2"):
        member(found, name)
    found.rebalance("m0")
    if event in ("leave", "replace"):
        found.remove("m0")
    if event in ("join", "replace"):
        member(found, "m3")
    (by_leader,), _ = lines_of(found, "m1")
    assert f"({why}): " in by_leader


def test_a_newcomer_that_leads_says_that_it_joined(lines_of: Round) -> None:
    """The new member has no assignment; the other members' claims show an existing group."""
    found = WireGroup(TOPICS)
    member(found, "m0")
    member(found, "m1")
    found.rebalance("m0")
    member(found, "m2")
    (by_leader,), _ = lines_of(found, "m2")
    assert "(join): " in by_leader


def test_a_round_dealt_out_says_so(lines_of: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is the same if the planner or the whole decision fails."""
    found = WireGroup(TOPICS)
    member(found, "m0")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(leader, "plan", broken)
    assert lines_of(found)[0] == [
        "Generation 0 (first): 1 members, partitions assigned without regard to their former owners"
    ]
    monkeypatch.setattr("faust_assigner.app.rebalance.leading.decide", broken)
    assert lines_of(found)[0] == [
        "1 members, partitions assigned without regard to their former owners"
    ]
    assert fallback.plain_metadata(found.apps["m0"])


def test_a_changelog_is_warm_that_was_owned_copied_or_on_disk() -> None:
    """Partitions count; without claims all changelogs are cold."""
    memory = Memory(None, 3, {LOG: Runs.of(range(5)), "orders": Runs.of(range(5))})
    said = JoinData("http://w", {LOG: Runs.of([0])}, {LOG: Runs.of([1])}, {LOG: Runs.of([2])})
    own = TableFacts(frozenset({LOG}))
    assert own_assignment_line(memory, said, own).endswith(
        "of the active changelogs 3 warm, 2 cold"
    )
    assert own_assignment_line(memory, None, own).endswith(
        "of the active changelogs 0 warm, 5 cold"
    )


@pytest.mark.parametrize(("count", "more"), [(MOST_NAMED, None), (MOST_NAMED + 1, " and 1 more")])
def test_only_what_is_not_named_is_counted(
    count: int, more: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Long lists of names and of refused members are shortened alike."""
    assert _list_names(map(str, range(count))).partition(str(MOST_NAMED - 1))[2] == (more or "")
    counters, refused = Counter[str](), dict.fromkeys(map(str, range(count)), "why")
    _log_refused_claims(Mock(refused=refused, inputs=Mock(generation=3)), counters)
    assert len(caplog.records) == count
    assert ("1 more members" in caplog.text) == (more is not None)
    assert counters["refused_members"] == count


def test_a_report_that_fails_costs_nobody_its_partitions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The report affects the log only."""
    found = WireGroup(TOPICS)
    member(found, "m0")
    monkeypatch.setattr("faust_assigner.app.rebalance.findings.own_assignment_line", None)
    found.rebalance()
    assert len(found.actives("orders")) == 6
    assert "Could not report the assignment to its observers" in caplog.text


def test_every_member_is_told_what_the_round_decided() -> None:
    """Trigger and counts reach all members; the joined URLs are in the leader's answer alone."""
    found = WireGroup(TOPICS)
    for name in ("m0", "m1"):
        member(found, name)
    found.rebalance("m0")
    member(found, "m2")
    found.apps["m0"]._consumer = SimpleNamespace(
        _thread=SimpleNamespace(
            _consumer=SimpleNamespace(_coordinator=SimpleNamespace(member_id="m0", generation=1))
        )
    )
    found.rebalance("m0")
    told = {m: app.assignor._memory.answer.outcome for m, app in found.apps.items()}
    assert {(o.trigger, o.members, o.tasks, o.moved) for o in told.values()} == {("join", 3, 9, 3)}
    assert {m: (o.leads, len(o.joined)) for m, o in told.items()} == {
        "m0": (True, 1),
        "m1": (False, 0),
        "m2": (False, 0),
    }
    assert all(abs(o.decided_at - time.time()) < 60 for o in told.values())
    found.apps["m0"]._consumer = None
