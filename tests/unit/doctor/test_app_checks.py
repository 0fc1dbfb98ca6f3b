"""Each code of an app's setup: a setup with the fault, and the nearest setup without the fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.doctor.app_checks import Deployment, check_app
from faust_assigner.doctor.codes import APP, CODES, Finding
from faust_assigner.doctor.facts import AppFacts, Table
from faust_assigner.doctor.topics import TopicFacts

LOG = "shop-totals-changelog"
TOTALS = Table(name="totals", changelog=LOG, partitions=6)
GIB = 2**30
#: An app without findings.
GOOD = AppFacts(
    app_id="shop",
    assignor="faust_assigner.app.assignor:PartitionAssignor",
    brokers=("kafka-1",),
    url="http://shop-0:6066",
    tables=(TOTALS,),
    sources={"orders": 6},
    poll_s=1000.0,
    ledger="/var/lib/shop/ledger",
    disk_free_bytes=10 * GIB,
    stores_bytes=(GIB,),
)
TOPICS = {
    "orders": TopicFacts(partitions=6, cleanup_policy="delete", retention_ms=604_800_000),
    LOG: TopicFacts(partitions=6, cleanup_policy="compact"),
}
WINDOWED = replace(TOTALS, is_windowed=True, expires_s=3600.0)


def codes(
    facts: AppFacts,
    deployment: Deployment | None = None,
    topics: dict[str, TopicFacts] | None = None,
) -> list[str]:
    """Return the codes of the findings, each with its level."""
    found = check_app(facts, deployment or Deployment(), TOPICS if topics is None else topics)
    return [f"{one.code} {one.level}" for one in found]


def of(code: str, facts: AppFacts, **options: Any) -> list[Finding]:
    """Return the findings of a code."""
    deployment = Deployment(**options)
    return [one for one in check_app(facts, deployment, TOPICS) if one.code == code]


def test_a_good_app_has_no_findings() -> None:
    """The caller gives the number of workers, the racks and the grace period."""
    assert codes(GOOD, Deployment(workers=6, racks=3, grace_s=30.0)) == ["FA015 warning"]
    placed = replace(GOOD, rack="az-a")
    assert codes(placed, Deployment(workers=6, racks=3, grace_s=30.0)) == []


def with_log(**changes: Any) -> dict[str, TopicFacts]:
    """Return the topics with the changelog's facts changed."""
    return {**TOPICS, LOG: replace(TOPICS[LOG], **changes)}


#: The change with the fault; the expected finding; the nearest change without the fault.
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("stock assignor", {"is_ours": False}, "FA001 error", {"is_ours": True}),
    ("no entry point", {"has_fixup": False}, "FA001 error", {"has_fixup": True}),
    ("confluent driver", {"is_our_driver": False}, "FA001 error", {"is_our_driver": True}),
    (
        "loopback",
        {"url": "http://localhost:6066"},
        "FA004 warning",
        {"url": "http://localhost:6066", "brokers": ("127.0.0.1",)},
    ),
    (
        "memory",
        {"tables": (replace(TOTALS, in_memory=True),)},
        "FA005 warning",
        {"tables": (TOTALS,)},
    ),
    ("misspelled", {"wrong_settings": ("X: did you mean Y?",)}, "FA006 error", {}),
    ("late heartbeat", {"heartbeat_s": 60.0}, "FA007 error", {"heartbeat_s": 20.0}),
    ("rare heartbeat", {"heartbeat_s": 21.0}, "FA007 warning", {"heartbeat_s": 19.0}),
    (
        "short session",
        {"session_s": 5.0, "heartbeat_s": 1.0},
        "FA007 warning",
        {"session_s": 6.0, "heartbeat_s": 1.0},
    ),
    ("long session", {"session_s": 1801.0}, "FA007 warning", {"session_s": 1800.0}),
    ("short poll", {"poll_s": 59.0}, "FA007 warning", {"poll_s": None}),
    ("another version", {"misfits": ("aiokafka 0.9",)}, "FA013 error", {}),
    ("cooperative off", {"is_cooperative": False}, "FA014 warning", {"is_cooperative": True}),
    ("repairs off", {"has_repairs": False}, "FA014 warning", {"has_repairs": True}),
    ("full disk", {"disk_free_bytes": GIB - 1}, "FA016 error", {"disk_free_bytes": GIB}),
    ("no ledger", {"ledger": None}, "FA017 note", {"ledger": "/x"}),
    ("no disk", {"ledger": None}, "FA017 note", {"ledger": "topic:shop-ledger"}),
]


