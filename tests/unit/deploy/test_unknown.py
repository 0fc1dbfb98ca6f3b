"""Questions about a deploy without an answer, and the reasons."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.deploy import fleet as fleet_module
from faust_assigner.deploy.fleet import MOST_ROUNDS, NotKnown
from faust_assigner.deploy.pauses import Recoveries
from faust_assigner.deploy.play import Played
from faust_assigner.deploy.read import _read_fleet
from faust_assigner.deploy.report import CANNOT_TELL, UNKNOWN
from faust_assigner.deploy.steps import SESSION, Known, _longest_pause
from tests.unit.deploy.looks import asked, at_rest, look
from tests.unit.deploy.test_parts import move

OURS: Any = SimpleNamespace(is_ours=True, globals_={})
STOCK: Any = SimpleNamespace(is_ours=False, globals_={})


def view(name: str, said: Any = OURS, given: Any = "given") -> Any:
    """Return a group's member as the coordinator describes the member."""
    return SimpleNamespace(name=name, member=SimpleNamespace(said=said, given=given), status=None)


@pytest.mark.parametrize(
    ("views", "is_settled", "words"),
    [
        ([], True, "the group has no members"),
        ([view("a")], False, "the group is in state Odd, a rebalance is in progress"),
        ([view("b", STOCK), view("a", None), view("c")], True, "without this package: a, b$"),
        ([view("b", given=None), view("a"), view("c", given=None)], True, "unreadable: b, c$"),
        ([view("a")], True, "no worker answered"),
    ],
)
def test_a_group_that_cannot_be_planned_has_its_first_reason(
    monkeypatch: pytest.MonkeyPatch, views: list[Any], is_settled: bool, words: str
) -> None:
    """The reason names the group's members."""
    monkeypatch.setattr("faust_assigner.deploy.read._settings", lambda status, views: {})
    group = SimpleNamespace(is_settled=is_settled, state="Odd")
    evidence: Any = SimpleNamespace(group=group, ends={}, leaderless=frozenset())
    status: Any = SimpleNamespace(partitions=())
    with pytest.raises(NotKnown, match=words):
        _read_fleet(evidence, views, status)


def test_without_end_offsets_no_round_can_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of partitions come with the end offsets."""
    settings = {"table_standby_replicas": "1"}
    monkeypatch.setattr("faust_assigner.deploy.read._settings", lambda status, views: settings)
    for leaderless, words in (
        (frozenset(), "did not return end offsets"),
        ({("t", 4), ("t", 3)}, "partitions without a leader: t 3-4"),
    ):
        evidence: Any = SimpleNamespace(
            group=SimpleNamespace(is_settled=True), ends={}, leaderless=leaderless
        )
        with pytest.raises(NotKnown, match=words):
            _read_fleet(evidence, [view("a")], SimpleNamespace(partitions=()))  # type: ignore[arg-type]


def test_a_planner_that_fails_or_does_not_rest_leaves_the_answer_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report has the reason and no moves."""
    seen = look(at_rest())
    assert seen.fleet is not None
    failed = SimpleNamespace(plan=None, failure=ValueError("odd"))
    with monkeypatch.context() as patched:
        patched.setattr(fleet_module, "decide", lambda *_: failed)
        with pytest.raises(NotKnown, match=r"fails on this group: ValueError\('odd'\)"):
            seen.fleet.round()
        report = asked(seen)
        assert (report.verdict, report.moves, report.steps) == (CANNOT_TELL, 0, ())
        assert any("odd" in one.text for one in report.checks if one.state == UNKNOWN)
    rounds: list[Any] = []

    def again(fleet: Any) -> Any:
        rounds.append(fleet)
        return fleet, (), len(rounds) < MOST_ROUNDS + extra

    monkeypatch.setattr(fleet_module.Fleet, "round", again)
    extra = 0
    seen.fleet.at_rest()
    rounds.clear()
    extra = 1
    with pytest.raises(NotKnown, match="still moves tasks of this group"):
        seen.fleet.at_rest()


RESTORE = (move(pause_s=5.0), move(pause_s=2.0))
UNKNOWN_RESTORE = (move(pause_s=5.0), move(pause_s=None))


@pytest.mark.parametrize(
    ("more", "moves", "pause_s", "words"),
    [
        ({}, (), 0.0, "no task moves"),
        ({}, RESTORE, 5.0, "5.0 s to restore by the ledger"),
        ({}, (move(pause_s=0.0),), 0.0, "nothing to restore"),
        (
            {},
            UNKNOWN_RESTORE,
            None,
            "the restore time is unknown: the ledger has no comparable recovery",
        ),
        ({"origin": ""}, UNKNOWN_RESTORE, None, "no worker serves a ledger"),
        ({"is_crash": True}, RESTORE, 65.0, "60 s until the group notices"),
        ({"is_crash": True}, UNKNOWN_RESTORE, None, "60 s until the group notices"),
        ({"is_crash": True, "session": "x"}, RESTORE, None, "the session timeout is not known"),
        ({"eager": True}, RESTORE, None, "eager rebalances is unknown; 5.0 s to restore"),
        ({"leave_s": "0"}, RESTORE, None, "a stopping worker hands nothing over; 5.0 s"),
        ({"leave_s": "0", "stopped": ()}, RESTORE, 5.0, "5.0 s to restore"),
        ({"static": ("w1",), "restart_s": 9.0}, RESTORE, 9.0, "9 s until w1 is back"),
        ({"static": ("w1",)}, (), None, "as long as w1 takes to come back"),
        ({"static": ("w1",), "is_for_good": True, "restart_s": 9.0}, RESTORE, 65.0, "retired"),
        ({"static": ("w1",), "is_crash": True, "restart_s": 9.0}, RESTORE, 65.0, "notices"),
    ],
)
def test_the_downtime_of_an_event_is_its_longest_and_has_its_reason(
    more: dict[str, Any], moves: tuple[Any, ...], pause_s: float | None, words: str
) -> None:
    """An unknown part makes the whole pause unknown."""
    settings = {SESSION: more.get("session", "60"), "FAUST_ASSIGNER_LEAVE_S": "20"}
    settings["FAUST_ASSIGNER_LEAVE_S"] = more.get("leave_s", "20")
    fleet = SimpleNamespace(is_cooperative=not more.get("eager", False))
    seen: Any = SimpleNamespace(fleet=fleet, settings=settings)
    played = Played(
        event="e",
        stopped=more.get("stopped", ("w1",)),
        is_crash=more.get("is_crash", False),
        is_for_good=more.get("is_for_good", False),
    )
    known = Known(
        recoveries=Recoveries(origin=more.get("origin", "the ledger")),
        restart_s=more.get("restart_s"),
    )
    session_s = None if "session" in more else 60.0
    found = _longest_pause(seen, played, moves, more.get("static", ()), session_s, known)
    assert found[0] == pause_s
    assert words in found[1]
