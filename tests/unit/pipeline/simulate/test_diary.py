"""Deaths, leaves and restarts of workers, derived from decisions and samples alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.ledger import encode
from faust_assigner.pipeline.ledgers.rows import accepted_rows
from faust_assigner.pipeline.simulate.diary import BRIEF_S, Diary
from faust_assigner.pipeline.simulate.facts import facts_of
from faust_assigner.pipeline.simulate.measured import RecoveryFact, calibrated
from faust_assigner.simulation.fleet import Costs, Event, Kind

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
SESSION_S = 30.0


def decided(at_s: float, trigger: str, *members: str | tuple[str, str]) -> dict[str, Any]:
    """Return a decision; a member is a member id or (member id, instance id)."""
    named = [member if isinstance(member, tuple) else (member, None) for member in members]
    return {
        "group_id": "shop",
        "decision_id": f"d{float(at_s)}",
        "ts": MONDAY + timedelta(seconds=at_s),
        "trigger": trigger,
        "session_timeout_s": SESSION_S,
        "members": [
            {"member_id": name, "rack": None, "capacity": 1.0, "epoch": 1, "instance_id": instance}
            for name, instance in named
        ],
    }


def told(*decisions: dict[str, Any], **seen: Sequence[tuple[str, float]]) -> tuple[Event, ...]:
    """Return the events; ``seen`` has, by decision id, the last sample of each member."""
    last_seen = {
        ("shop", f"d{float(name[1:])}", member): MONDAY + timedelta(seconds=at)
        for name, moments in seen.items()
        for member, at in moments
    }
    return Diary(decisions, last_seen).events()


def test_a_static_member_died_a_session_before_it_was_missed() -> None:
    """The ledger has a "leave" a session after any death, and never a crash."""
    start = decided(0, "first", ("m1", "w1"), ("m2", "w2"))
    assert told(start, decided(100, "leave", ("m2", "w2"))) == (Event(70.0, Kind.CRASH, "w1"),)


def test_a_static_member_that_returns_is_the_same_worker_however_late() -> None:
    """The member returns hours later with a new member id; it was down since a session before."""
    start = decided(0, "first", ("m1", "w1"), ("m2", "w2"))
    events = told(
        start,
        decided(100, "leave", ("m2", "w2")),
        decided(9_100, "join", ("m2", "w2"), ("m9", "w1")),
    )
    assert events == (Event(70.0, Kind.BOUNCE, "w1", 9_030.0),)


def test_a_static_member_under_a_new_id_was_restarted_within_its_session() -> None:
    """The group did not notice the restart: there is no join and no crash."""
    start = decided(0, "first", ("m1", "w1"), ("m2", "w2"))
    assert told(start, decided(100, "join+leave", ("m9", "w1"), ("m2", "w2"))) == (
        Event(100.0 - BRIEF_S, Kind.RESTART, "w1", BRIEF_S),
    )


def test_a_new_instance_is_a_join() -> None:
    """The join is no return of another worker."""
    start = decided(0, "first", ("m1", "w1"), ("m2", "w2"))
    events = told(
        start, decided(100, "leave", ("m2", "w2")), decided(110, "join", ("m2", "w2"), ("m3", "w3"))
    )
    assert events == (Event(70.0, Kind.CRASH, "w1"), Event(110.0, Kind.JOIN, "w3"))


def test_a_member_that_fell_silent_for_a_session_crashed() -> None:
    """Its samples ended before another member's; a member with samples to the end left."""
    start, gone = decided(0, "first", "a", "b"), decided(100, "leave", "b")
    assert told(start, gone, d0=[("a", 68.0), ("b", 98.0)]) == (Event(70.0, Kind.CRASH, "a"),)
    assert told(start, gone, d0=[("a", 95.0), ("b", 98.0)]) == (Event(100.0, Kind.LEAVE, "a"),)
    assert told(start, gone, d0=[("a", 68.0), ("b", 66.0)]) == (Event(100.0, Kind.LEAVE, "a"),)
    assert told(start, gone) == (Event(100.0, Kind.LEAVE, "a"),)


def test_silence_is_measured_against_any_other_member_since_the_last_decision() -> None:
    """A third member is silent, too; the samples of an earlier decision do not count."""
    decisions = [decided(0, "first", "a", "b", "c"), decided(50, "join", "a", "b", "c")]
    decisions.append(decided(100, "leave", "b", "c"))
    early = [("a", 49.0), ("b", 2.0), ("c", 1.0)]
    found = told(*decisions, d0=early, d50=[("a", 68.0), ("b", 98.0), ("c", 51.0)])
    assert found == (Event(70.0, Kind.CRASH, "a"),)
    early = [("a", 3.0), ("b", 98.0), ("c", 99.0)]
    found = told(*decisions, d0=early, d50=[("a", 96.0), ("b", 98.0), ("c", 51.0)])
    assert found == (Event(100.0, Kind.LEAVE, "a"),)


