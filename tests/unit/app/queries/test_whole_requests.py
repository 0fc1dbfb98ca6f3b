"""Requests for keys compared as a whole: URLs, repeated headers, errors, and several copies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from faust.app.router import Router
from faust.exceptions import SameNode
from faust.types import TP
from multidict import CIMultiDict
from yarl import URL

from faust_assigner.app.host.mixing import over
from faust_assigner.app.queries.decide import Here, Who
from faust_assigner.app.queries.forwarding import CONNECT_S, PATIENT_S
from faust_assigner.app.queries.freshness import Look, Marks
from faust_assigner.app.queries.reading import AGE, LAG, ROLE, Reading
from faust_assigner.app.queries.router import KeyRouter
from faust_assigner.app.tables.scope import NotHere
from tests.unit.app.queries import test_forwarding, test_router
from tests.unit.app.queries.test_reading import A0, A1, Store, Worker, answered
from tests.unit.app.queries.test_replica_status import COPY, Following, Knowing
from tests.unit.app.queries.test_router import LOG, NOT_HERE, OWNER, Answer, Request

OTHER = TP("log", 1)


# -- forwarding


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("http://w1:6067", ("w1", 6067)),
        ("http://w1", ("w1", 80)),
        ("https://w1", ("w1", 443)),
        ("w1", ("w1", 80)),
    ],
)
async def test_a_request_goes_to_the_host_and_port_of_the_worker(
    monkeypatch: pytest.MonkeyPatch, to: str, place: tuple[str, int]
) -> None:
    """A URL without a port has its scheme's; a URL without a scheme is a host."""
    it = test_forwarding.Made(monkeypatch, urls=("*",))
    monkeypatch.setattr(test_forwarding.module, "allowed", lambda *asked: True)
    await it.forward(URL(to))
    (asked,) = it.http.asked
    assert (asked["url"].host, asked["url"].port) == place
    assert asked["url"].path_qs == "/counts/a?b=c"


async def test_each_header_is_forwarded_as_often_as_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The values of a repeated header stay in their order; the hop comes last."""
    it = test_forwarding.Made(monkeypatch)
    headers = [("X-Forwarded-For", "a"), ("Accept", "text/plain"), ("x-forwarded-for", "b")]

    async def read() -> bytes:
        return b"body"

    request = SimpleNamespace(
        method="PUT", url=URL("http://w0:6066/x"), headers=CIMultiDict(headers), read=read
    )
    web = SimpleNamespace(bytes=lambda body, **_: body)
    answer = await it.router.forwarding.forward(URL("http://w1:6067"), web, request)
    assert answer == b"answer"
    assert it.http.asked == [
        {
            "method": "PUT",
            "url": URL("http://w1:6067/x"),
            "headers": [*headers, ("X-Faust-Assigner-Hop", "1")],
            "data": b"body",
            "allow_redirects": False,
            "timeout": aiohttp.ClientTimeout(total=PATIENT_S, sock_connect=CONNECT_S),
        }
    ]


# -- reading


def test_a_key_that_begins_with_the_requested_key_is_another_key() -> None:
    """The same holds for a key that ends with it, and for a key in the middle."""
    worker = Worker()
    worker.known = {A1: Here(lag=3, age_s=1.0)}
    store = Store("a", partitions=(0, 1))
    reading = Reading(worker, store.table, "42", A1, Who.COPY_HERE)  # type: ignore[arg-type]
    assert reading.partitions_for(store, b"42") == [1]  # type: ignore[arg-type]
    for other in (b"421", b"142", b"4", b"1424", b""):
        with pytest.raises(NotHere):
            reading.partitions_for(store, other)  # type: ignore[arg-type]


async def test_the_headers_of_the_reading_replace_those_of_the_view() -> None:
    """A view may pass on the answer of a different worker, with its headers."""
    worker = Worker()
    worker.known = {A0: Here(lag=3, age_s=1.25)}
    reading = Reading(worker, None, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    response = await answered(
        reading, lambda: SimpleNamespace(headers={ROLE: "owner", LAG: "9", "a": "b"})
    )
    assert response.headers == {ROLE: "standby", LAG: "3", AGE: "1.250", "a": "b"}


# -- the state of a copy


def test_a_copy_whose_changelog_s_end_is_unknown_has_no_lag() -> None:
    """None is not a lag of 0."""
    it = Knowing()
    it.standing.marks[COPY] = Marks()
    assert it.standing.here(COPY) == Here(lag=None, age_s=None)


@pytest.mark.parametrize("own", ["http://w", "http://w/"])
@pytest.mark.parametrize("owner", ["http://w", "http://w/"])
def test_a_slash_makes_no_other_worker(own: str, owner: str) -> None:
    """The leader's URL of this worker may end otherwise than the setting."""
    it = Knowing("active")
    it.table.is_global, it.owner, it.app.conf.canonical_url = True, owner, own
    assert it.standing.is_owner(COPY)


