"""``faust-assigner snapshot verify`` and ``gc``: their options, their catalog, and their exit codes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faust_assigner.pipeline import console
from faust_assigner.snapshots import catalog, changelog, retention, storage, verification
from faust_assigner.snapshots.changelog import UnknownTopicError
from faust_assigner.snapshots.verification import Verdict
from tests.unit.cli.looks import BROKER, run

pytestmark = pytest.mark.usefixtures("home")


class Catalog:
    """A catalog with snapshots of two changelogs, in each folder except ``empty``."""

    def __init__(self, place: str) -> None:
        self.place = place

    def topics(self) -> list[str]:
        """Return the changelogs."""
        return [] if self.place == "empty" else ["t", "u"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the requests of the commands, and the displayed answers."""
    found: list[Any] = []

    def collect(snapshots: Catalog, **options: Any) -> list[str]:
        found.append((snapshots.place, options))
        return ["gone"]

    def verify(snapshots: Catalog, topics: Any, logs: Any) -> list[Verdict]:
        found.append((snapshots.place, topics, logs))
        return []

    def look_at(connection: Any, topic: str) -> str:
        if topic == "u":
            raise UnknownTopicError("gone")
        return f"log of {topic} at {connection['bootstrap_servers']}"

    monkeypatch.setattr(catalog, "Catalog", Catalog)
    monkeypatch.setattr(storage, "open_storage", lambda url: url)
    monkeypatch.setattr(retention, "collect_garbage", collect)
    monkeypatch.setattr(verification, "verify", verify)
    monkeypatch.setattr(changelog, "look_at", look_at)
    monkeypatch.setattr(
        console, "show_removals", lambda removed, **how: found.append((removed, how))
    )
    monkeypatch.setattr(
        console, "show_verdicts", lambda verdicts, **how: found.append((verdicts, how))
    )
    return found


GC = {"keep": 2, "topics": None, "dry_run": False, "max_age_ms": None, "grace_ms": 3_600_000}


@pytest.mark.parametrize(
    ("options", "place", "changes"),
    [
        (["gc", "--to", "d"], "d", {}),
        (["gc", "d"], "d", {}),
        (["gc", "e", "--to", "d"], "e", {}),
        (["--to", "d", "gc"], "d", {}),
        (["--to", "d", "gc", "--to", "e"], "e", {}),
        (["gc", "d", "--topic", "t"], "d", {"topics": ["t"]}),
        (["--topic", "u", "gc", "d"], "d", {"topics": ["u"]}),
        (["--topic", "u", "gc", "d", "--topic", "t"], "d", {"topics": ["t"]}),
        (["gc", "d", "--keep", "5"], "d", {"keep": 5}),
        (["gc", "d", "--max-age", "36h"], "d", {"max_age_ms": 129_600_000}),
        (["gc", "d", "--max-age", "0s"], "d", {"max_age_ms": 0}),
        (["gc", "d", "--grace", "30s"], "d", {"grace_ms": 30_000}),
        (["gc", "d", "--dry-run"], "d", {"dry_run": True}),
    ],
)
def test_each_option_of_a_collection_reaches_it_alone(
    told: list[Any], options: list[str], place: str, changes: dict[str, Any]
) -> None:
    """A subcommand's own option has priority over the group's; the removals are displayed."""
    run("snapshot", *options)
    (where, asked), shown = told
    assert abs(asked.pop("now_ms") - time.time() * 1000) < 60_000
    assert (where, asked) == (place, {**GC, **changes})
    assert shown == (["gone"], {"dry_run": "--dry-run" in options, "as_json": False})
    run("snapshot", *options, "--json")
    assert told[-1][1]["as_json"] is True


@pytest.mark.parametrize(
    ("options", "logs"),
    [
        (["verify", "d"], None),
        (["--to", "e", "verify", "d", "--to", "f"], None),
        (["--to", "e", "verify", "--to", "d"], None),
        (["--to", "d", "verify"], None),
        (["verify", "d", "--bootstrap", "a:1"], {"t": "log of t at ['a:1']"}),
        (["--bootstrap", "a:1", "verify", "d"], {"t": "log of t at ['a:1']"}),
        (["--bootstrap", "a:1", "verify", "d", "--bootstrap", "b:2"], {"t": "log of t at ['b:2']"}),
        (["verify", "d", "--config", "kafka"], {"t": "log of t at ['c:3']"}),
        (["--config", "kafka", "verify", "d"], {"t": "log of t at ['c:3']"}),
    ],
)
def test_snapshots_are_compared_with_the_topics_of_a_given_cluster(
    told: list[Any], home: Any, options: list[str], logs: dict[str, str] | None
) -> None:
    """A deleted topic has no log; without a cluster no log is read."""
    (home / "kafka").write_text("bootstrap.servers=c:3\n")
    run("snapshot", *options)
    assert told == [("d", None, logs), ([], {"as_json": False})]
    assert BROKER["bootstrap_servers"] == ["a:1"]


def test_only_the_named_changelog_is_verified_and_looked_at(told: list[Any]) -> None:
    """A deleted topic has an empty mapping of logs."""
    run("snapshot", "verify", "d", "--topic", "u", "--bootstrap", "a:1", "--json")
    run("snapshot", "verify", "d", "--topic", "t", "--bootstrap", "a:1")
    assert told[0] == ("d", ["u"], {})
    assert told[1] == ([], {"as_json": True})
    assert told[2] == ("d", ["t"], {"t": "log of t at ['a:1']"})


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([("a", True, None), ("b", False, "no manifest")], 0),
        ([("a", True, "bytes differ"), ("b", True, None)], 1),
        ([], 0),
    ],
)
def test_only_a_damaged_snapshot_that_workers_see_fails_the_check(
    told: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    verdicts: list[tuple[str, bool, str | None]],
    code: int,
) -> None:
    """An unfinished folder does not fail the check."""
    seen: Any = object()
    found = [Verdict(name, seen if there else None, why) for name, there, why in verdicts]
    monkeypatch.setattr(verification, "verify", lambda *_: iter(found))
    run("snapshot", "verify", "d", code=code)
    assert told == [(found, {"as_json": False})]


@pytest.mark.parametrize("command", ["gc", "verify"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "empty"], "no snapshots under empty"),
        (["--to", "d", "--topic", "x"], "no snapshots of x under d"),
        ([], "Missing option: --to"),
    ],
)
def test_a_folder_without_the_snapshots_is_an_error(
    told: list[Any], command: str, options: list[str], words: str
) -> None:
    """A misspelled name must not pass as healthy."""
    assert words in run("snapshot", command, *options, code=2).output
    assert told == []


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ([], "--bootstrap, --topic, --to"),
        (["--topic", "t", "--to", "d", "--config", "client.properties"], "--bootstrap"),
        (["--bootstrap", "a:1", "--to", "d"], "--topic"),
        (["--bootstrap", "a:1", "--topic", "t"], "--to"),
    ],
)
def test_a_snapshot_names_all_its_missing_options(options: list[str], missing: str) -> None:
    """A file of properties without brokers names no cluster."""
    lines = run("snapshot", *options, code=2).output.splitlines()
    assert lines[-1] == f"Error: Missing option: {missing}"