@pytest.mark.parametrize(
    ("bad", "code", "good"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_fault_is_found_and_its_neighbour_is_not(
    bad: dict[str, Any], code: str, good: dict[str, Any]
) -> None:
    """Only the expected code is reported, and only for the faulty setup."""
    assert codes(replace(GOOD, **bad)) == [code]
    assert codes(replace(GOOD, **good)) == []


@pytest.mark.parametrize(
    ("table", "changes", "level"),
    [
        (TOTALS, {"cleanup_policy": "delete", "retention_ms": 604_800_000}, "error"),
        (TOTALS, {"cleanup_policy": "compact,delete", "retention_ms": 86_400_000}, "error"),
        (TOTALS, {"cleanup_policy": "delete", "retention_ms": -1}, "warning"),
        (TOTALS, {"cleanup_policy": "compact,delete", "retention_ms": -1}, None),
        (TOTALS, {"cleanup_policy": "compact"}, None),
        (TOTALS, {"cleanup_policy": ""}, None),
        (WINDOWED, {"cleanup_policy": "compact,delete", "retention_ms": 3_600_000}, None),
        (WINDOWED, {"cleanup_policy": "compact,delete", "retention_ms": 3_599_999}, "error"),
        (WINDOWED, {"cleanup_policy": "delete", "retention_ms": 7_200_000}, "warning"),
        (
            replace(WINDOWED, expires_s=None),
            {"cleanup_policy": "compact,delete", "retention_ms": 60_000},
            "warning",
        ),
        (WINDOWED, {"cleanup_policy": "compact"}, None),
    ],
)
def test_a_changelog_must_keep_its_rows(
    table: Table, changes: dict[str, Any], level: str | None
) -> None:
    """A table's changelog keeps rows for ever; a windowed table's until its windows expire."""
    found = codes(replace(GOOD, tables=(table,)), topics=with_log(**changes))
    assert found == ([] if level is None else [f"FA008 {level}"])


def test_a_changelog_has_the_partitions_of_a_source() -> None:
    """The cluster's count has priority over the code's count; some tables may have any count."""
    assert codes(GOOD, topics=with_log(partitions=8)) == ["FA009 error"]
    assert codes(replace(GOOD, tables=(replace(TOTALS, partitions=8),)), topics={}) == [
        "FA009 error"
    ]
    assert codes(GOOD, topics={}) == []
    for kind in ("is_global", "uses_partitioner"):
        free = replace(TOTALS, partitions=1, **{kind: True})
        assert codes(replace(GOOD, tables=(free,)), topics=with_log(partitions=1)) == []
    unknown = replace(GOOD, sources={"orders": None}, tables=(replace(TOTALS, partitions=8),))
    assert codes(unknown, topics={}) == [], "the source's count is not known"


def test_workers_beyond_the_tasks_are_idle() -> None:
    """Topics with equal counts share their tasks; a topic without a count has the default count."""
    assert of("FA010", GOOD, workers=6) == []
    (found,) = of("FA010", GOOD, workers=7)
    assert "7 workers for 6 tasks: 1 own no task" in found.text
    two = replace(GOOD, sources={"orders": 6, "clicks": 3})
    assert of("FA010", two, workers=9) == []
    assert codes(replace(GOOD, sources={"x": None}), Deployment(workers=9), {}) == ["FA010 warning"]
    assert codes(replace(GOOD, sources={"x": None}), Deployment(workers=8), {}) == []


@pytest.mark.parametrize(
    ("instance_id", "workers", "fires"),
    [
        ("shop", 3, True),
        ("shop", 2, True),
        ("shop", 1, False),
        ("shop-17", 3, False),
        ("shop@pod-4", 3, False),
        (None, 3, False),
    ],
)
def test_an_instance_id_that_is_a_fixed_text_is_shared(
    instance_id: str | None, workers: int, fires: bool
) -> None:
    """An id made from the environment or from the host's name differs on each worker."""
    facts = replace(GOOD, instance_id=instance_id, environment=("17", "", "xyz"), host="pod-4")
    assert bool(of("FA002", facts, workers=workers)) == fires


@pytest.mark.parametrize(
    ("changes", "grace", "level"),
    [
        ({}, 23.0, None),
        ({}, 22.0, "warning"),
        ({}, 8.0, "error"),
        ({"leave_s": 60.0}, 70.0, "warning"),
        ({"instance_id": "shop-0", "host": "shop-0"}, 15.0, None),
        ({"is_cooperative": False, "instance_id": None}, 15.0, None),
        ({"has_repairs": False}, 15.0, None),
    ],
)
def test_the_supervisor_must_leave_time_for_the_hand_over(
    changes: dict[str, Any], grace: float, level: str | None
) -> None:
    """A static member and a member with eager rounds hand no partitions over."""
    found = of("FA007", replace(GOOD, **changes), grace_s=grace)
    assert [one.level for one in found] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("changes", "racks", "fires"),
    [
        ({"rack": "az-a"}, 2, False),
        ({"rack": "az-a"}, 1, True),
        ({"rack": "az-a", "replicas": 2}, 2, True),
        ({"rack": None}, 2, True),
        ({"rack": None, "replicas": 0}, 2, False),
        ({"rack": None, "tables": ()}, 2, False),
    ],
)
def test_copies_need_as_many_racks(changes: dict[str, Any], racks: int, fires: bool) -> None:
    """Each worker must also have a rack."""
    assert bool(of("FA015", replace(GOOD, **changes), racks=racks)) == fires


def test_each_code_of_an_app_is_fired_in_this_file() -> None:
    """Each new code needs a case here."""
    fired = {case[2].split()[0] for case in CASES}
    fired |= {"FA002", "FA008", "FA009", "FA010", "FA015"}
    assert fired == {code.code for code in CODES if APP in code.looks_at}


def test_a_loopback_url_is_a_fault_with_one_broker_elsewhere() -> None:
    """A broker on a remote host means that the group runs on several hosts."""
    facts = replace(GOOD, url="http://localhost:6066", brokers=("127.0.0.1", "kafka-1"))
    assert codes(facts) == ["FA004 warning"]


def test_a_changelog_is_compared_once_the_counts_of_all_sources_are_known() -> None:
    """The source of unknown count may be the table's own source."""
    facts = replace(
        GOOD, tables=(replace(TOTALS, partitions=4),), sources={"orders": 6, "clicks": None}
    )
    assert codes(facts, topics={}) == []
    assert codes(replace(facts, sources={"orders": 6}), topics={}) != []


def test_room_for_the_largest_partition_is_enough() -> None:
    """A worker restores partition by partition; its other partitions are on its disk already."""
    assert codes(replace(GOOD, disk_free_bytes=10 * GIB, stores_bytes=(6 * GIB, 6 * GIB))) == []


def test_the_missing_ledger_of_a_stock_worker_is_no_finding() -> None:
    """A stock worker has no ledger setting."""
    assert of("FA017", replace(GOOD, is_ours=False, ledger=None)) == []
    assert of("FA017", replace(GOOD, ledger=None)) != []


def test_a_poll_interval_of_the_length_of_a_rebalance_is_enough() -> None:
    """A worker that waits for the end of a rebalance is idle no longer than the poll interval."""
    assert of("FA007", replace(GOOD, poll_s=60.0, rebalance_s=60.0)) == []
    assert of("FA007", replace(GOOD, poll_s=59.0, rebalance_s=60.0)) != []
