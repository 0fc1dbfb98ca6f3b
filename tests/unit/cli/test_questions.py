"""``faust-assigner why``, ``scaler`` and ``ui``: their sources, answers and ends."""

from __future__ import annotations

import gzip
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.cli import scaler
from faust_assigner.pipeline.ledgers import files
from faust_assigner.scaler.server import Listening
from tests.unit.cli.looks import REACH, WHERE, Looks, run

pytestmark = pytest.mark.usefixtures("home")
START = datetime(2026, 11, 21, 3, 2, tzinfo=UTC)


# -- why


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the lines read, and the questions about them."""
    found: list[Any] = []
    monkeypatch.setattr(
        "faust_assigner.story.read.read", lambda lines, group: found.append((list(lines), group))
    )
    for name in ("why_partition", "why_member"):
        monkeypatch.setattr(
            f"faust_assigner.story.tell.{name}",
            lambda story, subject, *, at, name=name: found.append((name, subject, at)) or name,
        )
    monkeypatch.setattr("faust_assigner.wire.documents.dumps", lambda answer: f"json {answer}")
    monkeypatch.setattr("faust_assigner.story.render.render", lambda answer: f"text {answer}")
    return found


@pytest.mark.parametrize(
    ("subject", "question"),
    [
        ("orders/7", ("why_partition", ("orders", 7))),
        ("a/b/0", ("why_partition", ("a/b", 0))),
        pytest.param(
            "a/" + "9" * 5000, ("why_member", "a/" + "9" * 5000), id="thousands of digits"
        ),
        ("http://w1/6066", ("why_member", "http://w1/6066")),
        ("/7", ("why_member", "/7")),
        ("orders/x", ("why_member", "orders/x")),
        ("orders/²", ("why_member", "orders/²")),
        ("w1", ("why_member", "w1")),
    ],
)
def test_a_partition_is_told_from_a_member_by_its_name(
    explained: list[Any], home: Path, subject: str, question: tuple[str, Any]
) -> None:
    """A URL is always a member; the last slash separates topic and number."""
    (home / "l.jsonl").write_bytes(b"1\n2\n")
    chosen = ("--ledger", "l.jsonl", "--group", "g", "--at", "2026-11-21T03:02")
    done = run("why", subject, *chosen)
    assert explained == [([b"1", b"2"], "g"), (*question, START.timestamp())]
    assert done.stdout == f"text {question[0]}\n"
    assert run("why", subject, "--ledger", "l.jsonl", "--json").stdout == f"json {question[0]}\n"
    assert explained[3] == (*question, None)


def test_all_given_topics_and_files_are_read(
    explained: list[Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic yields the group's lines, read with the properties of --config."""
    (home / "l.jsonl").write_bytes(b"1\n")
    (home / "m.jsonl").write_bytes(b"2\n")
    monkeypatch.setattr(
        "faust_assigner.pipeline.ledgers.topic_source.read_story_lines",
        lambda connection, topic, group: (connection["request_timeout_ms"], topic, group),
    )
    monkeypatch.setattr(
        "faust_assigner.snapshots.kafka_requests.run_request",
        lambda connection, question: ([f"{connection['bootstrap_servers']} {question}"], ""),
    )
    sources = ("l.jsonl", "kafka://a:1/t", "m.jsonl", "kafka://b:2/u")
    chosen = [word for source in sources for word in ("--ledger", source)]
    run("why", "w1", *chosen, "--group", "g", "--config", "client.properties")
    lines = ["['a:1'] (700, 't', 'g')", "['b:2'] (700, 'u', 'g')", b"1", b"2"]
    assert explained[0] == (lines, "g")
    explained.clear()
    run("why", "w1", "--ledger", "kafka://a:1/t", "--config", "client.properties")
    assert explained[0] == (["['a:1'] (700, 't', None)"], None)


