"""Edges of a look at a group: ambiguous peers, mixed kinds, odd ids, and clients that end early."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from faust_assigner.errors import MetadataRefused, TryAgain
from faust_assigner.status import collect, described, end_offsets, ledgers, worker_requests
from faust_assigner.status.build import _round_kind, build
from faust_assigner.status.described import (
    COOPERATIVE,
    EAGER,
    DescribedGroup,
    DescribedMember,
    decode_group,
)
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.member_reports import _is_leaving
from faust_assigner.status.members import _guess_urls, _reply_of_member
from faust_assigner.status.render import partitions
from faust_assigner.status.report import ANSWERED, OTHER
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.worker_status import Peer, WorkerStatus
from tests.unit.status.test_looks import group, member, net
from tests.unit.status.test_render import text
from tests.unit.status.test_several import moving
from tests.unit.status.test_several import status as status_of


def test_of_two_peers_on_a_members_host_none_is_its_own() -> None:
    """The member may be either; a third member alone on its host has its peer."""
    members = [
        DescribedMember(member_id=name, client_id="c", address=host)
        for name, host in (("x", "h1"), ("y", "h2"), ("z", "h3"))
    ]
    peers = [Peer(url=f"http://{place}") for place in ("h1:1", "h1:2", "h2:1")]
    moves = DescribedGroup(group_id="shop", state="PreparingRebalance")
    found = _guess_urls(members, dict.fromkeys("xyz", ""), Evidence(group=moves, peers=peers))
    assert found == {"x": "", "y": "http://h2:1", "z": ""}


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        ([COOPERATIVE, COOPERATIVE], "cooperative"),
        ([COOPERATIVE, EAGER], "eager"),
        ([EAGER], "eager"),
        ([], "unknown"),
    ],
)
def test_one_eager_worker_makes_the_rounds_eager(kinds: list[str], word: str) -> None:
    """The workers that did not answer do not count."""
    views: Any = [SimpleNamespace(kind=kind, status="answered") for kind in kinds]
    silent: Any = SimpleNamespace(kind=COOPERATIVE if word == "unknown" else EAGER, status=None)
    moves = DescribedGroup(group_id="shop", state="PreparingRebalance")
    assert _round_kind(Evidence(group=moves), [*views, silent]) == word


def test_ids_that_a_terminal_would_obey_are_shown_as_text() -> None:
    """Any client may choose its ids; an address loses one slash of Kafka's."""
    told = SimpleNamespace(
        member_id="m\x1b[2J",
        client_id="c\n",
        client_host="//h",
        group_instance_id="i\x07",
        member_metadata=b"xy",
        member_assignment=None,
    )
    whole = SimpleNamespace(
        group_id="shop",
        group_state="PreparingRebalance",
        protocol_type="consumer",
        protocol_data="",
        members=[told],
    )
    (found,) = decode_group(whole).members
    shown = (found.member_id, found.client_id, found.address, found.instance_id)
    assert all(text is not None and text.isprintable() for text in shown)
    assert (found.address, found.record_bytes) == ("/h", 2 + 2 * len(told.member_id) + 150)
    assert decode_group(whole, coordinator="b:1").coordinator == "b:1"


async def test_a_consumer_is_stopped_if_its_start_is_cancelled() -> None:
    """The look may end while the brokers are silent."""
    calls: list[str] = []
    begun = asyncio.Event()

    class Consumer:
        async def start(self) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def stop(self) -> None:
            calls.append("stopped")

    consumer: Any = Consumer()
    starting = asyncio.create_task(end_offsets._start(consumer))
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert calls == ["stopped"]


@pytest.mark.parametrize(
    "error", [TryAgain("silent"), KafkaError("refused"), OSError("no route"), TimeoutError("late")]
)
async def test_a_ledger_topic_that_cannot_be_read_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The other ledgers are shown without it."""
    asked: list[Any] = []

    async def read(*given: Any, **limits: Any) -> Any:
        asked.append((given, limits))
        raise error

    monkeypatch.setattr(ledgers, "read_story_lines", read)
    lines, why = await ledgers._read_topic("t\x1b", "shop", {"x": "y"}, 7)
    assert lines == []
    assert why.startswith("the ledger topic t")
    assert why.isprintable()
    assert why.endswith(f" is unreadable: {error}")
    limits = {"most_records": 7, "seconds": ledgers.TOPIC_S}
    assert asked == [(({"x": "y"}, "t\x1b", "shop"), limits)]


async def test_the_coordinator_has_its_own_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit for a worker is far shorter than the retries while a coordinator loads."""
    made = net(monkeypatch, group(member("m1")), deadline_s=0.5)
    asked: list[Any] = []
    real = collect._in_time

    async def in_time(work: Any, seconds: float, who: str) -> Any:
        asked.append((seconds, who))
        return await real(work, seconds, who)

    monkeypatch.setattr(collect, "_in_time", in_time)
    await made.looks.look()
    assert asked == [(collect.GROUP_S, "the group's coordinator")]