class Two(Following):
    """A worker with copies of two tables, at offsets 4 and 14; their changelogs end at 8 and 18."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = {COPY: 8, OTHER: 18}
        self.applied: dict[TP, int | None] = {COPY: 4, OTHER: 14}
        self.app.tables.recovery.tp_to_table[OTHER] = "other"
        self.others = self.standing.marks[OTHER] = Marks()
        self.others.note(Look(200.0, 18))

        async def position(tp: TP) -> int:
            return self.positions[tp]

        self.app.consumer.position = position
        self.standing._last_offset_of = self.applied.__getitem__  # type: ignore[method-assign]

    async def looks(self) -> tuple[float | None, float | None]:
        """Run a look and a fetch round; return the time at which each copy was fresh."""
        await self.standing._pass_markers([COPY, OTHER])
        self.app.consumer.fetch_rounds += 1
        return self.marks.fresh_at(4), self.others.fresh_at(14)


async def test_markers_are_passed_by_each_of_two_copies() -> None:
    """A later position than the end proves the records up to that end only."""
    it = Two()
    it.positions = {COPY: 11, OTHER: 18}
    assert await it.looks() == (None, None)
    it.positions = {COPY: 8, OTHER: 18}
    assert await it.looks() == (100.0, 200.0)
    for marks in (it.marks, it.others):
        marks.note(Look(300.0, 21))
    assert (it.marks.lag(4), it.others.lag(14)) == (13, 3)


async def test_a_copy_that_was_closed_begins_anew_and_no_other() -> None:
    """The other copy's records are written by the next round."""
    it = Two()
    assert await it.looks() == (None, None)
    it.applied[COPY] = None
    assert await it.looks() == (None, 200.0)
    it.applied[COPY] = 4
    assert await it.looks() == (100.0, 200.0)


@pytest.mark.parametrize("buffered", ["table", "other"])
async def test_buffered_records_of_a_table_hold_up_its_own_copies(buffered: str) -> None:
    """The copies of the other table are complete."""
    it = Two()
    assert await it.looks() == (None, None)
    it.app.tables.recovery.buffers = {buffered: ["record"]}
    assert await it.looks() == ((None, 200.0) if buffered == "table" else (100.0, None))


# -- routing


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_an_error_of_a_view_is_passed_on_whatever_role_it_has(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Only a 503 with role "none" means that the worker cannot answer."""
    it = test_router.Made(monkeypatch, NOT_HERE)
    answer = it.workers.answers[OWNER] = Answer(status, "none")
    assert await it.get() is answer
    assert it.asked == [OWNER]


@pytest.mark.parametrize("error", [ValueError("a bug"), TypeError("no such key")])
async def test_an_error_of_a_key_is_the_caller_s(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A 503 would say that a later request may succeed."""
    it = test_router.Made(monkeypatch, NOT_HERE)

    def fail(table: Any, key: Any) -> bytes:
        raise error

    monkeypatch.setattr(it.router, "_get_serialized_key", fail)
    with pytest.raises(type(error)) as raised:
        await it.get()
    assert raised.value is error
    assert it.asked == []


async def test_the_reader_of_a_topic_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust's view then answers the request on this worker."""
    it = test_router.Made(monkeypatch, NOT_HERE)
    it.workers.answers[OWNER] = SameNode()
    with pytest.raises(SameNode):
        await it.router.route_topic_req("orders", "a", it.web, Request())


class Topic:
    """A topic whose keys have the form ``said``; each call is noted."""

    def __init__(self, said: bytes, *names: str) -> None:
        self.topics, self.said, self.asked = names, said, list[Any]()

    def get_topic_name(self) -> str:
        """Return the first name."""
        return self.topics[0]

    def prepare_key(self, *asked: Any) -> tuple[bytes, None]:
        """Serialize the key."""
        self.asked.append(asked)
        return self.said, None


def test_topics_outside_of_the_group_have_no_say_whatever_its_number() -> None:
    """The first group has the number 0; each topic uses its own serializer."""
    log, orders, unknown = Topic(b"log", LOG), Topic(b"raw", "orders"), Topic(b"no", "unknown")
    app = SimpleNamespace(
        topics=[unknown, orders],
        tables=SimpleNamespace(changelog_topics={LOG}),
        assignor=SimpleNamespace(group_for_topic={LOG: 0, "orders": 0}.__getitem__),
    )
    table = SimpleNamespace(app=app, changelog_topic=log, use_partitioner=False)
    router: Any = over(KeyRouter, Router)  # type: ignore[arg-type]
    assert router._get_serialized_key(table, "a") == b"raw"
    assert (log.asked, orders.asked, unknown.asked) == ([("a", None)], [("a", None)], [])


@pytest.mark.parametrize("status", [204, 302, 404, 500, 503])
async def test_the_status_of_the_answer_is_the_worker_s(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """An error of the app's view is no reason to send the request again."""

    class Answering(test_forwarding.Http):
        async def __aenter__(self) -> Any:
            answer = await super().__aenter__()
            answer.status = status
            return answer

    it = test_forwarding.Made(monkeypatch)
    it.router.forwarding._app.http_client = Answering()
    assert await it.forward() == (b"answer", status, {"Content-Type": "application/json"})
