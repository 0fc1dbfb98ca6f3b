"""Names that begin alike, numbers in names, empty settings, and pauses of zero."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.app.rebalance.warming import SHORT
from faust_assigner.deploy import judge as judge_module
from faust_assigner.deploy import play as play_module
from faust_assigner.deploy.judge import Budget, judge
from faust_assigner.deploy.play import (
    NoSuchWorker,
    Played,
    Question,
    _new_workers,
    play,
    stopped_by,
)
from faust_assigner.deploy.read import (
    _lags_of,
    _number_setting,
    _read_fleet,
    _read_worker,
    read_evidence,
)
from faust_assigner.deploy.report import CANNOT_TELL, NOT_SAFE
from faust_assigner.deploy.steps import Known, _seconds, _static_pause, size_of
from faust_assigner.settings import table
from faust_assigner.status.build import build
from faust_assigner.status.members import views_of
from faust_assigner.status.report import Copy
from faust_assigner.status.words import natural
from faust_assigner.wire.runs import Runs
from tests.support.status import LOG
from tests.unit.deploy.looks import SETTINGS, at_rest, evidence, look
from tests.unit.deploy.test_parts import move, recoveries, step
from tests.unit.deploy.test_render import report, shown
from tests.unit.deploy.test_rounds import fleet_of, joined


def test_the_loss_of_a_rack_is_not_the_loss_of_racks_with_a_longer_name() -> None:
    """A name that is only the beginning of a rack's name is no rack."""
    members = look(at_rest()).status.members
    racks = ("eu-1", "eu-10", None)
    placed = [replace(one, rack=rack) for one, rack in zip(members, racks, strict=True)]
    assert stopped_by(Question(kind="lose rack", rack="eu-1"), placed) == {"w0"}
    with pytest.raises(
        NoSuchWorker, match=r"no worker is in the rack 'eu'; the racks are eu-1, eu-10$"
    ):
        stopped_by(Question(kind="lose rack", rack="eu"), placed)


def test_workers_restart_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without a number comes before the same name with the number 0."""
    names = ["w10", "w", "w9", "w0", "a11", "a2"]
    assert sorted(names, key=natural) == ["a2", "a11", "w", "w0", "w9", "w10"]
    fleet = fleet_of(**{name: joined(name) for name in names})
    monkeypatch.setattr(
        play_module,
        "_event",
        lambda after, event, stopped: (Played(event=event, stopped=(), is_crash=False), after),
    )
    events = [one.event for one in play(fleet, Question(kind="rolling"), names)]
    assert events == [
        f"{name} {does}"
        for name in ("a2", "a11", "w", "w0", "w9", "w10")
        for does in ("stops", "is back")
    ]


def test_new_workers_join_the_racks_that_have_names() -> None:
    """A worker without a rack makes no rack."""
    racks = {"w0": "b", "w1": None, "w2": "a"}
    fleet = fleet_of(**{name: joined(name, rack_id=rack) for name, rack in racks.items()})
    assert [one.data.rack_id for one in _new_workers(fleet, 3)] == ["a", "b", "a"]
    alone = fleet_of(w0=joined("w0"))
    assert [one.data.rack_id for one in _new_workers(alone, 2)] == [None, None]


def test_the_recoveries_of_a_longer_topic_name_are_another_tables() -> None:
    """The table has no recovery of its own, so all tables count."""
    known = recoveries(("a-2", "standby", 10, 4.0), ("b", "standby", 10, 6.0))
    assert known.expected_s(["a"], 10, warm=True) == 6.0
    assert known.expected_s(["a-2"], 10, warm=True) == 4.0


def test_a_table_in_memory_is_found_by_its_whole_changelog() -> None:
    """A second table's changelog begins with the first one's name."""
    found = look(at_rest())
    status = SimpleNamespace(
        tables=(
            SimpleNamespace(changelog=LOG, store="rocksdb"),
            SimpleNamespace(changelog=f"{LOG}-2", store="memory"),
        )
    )
    views: Any = (SimpleNamespace(status=status), SimpleNamespace(status=None))
    made = replace(found, views=views, bytes_of={(LOG, 0): 7, (f"{LOG}-2", 0): 9})
    assert [size_of(made, (topic, 0)) for topic in (LOG, f"{LOG}-2")] == [7, 0]


def test_the_report_has_the_longest_pause_of_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an event there is no pause; an unknown pause makes the longest unknown."""
    found = look(at_rest())
    played = [Played(event=str(n), stopped=(), is_crash=False) for n in range(3)]
    monkeypatch.setattr(judge_module, "play", lambda *given: played)

    def longest(*pauses: float | None) -> float | None:
        told = dict(zip(map(str, range(3)), pauses, strict=True))
        monkeypatch.setattr(
            judge_module,
            "step_of",
            lambda seen, one, known: step(event=one.event, pause_s=told[one.event]),
        )
        return judge(found, Question(kind="rolling"), Budget(), Known()).pause_s

    assert longest(2.0, 7.5, 3.0) == 7.5
    assert longest(2.0, None, 3.0) is None


