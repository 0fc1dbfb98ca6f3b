"""Findings about instance ids, records and idle members where two sources of a fact differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.cli import pipeline
from faust_assigner.doctor import group_checks, table_checks
from faust_assigner.doctor.codes import WARNING
from faust_assigner.doctor.topics import TopicFacts


def look(*processes: tuple[str, str, int]) -> Any:
    """Return a look with workers: (instance id, host, process id)."""
    heard = {
        str(n): SimpleNamespace(
            status=SimpleNamespace(instance_id=name, app="shop", host=host, pid=pid)
        )
        for n, (name, host, pid) in enumerate(processes)
    }
    return SimpleNamespace(heard=heard, group=SimpleNamespace(group_id="shop"))


def test_an_instance_id_has_one_finding_from_its_processes_or_from_its_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two known processes go before a replaced member; a silent worker has only the latter."""
    taken = {"both": "replaced", "silent": "replaced too", "alone": "replaced as well"}
    monkeypatch.setattr(group_checks, "_taken_over_ids", lambda facts, views: taken)
    facts: Any = SimpleNamespace(
        evidence=look(("both", "h1", 7), ("alone", "h1", 9)),
        later=look(("both", "h2", 7), ("fine", "h3", 1)),
    )
    found = list(group_checks._check_instance_ids(facts, []))
    assert [(one.subject, one.text, one.level == WARNING) for one in found] == [
        ("alone", "replaced as well", True),
        ("both", "two processes have it: process 7 on h1, process 7 on h2", False),
        ("silent", "replaced too", True),
    ]


@pytest.mark.parametrize(("more", "is_near"), [(0, False), (1, True)])
def test_a_record_is_near_its_smallest_limit_above_four_fifths(more: int, is_near: bool) -> None:
    """The bytes of all members count, and any worker's own limit."""

    def member(size: int, limit: str) -> Any:
        told = {"settings": {"FAUST_ASSIGNER_GROUP_RECORD_BYTES": limit}, "counters": {}}
        return SimpleNamespace(name="w", member=SimpleNamespace(record_bytes=size), **told)

    views = [member(300, ""), member(500 + more, "1000"), member(0, "x")]
    found = list(group_checks._check_record_size(SimpleNamespace(record_bytes=5_000), views))  # type: ignore[arg-type]
    assert bool(found) is is_near


def test_topics_with_equal_counts_are_one_set_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changelogs and Faust's leader topic have no tasks of their own."""
    monkeypatch.setattr(table_checks, "changelogs_of", lambda evidence, views: {"log"})
    counts = {"a": 4, "b": 4, "c": 2, "log": 9, "shop-__assignor-__leader": 1}
    facts: Any = SimpleNamespace(
        evidence=None, topics={name: TopicFacts(partitions=n) for name, n in counts.items()}
    )
    views = [SimpleNamespace(name=f"w{n}", tables=(), status=None, counters={}) for n in range(8)]
    found = list(table_checks.check_tables(facts, views))  # type: ignore[arg-type]
    assert [one.text for one in found] == ["8 members for 6 tasks: 2 own no task"]


def test_a_session_has_the_settings_of_all_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several histories may have different formats."""
    held: list[Any] = []

    class Held:
        def __init__(self, *given: Any) -> None:
            held.append(given)

        def __enter__(self) -> None:
            """Begin."""

        def __exit__(self, *_: object) -> None:
            """End."""

    where = "faust_assigner.pipeline"
    monkeypatch.setattr(f"{where}.session.held_session", Held)
    monkeypatch.setattr(f"{where}.jars.cached_connector_jars", lambda: ["k.jar"])
    monkeypatch.setattr(f"{where}.history.lakehouse.settings_of", lambda name: {name: "on"})
    history = [{"format": "iceberg"}, {"format": "delta"}]
    with pipeline._spark_session({"packages": "a:b,,c:d", "master": "x"}, history):
        assert held == [("x", ["k.jar"], ("a:b", "c:d"), {"iceberg": "on", "delta": "on"})]
