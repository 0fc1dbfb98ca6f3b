"""``faust-assigner snapshot``, ``snapshot verify`` and ``snapshot gc`` as commands."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from faust_assigner.cli import main
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items
from faust_assigner.snapshots.storage import open_storage


def run(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["snapshot", *arguments])


@pytest.fixture
def changelog(embedded_broker: Any) -> tuple[str, str]:
    """(bootstrap, topic) of a small changelog on the embedded broker."""
    topic = f"app-{uuid.uuid4().hex[:6]}-changelog"
    produce(embedded_broker.bootstrap, topic, [(b'"a"', b"1"), (b'"b"', b"2"), (b'"a"', None)])
    return embedded_broker.bootstrap, topic


def produce(bootstrap: str, topic: str, records: list[tuple[bytes, bytes | None]]) -> None:
    """Write records to partition 0; the broker creates the topic."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records:
        producer.produce(topic, value, key, 0)
    assert producer.flush(30) == 0


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The target of snapshots: a local folder, or a folder in an object store."""
    return str(
        request.getfixturevalue("s3_folder") if request.param == "s3" else tmp_path / "snapshots"
    )


def test_snapshot_writes_verifies_and_builds_on_the_previous(
    changelog: tuple[str, str], folder: str, tmp_path: Path
) -> None:
    """A snapshot, a snapshot on top of it, and ``verify`` in each of its spellings."""
    bootstrap, topic = changelog
    asked = ("--bootstrap", bootstrap, "--topic", topic, "--to", folder, "--no-spark")
    first = run(*asked)
    assert first.exit_code == 0, first.output
    assert "00000000000000000003" in first.output
    produce(bootstrap, topic, [(b'"c"', b"3")])
    second = run(*asked, "--previous", "--json")
    assert second.exit_code == 0, second.output
    newest = json.loads(second.stdout)[0]
    assert (newest["next_offset"], newest["keys"]) == (4, 2)
    catalog = Catalog(open_storage(folder))
    manifest = catalog.snapshots(topic, 0)[0]
    assert dict(read_items(catalog.fetch(manifest, tmp_path))) == {
        b'"b"': b"2",
        b'"c"': b"3",
        OFFSET_KEY: b"3",
    }
    for spelling in (
        ("verify", "--to", folder),
        ("verify", folder),
        ("--to", folder, "verify"),
        ("verify", "--to", folder, "--topic", topic),
    ):
        verified = run(*spelling)
        assert verified.exit_code == 0, verified.output
        assert verified.output.count(" ok") == len(catalog.partitions(topic)) + 1
    collected = run("gc", "--to", folder, "--keep", "1")
    assert collected.exit_code == 0, collected.output
    assert [each.next_offset for each in catalog.snapshots(topic, 0)] == [4]
    assert json.loads(run("gc", "--to", folder, "--keep", "1", "--json").stdout) == []


def test_verify_ends_with_1_when_a_snapshot_is_damaged(
    changelog: tuple[str, str], tmp_path: Path
) -> None:
    """The exit code is for cron; an unfinished folder alone is no failure."""
    bootstrap, topic = changelog
    run("--bootstrap", bootstrap, "--topic", topic, "--to", str(tmp_path), "--no-spark")
    (tmp_path / topic / "0" / "00000000000000000099").mkdir()
    unfinished = run("verify", "--to", str(tmp_path))
    assert unfinished.exit_code == 0
    assert "unfinished" in unfinished.output
    damaged = next((tmp_path / topic / "0").rglob("*.sst"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    broken = run("verify", "--to", str(tmp_path), "--json")
    assert broken.exit_code == 1
    assert [each["visible"] for each in json.loads(broken.stdout) if each["problem"]] == [
        True,
        False,
    ]


def test_gc_says_first_and_removes_then(changelog: tuple[str, str], tmp_path: Path) -> None:
    """--dry-run and --max-age."""
    bootstrap, topic = changelog
    asked = ("--bootstrap", bootstrap, "--topic", topic, "--to", str(tmp_path), "--no-spark")
    run(*asked)
    produce(bootstrap, topic, [(b'"d"', b"4")])
    run(*asked)
    said = run("gc", "--to", str(tmp_path), "--max-age", "0s", "--dry-run", "--json")
    assert len(Catalog(open_storage(tmp_path)).snapshots(topic, 0)) == 2
    done = run("gc", "--to", str(tmp_path), "--max-age", "0s", "--json")
    assert (
        [each["path"] for each in json.loads(done.stdout)]
        == [each["path"] for each in json.loads(said.stdout)]
        == [f"{topic}/0/{3:020d}"]
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--bootstrap, --topic, --to"),
        (("--bootstrap", "127.0.0.1:1"), 2, "--topic, --to"),
        (("verify",), 2, "--to"),
        (("verify", "--to", "/nonexistent"), 2, "no snapshots under /nonexistent"),
        (("gc", "--to", "/nonexistent", "--keep", "0"), 2, "--keep"),
        (
            ("--bootstrap", "127.0.0.1:1", "--topic", "a/b", "--to", "x", "--no-spark"),
            2,
            "not a valid name of a Kafka topic",
        ),
        (
            ("--bootstrap", "127.0.0.1:1", "--topic", "t", "--to", "x", "--no-spark"),
            75,
            "127.0.0.1:1",
        ),
        (
            ("--config", "/nonexistent", "--topic", "t", "--to", "x", "--no-spark"),
            2,
            "--config /nonexistent",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_said_without_a_traceback(
    arguments: tuple[str, ...], code: int, said: str
) -> None:
    """Exit code 2 for wrong arguments, 75 for a cluster that does not answer; one line."""
    result = run(*arguments)
    assert result.exit_code == code
    assert said in result.output
    assert "Traceback" not in result.output


def test_an_unknown_topic_is_not_created(embedded_broker: Any, tmp_path: Path) -> None:
    """A typo must not create a topic."""
    asked = (
        "--bootstrap",
        embedded_broker.bootstrap,
        "--topic",
        "typo",
        "--to",
        str(tmp_path),
        "--no-spark",
    )
    assert "has no topic 'typo'" in run(*asked).output
    assert "has no topic 'typo'" in run(*asked).output


def test_a_duration_that_is_none_is_named(changelog: tuple[str, str], tmp_path: Path) -> None:
    """Valid durations are 7d, 36h, 90m, 30s."""
    bootstrap, topic = changelog
    run("--bootstrap", bootstrap, "--topic", topic, "--to", str(tmp_path), "--no-spark")
    result = run("gc", "--to", str(tmp_path), "--max-age", "soon")
    assert result.exit_code == 2
    assert "'soon' is not a duration" in result.output