def test_a_damaged_packed_ledger_is_named_and_the_others_are_read(
    explained: list[Any], home: Path
) -> None:
    """Earlier, the command ended without an answer, and the error did not name the file."""
    packed = gzip.compress(b"".join(b"%d\n" % number for number in range(9_000)), mtime=0)
    (home / "l.jsonl.1.gz").write_bytes(packed[: len(packed) // 2])
    (home / "l.jsonl.2").write_bytes(b"last\n")
    done = run("why", "w1", "--ledger", str(home))
    ((lines, _), _) = explained
    assert (lines[:2], lines[-1]) == ([b"0", b"1"], b"last")
    assert done.stderr.startswith(f"faust-assigner: {home}/l.jsonl.1.gz: not read further: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == "text why_member\n"


def test_a_ledger_that_is_rotated_after_its_listing_is_read(
    explained: list[Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker renames the file and begins a new one while the command runs."""
    ledger = home / "l.jsonl"
    ledger.write_bytes(b"1\n2\n")
    listing = files.find_files

    def find_files(paths: list[str]) -> list[files.LedgerFile]:
        found = listing(paths)
        ledger.rename(home / "l.jsonl.1")
        ledger.write_bytes(b"3\n")
        return found

    monkeypatch.setattr(files, "find_files", find_files)
    run("why", "w1", "--ledger", "l.jsonl")
    assert explained[0] == ([b"1", b"2"], None)


def test_without_a_ledger_the_workers_are_asked_and_a_missing_ledger_is_reported(
    explained: list[Any], looks: type[Looks]
) -> None:
    """The report is on stderr, and the answer uses the lines of the answering workers."""
    looks.answers.append("seen")
    looks.ledger = ([b"1"], ("w1 is silent: its ledger is missing", "w2 too"))
    done = run("why", "w1", *REACH)
    assert done.stderr == (
        "faust-assigner: w1 is silent: its ledger is missing\nfaust-assigner: w2 too\n"
    )
    assert explained[0] == ([b"1"], "g")
    assert (looks.made, looks.asked) == ([(WHERE, time.time)], [("seen", {}), "closed"])


# -- scaler


@pytest.mark.parametrize("as_json", [False, True])
def test_a_recommendation_is_made_of_two_looks_with_one_memory(
    looks: type[Looks], slept: list[float], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """The looks are some seconds apart, by a monotonic clock."""
    monkeypatch.setattr("faust_assigner.scaler.look.look_of", lambda evidence: f"look {evidence}")
    asked: list[Any] = []

    def recommend(look: Any, settings: Any, memory: Any) -> tuple[Any, Any]:
        asked.append((look, settings.most, memory))
        return f"size after {look}", f"memory of {look}"

    monkeypatch.setattr("faust_assigner.scaler.recommend.recommend", recommend)
    monkeypatch.setattr("faust_assigner.scaler.memory.Memory", lambda: "nothing")
    for name in ("as_json", "as_text"):
        monkeypatch.setattr(
            f"faust_assigner.scaler.render.{name}",
            lambda group, found, name=name: f"{name} {group} {found}",
        )
    looks.answers += ["one", "two"]
    done = run("scaler", *REACH, "--once", *["--json"] * as_json, "--set", "max=5")
    name = "as_json" if as_json else "as_text"
    assert done.stdout == f"{name} g size after look two\n"
    assert asked == [("look one", 5, "nothing"), ("look two", 5, "memory of look one")]
    assert (slept, looks.made) == ([scaler.ONCE_APART_S], [(WHERE, time.monotonic)])
    assert scaler.ONCE_APART_S > 5.0  # closer looks are merged


@pytest.mark.parametrize(
    ("options", "listening", "defaults"),
    [
        ([], {}, {}),
        (["--bind", "0.0.0.0:7"], {"host": "0.0.0.0", "port": 7}, {}),
        (["--bind", "[::1]:0"], {"host": "::1", "port": 0}, {}),
        (["--tls-cert", "f"], {"cert": Path("f")}, {}),
        (["--tls-key", "f"], {"key": Path("f")}, {}),
        (["--tls-client-ca", "f"], {"client_ca": Path("f")}, {}),
        (["--insecure"], {"insecure": True}, {}),
        (["--set", "max=5", "--set", "min=2"], {}, {"max": "5", "min": "2"}),
    ],
)
def test_each_option_of_the_scalers_server_reaches_it_alone(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    listening: dict[str, Any],
    defaults: dict[str, str],
) -> None:
    """An address in use is reported in one line, with exit code 1."""
    (home / "f").touch()
    asked: list[Any] = []

    def serve(*given: Any) -> None:
        asked.append(given[:3])
        raise OSError("the address is in use")

    monkeypatch.setattr("faust_assigner.scaler.server.serve", serve)
    done = run("scaler", *REACH, *options, code=1)
    base = Listening(host="127.0.0.1", port=6071)
    assert asked == [(WHERE, replace(base, **listening), defaults)]
    assert done.stderr == "faust-assigner: the address is in use\n"


# -- ui


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def ending(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that ends the page; the test fails if the command has no handler."""

    def untaken(*_: object) -> None:
        raise AssertionError("the command does not handle the signal")

    before = signal.signal(request.param, untaken)
    yield request.param
    signal.signal(request.param, before)


class Served:
    """A fake server of the page; the signal comes as soon as it listens."""

    def __init__(self, told: list[Any], host: str, number: signal.Signals) -> None:
        self.told, self.host, self.number = told, host, number

    def __call__(self, watch: Any, **place: Any) -> Served:
        """Take the place of the server."""
        self.told.append((watch, place))
        return self

    async def __aenter__(self) -> tuple[str, int]:
        os.kill(os.getpid(), self.number)
        return self.host, 7

    async def __aexit__(self, *_: object) -> None:
        self.told.append("closed")


@pytest.mark.parametrize(("host", "shown"), [("10.0.0.1", "10.0.0.1"), ("::1", "[::1]")])
def test_the_page_is_served_until_a_signal(
    looks: type[Looks],
    monkeypatch: pytest.MonkeyPatch,
    ending: signal.Signals,
    host: str,
    shown: str,
) -> None:
    """The line shows the bound address; the looks use the wall clock."""
    told: list[Any] = []
    monkeypatch.setattr("faust_assigner.page.server.served", Served(told, host, ending))
    done = run("ui", *REACH, "--bind", "x", "--port", "0")
    assert done.stdout == (f"The page of group g: http://{shown}:7/ (Ctrl-C ends the server)\n")
    (watch, place), end = told
    assert (watch.group, place, end) == ("g", {"host": "x", "port": 0}, "closed")
    watch._looks()
    assert looks.made == [(WHERE, time.time)]


def test_the_page_of_a_saved_status_names_the_file_with_its_folder(
    monkeypatch: pytest.MonkeyPatch, ending: signal.Signals, tmp_path: Path
) -> None:
    """The page is the page of the file's group, and no query is made."""
    told: list[Any] = []
    file = tmp_path / "looks.jsonl"
    file.write_text("")
    monkeypatch.setattr("faust_assigner.page.server.served", Served(told, "127.0.0.1", ending))
    monkeypatch.setattr("faust_assigner.status.saved.read_saved", lambda read: ("saved", read))
    monkeypatch.setattr(
        "faust_assigner.page.look.look_of",
        lambda saved, *, source: SimpleNamespace(group="shop", made_of=(saved, source)),
    )
    done = run("ui", "--from", str(file), "--port", "0")
    assert done.stdout.startswith("The page of group shop: ")
    watch = told[0][0]
    assert watch.shown.look.made_of == (("saved", file), str(file))


def test_a_port_that_is_taken_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line has the address and the reason; the exit code is 1."""

    def served(*_: object, **__: object) -> Any:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr("faust_assigner.page.server.served", served)
    done = run("ui", *REACH, "--bind", "127.0.0.1", "--port", "9", code=1)
    assert done.stderr == ("faust-assigner: Cannot listen on 127.0.0.1:9: Address already in use\n")
