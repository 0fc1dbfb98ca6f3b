"""The doctor at its limits: a value at the limit and the values beside it, with the whole finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.doctor.app_checks import Deployment, check_app
from faust_assigner.doctor.facts import AppFacts, Table
from faust_assigner.doctor.group_checks import _check_record_size, _times_of, check_group_grace
from faust_assigner.doctor.times import Times, check_grace, check_times
from faust_assigner.doctor.topics import TopicFacts, check_changelog, check_partitions
from faust_assigner.status.members import views_of
from faust_assigner.status.words import list_names, size
from tests.support.status import LOG, MadeGroup, group
from tests.unit.doctor.test_group_checks import SETTINGS, facts, of, settings


def levels(found: Any) -> list[str]:
    """The levels of findings."""
    return [one.level for one in found]


@pytest.mark.parametrize(
    ("times", "bounds", "found"),
    [
        ((3.0, 9.0, None, 60.0), None, []),
        ((3.1, 9.0, None, 60.0), None, ["warning"]),
        ((8.9, 9.0, 60.0, 60.0), None, ["warning"]),
        ((9.0, 9.0, 59.9, 60.0), None, ["error", "warning"]),
        ((1.0, 6.0, 0.0, 0.0), None, []),
        ((1.0, 5.9, 0.0, 0.1), None, ["warning", "warning"]),
        ((1.0, 1800.0, None, 9e9), None, []),
        ((1.0, 1801.0, None, 1.0), None, ["warning"]),
        ((1.0, 5.9, None, 1.0), (5.9, 7.0), []),
        ((1.0, 7.1, None, 1.0), (5.9, 7.0), ["error"]),
    ],
)
def test_times_at_their_limits_work_together(times: Any, bounds: Any, found: list[str]) -> None:
    """A third of the session, both ends of the brokers' limits, and equal times are enough."""
    heartbeat, session, poll, rebalance = times
    given = Times(heartbeat_s=heartbeat, session_s=session, poll_s=poll, rebalance_s=rebalance)
    assert levels(check_times(given, subject="w", bounds_s=bounds)) == found


@pytest.mark.parametrize(
    ("grace", "found"),
    [(23.0, []), (22.9, ["warning"]), (8.1, ["warning"]), (8.0, ["error"]), (1.0, ["error"])],
)
def test_a_grace_is_enough_for_the_hand_over_and_the_end(grace: float, found: list[str]) -> None:
    """Without time after the hand-over the worker is killed in any case."""
    assert levels(check_grace(grace, 8.0, subject="w")) == found


def changelog(
    policy: str,
    retention: int | None,
    expires: float | None,
    *,
    windowed: bool,
    sets: bool = False,
) -> Any:
    """The level and the end of each finding about a changelog."""
    topic = TopicFacts(partitions=1, cleanup_policy=policy, retention_ms=retention)
    found = check_changelog("log", topic, is_windowed=windowed, is_set=sets, expires_s=expires)
    return [(one.level, one.text.partition(": ")[0]) for one in found]


def test_a_changelog_loses_rows_if_deletion_comes_before_their_end() -> None:
    """A retention of zero deletes everything; below zero nothing; equal times lose nothing."""
    plain = "cleanup.policy is compact , delete"
    assert changelog("compact , delete", 0, None, windowed=False) == [("error", plain)]
    assert changelog("compact , delete", -1, None, windowed=False) == []
    assert changelog("compact,delete", None, None, windowed=False) == []
    assert changelog("compact", 5, None, windowed=False) == []
    assert changelog(" , ", 5, None, windowed=False) == []
    assert changelog("compact,delete", 90_000, 90.0, windowed=True) == []
    assert changelog("compact,delete", 0, 0.5, windowed=True) == [
        ("error", "retention.ms is 0 s, and windows expire after 0.5 s")
    ]
    days = "the table's windows never expire, and rows older than 1 days are deleted"
    assert changelog("compact,delete", 86_400_000, None, windowed=True) == [("warning", days)]
    without = "cleanup.policy is delete, without compact"
    assert changelog("delete", 90_001, 90.0, windowed=True) == [("warning", without)]
    assert changelog("delete", -1, None, windowed=False) == [("warning", without)]
    assert changelog("delete", 9, None, windowed=False) == [("error", "cleanup.policy is delete")]