async def test_a_url_without_a_member_is_remembered_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that has just begun to join has no member id; another answer moves a URL."""
    made = net(
        monkeypatch, group(member("m1", "http://w1:1"), member("")), workers=("http://new:1",)
    )
    made.status["http://new:1"] = WorkerStatus(app="shop", member_id="")
    made.status["http://w1:1"] = WorkerStatus(app="shop", member_id="m1")
    await made.looks.look()
    assert made.looks._urls == {"m1": "http://w1:1"}


def test_a_reason_is_the_systems_own_words_if_there_are_any() -> None:
    """Else the error inside, else the error."""
    inner = OSError(111, "Connection refused")

    def error(text: str, inside: object) -> Exception:
        made = Exception(text)
        made.os_error = inside  # type: ignore[attr-defined]
        return made

    assert worker_requests._reason(error("long", inner)) == "Connection refused"
    assert worker_requests._reason(error("long", OSError("odd"))) == "odd"
    assert worker_requests._reason(error("long", None)) == "long"
    assert worker_requests._reason(ValueError("plain")) == "plain"


@pytest.mark.parametrize(
    ("limits", "raised"), [((70, 5_000), [(74, 5_000)]), ((70, 72), [(72, 72)]), ((74, 5_000), [])]
)
def test_as_many_files_as_needed_are_allowed_and_no_more(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: list[tuple[int, int]]
) -> None:
    """The hard limit stays as it is."""
    done: list[Any] = []
    monkeypatch.setattr(worker_requests, "_OTHER_FILES", 64)
    monkeypatch.setattr(worker_requests.resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(
        worker_requests.resource, "setrlimit", lambda _, values: done.append(values)
    )
    worker_requests._allow_sockets(10)
    assert [each for each in done if each != limits] == raised


def test_an_answer_of_another_member_is_not_this_members_own() -> None:
    """A worker without a member id rejoins at this URL; other ids and apps are other workers."""
    group_ = DescribedGroup(group_id="shop", state="Stable")
    mine = DescribedMember(member_id="m1", client_id="c", address="a")

    def answer(app: str, member_id: str) -> tuple[str, str]:
        told = Heard(answer=ANSWERED, status=WorkerStatus(app=app, member_id=member_id))
        found = _reply_of_member(
            Evidence(group=group_, heard={"http://w": told}), mine, "http://w", {}
        )
        return found.answer, found.detail

    assert answer("shop", "") == (ANSWERED, "")
    assert answer("shop", "m2") == (OTHER, "http://w is served by the member m2")
    assert answer("bank", "m1") == (OTHER, "http://w serves a different app, bank")


@pytest.mark.parametrize(
    ("says", "leaves", "is_leaving"),
    [(None, True, True), (None, False, False), (False, True, False), (True, False, True)],
)
def test_a_workers_answer_about_its_leaving_goes_before_its_metadata(
    says: bool | None, leaves: bool, is_leaving: bool
) -> None:
    """The metadata is of the join, the answer of now."""
    status = None if says is None else WorkerStatus(app="shop", member_id="m", is_leaving=says)
    shown: Any = SimpleNamespace(
        status=status, member=SimpleNamespace(said=JoinData(leaves=leaves))
    )
    assert _is_leaving(shown) is is_leaving


@pytest.mark.parametrize("name", ["actives", "standbys", "writes", "awaited", "promised"])
def test_partitions_of_every_kind_count_towards_the_limit(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Exactly the limit passes."""
    monkeypatch.setattr(described, "MOST_PARTITIONS", 9)
    kinds = ("actives", "standbys", "writes", "awaited", "promised")

    def answer(count: int) -> Any:
        claims = {kind: {} for kind in kinds} | {
            name: {"t": SimpleNamespace(size=4), "u": SimpleNamespace(size=count - 4)}
        }
        return SimpleNamespace(**claims)

    assert described._check_bounds(answer(9)) is not None
    with pytest.raises(MetadataRefused, match=r"^10 partitions, the limit is 9$"):
        described._check_bounds(answer(10))


def test_columns_are_those_of_all_members_though_few_are_shown() -> None:
    """A difference or a warm-up of a hidden member is a column; any other topic is shown."""
    base = build(moving({"a": status_of(), "b": status_of()}))
    first, second = base.members
    members = (
        replace(first, rack="r1"),
        replace(second, rack="r2", warmups={"t": (3,)}, warmup_lag=5, actives={"x-__leader": (0,)}),
    )
    found = replace(base, members=members, waits=())
    shown = text(found, rows=1)
    assert ("rack" in shown, "warm-ups" in shown, "and 1 more members" in shown) == (True,) * 3
    assert "0 of x-__leader" in text(found)
    assert partitions({"shop-__assignor-__leader": (0,)}, "shop") == "-"


@pytest.mark.parametrize(
    ("not_ready", "not_live", "ready"),
    [((), (), True), (("a",), (), False), ((), ("b",), False), (("a",), ("b",), False)],
)
def test_a_worker_that_does_not_live_is_not_ready(
    not_ready: tuple[str, ...], not_live: tuple[str, ...], ready: bool
) -> None:
    """Both reasons are reported."""
    (found,) = build(moving({"a": status_of(not_ready=not_ready, not_live=not_live)})).members
    assert (found.ready, found.not_ready, found.not_live) == (ready, not_ready, not_live)