def test_a_member_that_returned_under_a_new_id_stays_the_same_worker() -> None:
    """A later decision with the same members is neither a join nor a return."""
    events = told(
        decided(0, "first", "a", "b"),
        decided(10, "leave", "b"),
        decided(20, "join", "b", "m9"),
        decided(500, "rejoin", "b", "m9"),
        decided(900, "leave", "b"),
    )
    assert events == (Event(10.0, Kind.RESTART, "a", 10.0), Event(900.0, Kind.LEAVE, "a"))


def test_samples_are_laid_to_the_decision_that_stood(tmp_path: Path) -> None:
    """Each member's last sample before the next decision counts."""
    lines = []
    for number, (at, members) in enumerate([(0, "ab"), (100, "b")]):
        lines.append(
            encode(
                "decision",
                {
                    "group_id": "shop",
                    "decision_id": f"d{number}",
                    "ts": MONDAY.timestamp() + at,
                    "generation": number,
                    "trigger": "leave",
                    "policy": "ours",
                    "config": {},
                    "solve_ms": 1.0,
                    "session_timeout_s": SESSION_S,
                    "members": [
                        {"member_id": m, "rack": None, "capacity": 1.0, "epoch": 1} for m in members
                    ],
                },
            )
        )
        lines += [
            encode(
                "assignment",
                {
                    "group_id": "shop",
                    "decision_id": f"d{number}",
                    "topic": "t",
                    "partition": p,
                    "role": "active",
                    "member_id": members[p % len(members)],
                    "prev_member_id": None,
                    "moved": False,
                    "standby_hit": False,
                    "cold": False,
                },
            )
            for p in range(2)
        ]
    lines += [
        encode(
            "partition_sample",
            {
                "group_id": "shop",
                "ts": MONDAY.timestamp() + at,
                "topic": "t",
                "partition": p,
                "end_offset": 1,
                "committed_offset": 1,
                "bytes_in": 1,
                "records_in": 1,
                "cpu_ms": 0.0,
                "state_bytes": 0,
            },
        )
        for at in range(10, 130, 10)
        for p in range(2)
        if p == 1 or not 60 < at < 100
    ]
    (tmp_path / "w.jsonl").write_bytes(b"".join(lines))
    facts = facts_of(accepted_rows([str(tmp_path)]))
    seen = {key[1:]: (at - MONDAY).total_seconds() for key, at in facts.last_seen.items()}
    assert seen == {("d0", "a"): 60.0, ("d0", "b"): 90.0, ("d1", "b"): 120.0}
    assert Diary(facts.decisions, facts.last_seen).events() == (Event(70.0, Kind.CRASH, "a"),)


def test_costs_are_the_ledgers_own_where_it_measured_enough() -> None:
    """Replay is from cold recoveries, takeover from warm, the session from the last decision."""
    found = [
        RecoveryFact("shop", "d1", "a", 2.0, 9_000, True),
        RecoveryFact("shop", "d2", "b", 3.0, 11_000, True),
        *(
            RecoveryFact("shop", f"d{n}", "c", seconds, 10, False)
            for n, seconds in enumerate((0.5, 0.25, 4.0), 3)
        ),
    ]
    costs, measured = calibrated(Costs(), found, [decided(0, "first", "a")])
    assert (costs.replay_records_per_s, costs.warm_takeover_s) == (4_000.0, 0.5)
    assert costs.session_timeout_s == 30.0
    assert measured == ("replay_records_per_s", "session_timeout_s", "warm_takeover_s")
    little = [RecoveryFact("shop", "d1", "a", 1.0, 900, True)]
    assert calibrated(Costs(), little, []) == (Costs(), ())


@pytest.mark.parametrize("name", ["worker-2", "m2"])
def test_remove_takes_an_instance_id_and_names_who_there_is(tmp_path: Path, name: str) -> None:
    """People know the worker's name, not Kafka's member id."""
    decision = decided(0, "first", ("m1", "worker-1"), ("m2", "worker-2"))
    row = {
        **decision,
        "ts": MONDAY.timestamp(),
        "generation": 1,
        "policy": "ours",
        "config": {},
        "solve_ms": 1.0,
    }
    placed = [
        encode(
            "assignment",
            {
                "group_id": "shop",
                "decision_id": "d0.0",
                "topic": "t",
                "partition": p,
                "role": "active",
                "member_id": f"m{p + 1}",
                "prev_member_id": None,
                "moved": False,
                "standby_hit": False,
                "cold": False,
            },
        )
        for p in range(2)
    ]
    (tmp_path / "w.jsonl").write_bytes(encode("decision", row) + b"".join(placed))
    asked = ["simulate", "--ledger", str(tmp_path), "--replicas", "1", "--json", "--remove"]
    done = CliRunner().invoke(main, [*asked, name])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["what_if"][0]["members"] == 1
    unknown = CliRunner().invoke(main, [*asked, "worker-3"])
    assert (unknown.exit_code, "there are: worker-1, worker-2" in unknown.output) == (2, True), (
        unknown.output
    )