def test_a_changelog_of_sets_keeps_each_operation() -> None:
    """The key of a record is an operation and a set, so compaction removes elements."""
    for windowed in (False, True):
        (found,) = changelog("compact", None, 90.0, windowed=windowed, sets=True)
        assert found == ("error", "cleanup.policy is compact, and the table has sets")
    assert changelog("delete", -1, None, windowed=False, sets=True) == []
    assert changelog("", 5, None, windowed=False, sets=True) == []
    deleted = ("error", "cleanup.policy is delete")
    assert changelog("delete", 5, None, windowed=False, sets=True) == [deleted]
    assert changelog("delete", 90_000, 90.0, windowed=True, sets=True) == []
    short = ("error", "retention.ms is 89 s, and windows expire after 90 s")
    assert changelog("delete", 89_000, 90.0, windowed=True, sets=True) == [short]


def test_a_changelog_must_be_as_wide_as_one_of_its_sources() -> None:
    """Without a source there is nothing to compare."""
    assert list(check_partitions("log", 3, {})) == []
    assert list(check_partitions("log", 3, {"b": 2, "a": 3})) == []
    (found,) = check_partitions("log", 3, {"b": 2, "a": 4})
    assert (found.subject, found.text) == (
        "log",
        "3 partitions, and no consumed topic has as many (a: 4, b: 2)",
    )


APP = AppFacts(
    app_id="shop",
    ledger="x",
    tables=(Table(name="t", changelog="log"),),
    sources={"a": 3, "b": None, "c": 3},
    default_partitions=5,
    replicas=2,
    rack="r",
    disk_free_bytes=7,
    stores_bytes=(3, 7, 5),
    instance_id="pod-x",
    environment=("", "zone"),
    host="pod",
)


def app_codes(given: AppFacts = APP, topics: Any = None, **deployment: Any) -> list[str]:
    """The codes of the findings about an app, in order."""
    return [one.code for one in check_app(given, Deployment(**deployment), topics)]


def test_an_app_at_its_limits_has_no_findings() -> None:
    """As many workers as tasks of different counts, a rack for each copy, and room for the largest table."""
    assert app_codes(workers=8, racks=3, grace_s=15.0) == []
    assert app_codes(workers=9) == ["FA010"]
    assert app_codes(racks=2) == ["FA015"]
    assert app_codes(replace(APP, rack=None), racks=1) == ["FA015"]
    assert app_codes(replace(APP, rack=None), racks=3) == ["FA015"]
    assert app_codes(replace(APP, rack=None, replicas=1), racks=3) == ["FA015"]
    assert app_codes(replace(APP, rack=None, replicas=0), racks=3) == []
    assert app_codes(replace(APP, tables=()), racks=1) == []
    assert app_codes(replace(APP, disk_free_bytes=6)) == ["FA016"]
    assert app_codes(replace(APP, disk_free_bytes=0)) == ["FA016"]
    assert app_codes(replace(APP, disk_free_bytes=0, stores_bytes=())) == []
    assert app_codes(replace(APP, instance_id=None), grace_s=15.0) == ["FA007"]
    assert app_codes(replace(APP, instance_id=None), grace_s=23.0) == []
    assert app_codes(workers=0) == []


def test_the_topics_of_the_cluster_go_before_the_apps_own_counts() -> None:
    """Sources without a count leave a table's width unknown; a global table may have any width."""
    wide = replace(APP, sources={"a": 3}, tables=(Table(name="t", changelog="log", partitions=4),))
    assert app_codes(wide) == ["FA009"]
    assert app_codes(wide, {"a": TopicFacts(partitions=4)}) == []
    assert app_codes(wide, {"log": TopicFacts(partitions=3)}) == []
    assert app_codes(replace(wide, sources={"a": 3, "b": None})) == []
    assert app_codes(
        replace(wide, sources={"a": 3, "b": None}), {"b": TopicFacts(partitions=9)}
    ) == ["FA009"]
    every = replace(wide.tables[0], is_global=True)
    assert app_codes(replace(wide, tables=(every,))) == []
    assert app_codes(replace(wide, tables=(every, *wide.tables))) == ["FA009"]


@pytest.mark.parametrize(
    ("workers", "instance_id", "found"),
    [
        (2, "fixed", ["FA002"]),
        (1, "fixed", []),
        (None, "fixed", []),
        (2, "in-zone-1", []),
        (2, "pod-7", []),
        (2, None, []),
    ],
)
def test_an_id_of_two_workers_must_name_its_worker(
    workers: int | None, instance_id: str | None, found: list[str]
) -> None:
    """The id has a value of the environment or the host's name; empty values name no worker."""
    assert app_codes(replace(APP, instance_id=instance_id), workers=workers) == found