def test_the_lag_of_a_copy_counts_even_if_it_is_only_an_upper_bound() -> None:
    """A worker of an older version reports positions at its join alone."""
    status = build(evidence(at_rest()))
    one = next(each for each in status.partitions if each.topic == LOG)
    copies = (
        Copy(member="w0", is_warmup=False, lag=12, seconds=None, is_measured=False),
        Copy(member="w1", is_warmup=True, lag=0, seconds=None, is_measured=True),
        Copy(member="w2", is_warmup=False, lag=None, seconds=None, is_measured=True),
    )
    placed = replace(status, partitions=(replace(one, copies=copies),))
    place = (LOG, one.partition)
    assert _lags_of(placed) == {"w0": {place: 12}, "w1": {place: 0}}


def test_an_empty_setting_has_its_default_and_another_text_is_named() -> None:
    """Kubernetes passes a variable without a value as an empty text."""
    assert _number_setting({"a": ""}, "a", 7) == _number_setting({}, "a", 7) == 7
    assert _number_setting({"a": "0"}, "a", 7) == 0
    settings = {**SETTINGS, "broker_session_timeout": "soon"}
    assert _seconds(look(at_rest(), settings=settings), "broker_session_timeout") is None
    assert _seconds(look(at_rest()), "broker_session_timeout") == 60.0
    assert _seconds(look(at_rest()), "missing") is None


def test_each_protocol_has_its_own_warm_up_policy() -> None:
    """The limit of a copy from nothing differs; standbys and generation are the leader's."""
    many = {**SETTINGS, table.ACCEPTABLE_RECOVERY_LAG.name: "90000"}
    found = evidence(at_rest(), settings=many)
    fleet = _read_fleet(found, views_of(found), build(found))
    limits = [one and one.acceptable_from_nothing for one in map(fleet.policy.get, (False, True))]
    assert limits == [90_000, SHORT]
    unlike = {**SETTINGS, "table_standby_replicas": "", table.WARMUPS.name: "0"}
    none = _read_fleet((more := evidence(at_rest(), settings=unlike)), views_of(more), build(more))
    assert (none.replicas, none.policy) == (0, {False: None, True: None})


def test_a_member_that_is_known_as_static_is_static() -> None:
    """The coordinator or another worker knows its instance id."""
    found = evidence(at_rest())
    view = views_of(found)[0]
    member = replace(view.member, instance_id="i-0")
    facts = TableFacts(frozenset({LOG}), {})
    worker = _read_worker(replace(view, member=member), {}, facts, found.ends)
    assert worker.data.instance_id == "i-0"
    assert Runs.of([1]) is not None


def test_a_restart_without_any_time_is_a_known_restart() -> None:
    """The worker is back at once."""
    found = _static_pause(["w1"], 60.0, 5.0, "state", 0.0)
    assert found == (0.0, "0 s until w1 is back; the group waits for 60 s (session timeout)")


def test_zero_bytes_and_a_pause_of_zero_are_shown() -> None:
    """Neither is unknown; an event without copies shows no size."""
    steps = (
        step(event="one", copies=3, copy_bytes=0, pause_s=0.0),
        step(event="two", copies=0, copy_bytes=0, pause_s=None),
        step(event="three", copies=2, copy_bytes=None, pause_s=2.5, moves=(move(),)),
    )
    lines = shown(report(steps=steps))
    rows = [line for line in lines if line.split()[:1] in (["one"], ["two"], ["three"])]
    assert rows == ["one 0 0 0 0 3, 0 B 0.0 s", "two 0 0 0 0 0 not known", "three 1 0 0 0 2 2.5 s"]


def test_only_an_unsafe_report_has_advice() -> None:
    """Without a failed check the advice asks for the missing data."""
    assert shown(report(verdict=CANNOT_TELL))[-1].startswith("Repeat with the missing data")
    assert shown(report(verdict=NOT_SAFE))[-1] == ""
    assert read_evidence(evidence(at_rest())).missing == ""