def test_a_record_is_near_its_limit_above_four_fifths_of_the_least_limit() -> None:
    """The brokers' limit and each worker's own count; a limit that is no number is left out."""
    base = facts(group(2))
    views = [
        replace(view, member=replace(view.member, record_bytes=400 + n))
        for n, view in enumerate(views_of(base.evidence))
    ]
    assert list(_check_record_size(replace(base, record_bytes=1_002), views)) == []
    (found,) = _check_record_size(replace(base, record_bytes=1_001), views)
    assert found.text == "about 801 B of 1001 B, with 2 members"
    odd = {"m1": settings(FAUST_ASSIGNER_GROUP_RECORD_BYTES="x")}
    assert of("FA011", facts(group(2), odd)) == []
    led = {"m1": {"counters": {"directories_left_out": 1}}}
    (left,) = of("FA011", facts(group(2), led))
    assert left.text == "w1 as leader left out the directory of owners"


def test_workers_of_one_time_limit_share_a_finding_of_their_grace() -> None:
    """The shortest limit comes first; a limit that is no number hands nothing over."""
    given = ("9", "x", "9", "0.5")
    odd = {f"m{n}": settings(FAUST_ASSIGNER_LEAVE_S=one) for n, one in enumerate(given)}
    found = check_group_grace(facts(group(4), odd), 14.0)
    assert [
        (one.subject, one.level, one.text.split(":")[0].split("below the ")[1]) for one in found
    ] == [
        ("w1", "warning", "15 s that a stop may take"),
        ("w3", "warning", "15.5 s that a stop may take"),
        ("w0, w2", "warning", "24 s that a stop may take"),
    ]


def test_times_are_read_whole_or_not_at_all() -> None:
    """A worker may pause without limit."""
    assert _times_of(SETTINGS) == Times(
        heartbeat_s=3.0, session_s=60.0, poll_s=1000.0, rebalance_s=60.0
    )
    free = _times_of({**SETTINGS, "broker_max_poll_interval": ""})
    assert free is not None
    assert free.poll_s is None
    assert _times_of({**SETTINGS, "broker_session_timeout": ""}) is None
    assert _times_of({k: v for k, v in SETTINGS.items() if k != "broker_rebalance_timeout"}) is None


def test_sizes_and_lists_change_at_their_limits() -> None:
    """Four names are listed; 1,024 of a unit are one of the next."""
    sizes = (0, 1023, 1024, 1024**2 - 1024, 1024**2, 1024**4, 1536 * 1024**4)
    assert [size(one) for one in sizes] == [
        "0 B", "1023 B", "1.0 KiB", "1023.0 KiB", "1.0 MiB", "1.0 TiB", "1536.0 TiB",
    ]  # fmt: skip
    assert (list_names(list("dcba")), list_names(list("edcba"))) == (
        "d, c, b, a",
        "e, d, c, b and 1 more",
    )


def racked(*racks: str | None, copies: str) -> list[str]:
    """The texts about racks of a group of members with these racks."""
    made = MadeGroup()
    for n, rack in enumerate(racks):
        made.join(f"m{n}", rack_id=rack)
    odd = {f"m{n}": settings(table_standby_replicas=copies) for n in range(len(racks))}
    return [one.text for one in of("FA015", facts(made.round(), odd))]


def test_a_group_has_a_rack_for_each_copy() -> None:
    """Members without a rack are no rack; an unknown number of copies needs none."""
    assert racked("a", "b", "a", copies="1") == []
    assert racked("a", "b", "a", copies="2") == ["2 racks for 3 copies of each table"]
    assert racked("a", "b", None, copies="2") == [
        "no rack: w2; the other workers have a rack",
        "2 racks for 3 copies of each table",
    ]
    assert racked("a", "a", copies="0") == racked("a", "a", copies="x") == []
    assert racked(None, None, copies="2") == []


@pytest.mark.parametrize(
    ("partitions", "found"), [(3, []), (2, ["3 members for 2 tasks: 1 own no task"])]
)
def test_as_many_members_as_tasks_are_busy(partitions: int, found: list[str]) -> None:
    """Tables and the leader topic add no tasks, and neither do topics of an equal count."""
    counts = {"orders": partitions, "news": partitions, LOG: 9, "shop-__assignor-__leader": 1}
    topics = {name: TopicFacts(partitions=count) for name, count in counts.items()}
    assert [one.text for one in of("FA010", facts(group(3), topics=topics))] == found
