"""Requests for a key in one worker: the workers asked, the rows read, and the refusals."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import faust
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from faust.types import TP
from yarl import URL

from faust_assigner.app.queries import forwarding, router
from faust_assigner.app.queries.decide import Here, Who
from faust_assigner.app.queries.reading import KEY, Reading, scoped
from faust_assigner.app.tables.scope import SCOPE
from tests.support.faust_group import make_app
from tests.support.waiting import PATIENCE_S

LOG = "shop-counts-changelog"
DEAD = URL("http://127.0.0.1:1")


@contextlib.asynccontextmanager
async def served(handler: Any) -> AsyncIterator[URL]:
    """Run a web server on loopback; yield its URL."""
    front = web.Application()
    front.router.add_route("*", "/{tail:.*}", handler)
    async with TestServer(front) as server:
        yield server.make_url("/")


class Worker:
    """An app behind a web server; the test sets the status of its partitions.

    ``here`` has the status of each partition on this worker; other partitions are absent. Keys
    belong to partition 0.
    """

    def __init__(
        self,
        folder: Path,
        *,
        owner: URL | None = None,
        copies: tuple[URL, ...] = (),
        **options: Any,
    ) -> None:
        self.here: dict[TP, Here] = {}
        self.app: faust.App = make_app(
            "http://127.0.0.1:2",
            store="rocksdb://",
            datadir=str(folder),
            broker="kafka://127.0.0.1:1",
            **{"faust_assigner_stale_reads_s": 5, **options},
        )
        self.app.finalize()
        tables = [
            self.app.Table(name, key_type=str, value_type=int, partitions=4)
            for name in ("counts", "names", "far")
        ]
        self.counts, self.names, self.far = tables
        self.hours = self.app.Table("hours", key_type=str, value_type=int, partitions=4).tumbling(
            3600.0
        )
        self.cache = self.app.Table(
            "cache", key_type=str, value_type=int, partitions=4, store="memory://"
        )
        assignor: Any = self.app.assignor
        self.app.producer.key_partition = lambda topic, key: TP(topic, 0)
        assignor.owner_of = lambda tp: owner if owner is not None else _unknown()
        assignor.standbys_of = lambda tp: copies
        assignor.group_for_topic = lambda topic: int("far" in topic)
        standing = self.app.router.standing
        standing.here = lambda tp: self.here.get(tp, Here())
        standing.is_owner = lambda tp: self.here.get(tp, Here()).is_owner
        self.view: Any = self.read_count

    def put(self, table: Any, partition: int, key: Any, value: int) -> None:
        """Write a row into one of the databases."""
        store = getattr(table, "table", table).data
        store._db_for_partition(partition)[store.raw_key(key)] = store._encode_value(value)

    async def read_count(self, view: Any, request: Any) -> Any:
        """Read a row as most views do."""
        return self.app.web.json({"count": self.counts.get("key")})

    @contextlib.asynccontextmanager
    async def asked(self, method: str = "GET", **request: Any) -> AsyncIterator[Any]:
        """The response to one request, routed as by ``table_route(counts, exact_key="key")``."""
        route = self.app.table_route(self.counts, exact_key="key")

        async def handle(request: Any) -> Any:
            view = SimpleNamespace(web=self.app.web)
            return await route(self.view)(SimpleNamespace(web=view.web), request)

        try:
            async with (
                served(handle) as url,
                ClientSession() as session,
                session.request(method, url / "count", **request) as answer,
            ):
                yield answer
        finally:
            await self.app.router.forwarding._close()
            self.app.router.forwarding._session = None


def _unknown() -> URL:
    raise KeyError


def answers(role: str, count: int, seen: list[Any] | None = None) -> Any:
    """A handler of another worker."""

    async def answer(request: web.Request) -> web.Response:
        if seen is not None:
            seen.append(dict(request.headers))
        return web.json_response({"count": count}, headers={"X-Faust-Assigner-Role": role})

    return answer


async def refuses(request: web.Request) -> web.Response:
    """Answer as another worker that still restores."""
    return web.json_response({}, status=503, headers={"X-Faust-Assigner-Role": "none"})


async def test_a_dead_owner_is_a_503_with_the_time_to_ask_again(tmp_path: Path) -> None:
    """The answer is no 500, and its body has the reason."""
    worker = Worker(tmp_path, owner=DEAD, faust_assigner_stale_reads_s=0)
    worker.here[TP(LOG, 0)] = Here(lag=0, age_s=0.0)
    async with worker.asked() as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert "the worker with its partition does not answer" in (await answer.json())["error"]


async def test_a_dead_owner_is_stood_in_for_by_the_copy_here(tmp_path: Path) -> None:
    """The answer's headers state the lag and the age of the copy."""
    worker = Worker(tmp_path, owner=DEAD)
    worker.put(worker.counts, 0, "key", 7)
    worker.here[TP(LOG, 0)] = Here(lag=3, age_s=1.5)
    async with worker.asked() as answer:
        assert (answer.status, await answer.json()) == (200, {"count": 7})
        said = {name: answer.headers[f"X-Faust-Assigner-{name}"] for name in ("Role", "Lag", "Age")}
    assert said == {"Role": "standby", "Lag": "3", "Age": "1.500"}


async def test_an_owner_that_restores_is_stood_in_for_by_another_copy(tmp_path: Path) -> None:
    """The copy's headers are returned, and the hop header forbids a second forward."""
    seen: list[Any] = []
    async with (
        served(refuses) as owner,
        served(answers("standby", 9, seen)) as copy,
        Worker(tmp_path, owner=owner, copies=(DEAD, copy)).asked() as answer,
    ):
        assert (answer.status, await answer.json()) == (200, {"count": 9})
        assert answer.headers["X-Faust-Assigner-Role"] == "standby"
    assert [headers["X-Faust-Assigner-Hop"] for headers in seen] == ["1"]


async def test_the_views_own_503_is_handed_back(tmp_path: Path) -> None:
    """This 503 is the app's own answer, not a failure of the worker."""

    async def busy(request: web.Request) -> web.Response:
        return web.Response(status=503, text="closed on Sundays")

    async with (
        served(busy) as owner,
        served(answers("standby", 9)) as copy,
        Worker(tmp_path, owner=owner, copies=(copy,)).asked() as answer,
    ):
        assert (answer.status, await answer.text()) == (503, "closed on Sundays")


async def test_a_silent_owner_is_waited_for_once_and_as_long_as_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen worker accepts connections; after its timeout a copy is asked first for a while."""
    monkeypatch.setattr(forwarding, "CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(router, "SHUNNED_S", 3600.0)
    asked = []

    async def silence(request: web.Request) -> web.Response:
        asked.append(request)
        worker.app.router.forwarding._forward_s = PATIENCE_S  # the limit of the copy's answers
        await asyncio.sleep(3600)
        raise AssertionError("nobody waits so long")

    async with served(silence) as owner, served(answers("standby", 9)) as copy:
        worker: Any = Worker(tmp_path, owner=owner, copies=(copy,), faust_assigner_forward_s=1.5)
        for _ in range(3):
            async with worker.asked() as answer:
                assert (answer.status, await answer.json()) == (200, {"count": 9})
    assert len(asked) == 1


async def test_requests_to_a_frozen_worker_hold_up_no_other_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp limits the connections to all hosts together; 100 changes would take all of them."""
    # A busy process may need more than the usual second to open 100 connections.
    monkeypatch.setattr(forwarding, "CONNECT_S", PATIENCE_S)
    here, frozen, answered = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()

    async def silence(request: web.Request) -> web.Response:
        here.release()
        if not answered.is_set():
            await answered.wait()
        return web.Response()

    async with served(silence) as owner, served(answers("owner", 9)) as other:
        worker = Worker(tmp_path, faust_assigner_forward_s=PATIENCE_S)
        assignor: Any = worker.app.assignor
        assignor.owner_of = lambda tp: other if frozen.is_set() else owner
        route = worker.app.table_route(worker.counts, exact_key="key")

        async def handle(request: Any) -> Any:
            return await route(worker.view)(SimpleNamespace(web=worker.app.web), request)

        limitless = aiohttp.TCPConnector(limit=0)
        async with served(handle) as url, ClientSession(connector=limitless) as session:
            changes = [asyncio.ensure_future(session.post(url / "count")) for _ in range(100)]
            async with asyncio.timeout(PATIENCE_S):
                for _ in changes:
                    await here.acquire()
                assert not any(change.done() for change in changes)
                frozen.set()
                async with session.get(url / "count") as answer:
                    assert (answer.status, await answer.json()) == (200, {"count": 9})
            answered.set()
            for each in await asyncio.gather(*changes):
                assert each.status == 200
                each.close()
        await worker.app.on_before_shutdown.send()


async def test_what_was_forwarded_is_answered_or_refused_here(tmp_path: Path) -> None:
    """A forwarded request is not forwarded a second time."""
    seen: list[Any] = []
    async with served(answers("owner", 9, seen)) as owner:
        worker = Worker(tmp_path, owner=owner, copies=(owner,))
        async with worker.asked(headers={"X-Faust-Assigner-Hop": "1"}) as answer:
            assert (answer.status, answer.headers["X-Faust-Assigner-Role"]) == (503, "none")
    assert seen == []


async def test_a_change_goes_to_its_owner_or_nowhere(tmp_path: Path) -> None:
    """A copy would lose the change."""
    async with served(refuses) as owner, served(answers("standby", 9)) as copy:
        worker = Worker(tmp_path, owner=owner, copies=(copy,))
        worker.put(worker.counts, 0, "key", 7)
        worker.here[TP(LOG, 0)] = Here(lag=0, age_s=0.0)
        async with worker.asked("POST", data="1") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


async def test_a_worker_that_has_not_joined_says_so(tmp_path: Path) -> None:
    """Stock fails with 500 as long as its producer knows no partitions."""
    worker = Worker(tmp_path)

    def unknown(topic: str, key: bytes) -> TP:
        raise KeyError(topic)

    worker.app.producer.key_partition = unknown
    async with worker.asked() as answer:
        assert answer.status == 503
        assert "has not joined its group yet" in (await answer.json())["error"]


async def test_a_row_comes_from_the_partition_of_its_key(tmp_path: Path) -> None:
    """Stock reads the first database that has the key, for example another partition's copy."""
    worker = Worker(tmp_path)
    worker.put(worker.counts, 2, "key", 1)
    worker.put(worker.counts, 0, "key", 7)
    worker.here[TP(LOG, 0)] = Here(is_owner=True)
    async with worker.asked() as answer:
        assert (await answer.json(), answer.headers["X-Faust-Assigner-Role"]) == (
            {"count": 7},
            "owner",
        )


@pytest.mark.parametrize(("owns", "found"), [(True, 1), (False, None)])
async def test_an_owner_looks_where_else_it_is_the_owner_and_not_in_copies(
    tmp_path: Path, owns: bool, found: int | None
) -> None:
    """Other producers may place keys differently; an owner of all partitions finds each key."""
    worker = Worker(tmp_path)
    worker.put(worker.counts, 0, "other", 0)
    worker.put(worker.counts, 2, "key", 1)
    worker.here = {
        TP(LOG, 0): Here(is_owner=True),
        TP(LOG, 2): Here(is_owner=owns, lag=0, age_s=0.0),
    }
    async with worker.asked() as answer:
        assert await answer.json() == {"count": found}


async def test_a_partition_that_goes_while_the_view_works_is_not_read(tmp_path: Path) -> None:
    """Its files still exist; the row may belong to another worker by now."""
    worker = Worker(tmp_path)
    worker.put(worker.counts, 0, "key", 7)
    worker.here[TP(LOG, 0)] = Here(is_owner=True)

    async def slow(view: Any, request: Any) -> Any:
        del worker.here[TP(LOG, 0)]
        return await worker.read_count(view, request)

    worker.view = slow
    async with worker.asked() as answer:
        assert answer.status == 503
        assert "has just left this worker" in (await answer.json())["error"]


READS = {
    "the row": (lambda w: w.counts["key"], 200),
    "whether there is one": (lambda w: "key" in w.counts, 200),
    "a row of a window": (lambda w: w.hours["key"].now(), 200),
    "the row in a table beside it": (lambda w: w.names["key"], 200),
    "another key's row": (lambda w: w.counts.get("other"), 503),
    "another key's window": (lambda w: w.hours["other"].now(), 503),
    "how many rows there are": (lambda w: len(w.counts), 503),
    "all rows": (lambda w: list(w.counts.items()), 503),
    "a table that is partitioned in another way": (lambda w: w.far.get("key"), 503),
    "a table in memory": (lambda w: w.cache.get("key"), 503),
}


@pytest.mark.parametrize("what", READS)
async def test_from_a_copy_only_rows_of_the_key_are_read(tmp_path: Path, what: str) -> None:
    """The age of other rows is unknown; an owner's view may still read all rows."""
    read, status = READS[what]
    worker = Worker(tmp_path)
    for table in (worker.counts, worker.names, worker.far):
        worker.put(table, 0, "key", 7)
        worker.put(table, 1, "other", 8)
    for partition, key in enumerate(("key", "other")):
        window = worker.hours.table.window.current(worker.hours.table._relative_now())
        worker.put(worker.hours, partition, (key, window), 9)

    async def reading(view: Any, request: Any) -> Any:
        return worker.app.web.json(json.loads(json.dumps(str(read(worker)))))

    worker.view = reading
    for name in ("counts", "names", "hours", "far"):
        worker.here[TP(f"shop-{name}-changelog", 0)] = Here(lag=0, age_s=1.0)
    async with worker.asked() as answer:
        assert answer.status == status, await answer.text()
    worker.here[TP(LOG, 0)] = Here(is_owner=True)
    async with worker.asked() as answer:
        assert answer.status == 200


async def test_a_table_beside_it_is_vouched_for_by_itself(tmp_path: Path) -> None:
    """The answer is as old as its oldest row, and is refused if that row is too old."""
    worker = Worker(tmp_path)
    worker.put(worker.counts, 0, "key", 7)
    worker.put(worker.names, 0, "key", 7)

    async def both(view: Any, request: Any) -> Any:
        return worker.app.web.json([worker.counts["key"], worker.names["key"]])

    worker.view = both
    worker.here[TP(LOG, 0)] = Here(lag=1, age_s=1.0)
    for age_s, status in ((4.0, 200), (6.0, 503)):
        worker.here[TP("shop-names-changelog", 0)] = Here(lag=2, age_s=age_s)
        async with worker.asked() as answer:
            assert answer.status == status
            if status == 200:
                assert (
                    answer.headers["X-Faust-Assigner-Age"],
                    answer.headers["X-Faust-Assigner-Lag"],
                ) == ("4.000", "2")


async def test_a_view_that_was_asked_for_no_key_reads_as_ever() -> None:
    """Without a table route the view has no scope."""

    async def view(view: Any, request: Any) -> str:
        return "as ever"

    assert await scoped(view)(None, {}) == "as ever"


@pytest.mark.parametrize("request_", [SimpleNamespace(), SimpleNamespace(get=lambda key: "else's")])
async def test_a_view_may_be_asked_by_something_else_than_our_router(request_: Any) -> None:
    """A request of another server or a mock gets the view's own answer unchanged."""

    async def view(view: Any, request: Any) -> int:
        assert SCOPE.get() is None, "what is no reading of ours scopes nothing"
        return 42

    assert await scoped(view)(None, request_) == 42


@pytest.mark.parametrize("answer", [42, SimpleNamespace(headers=None)])
async def test_an_answer_without_headers_comes_back_as_it_is(tmp_path: Path, answer: Any) -> None:
    """A view may return any object to its wrapper."""
    worker = Worker(tmp_path)
    standing: Any = SimpleNamespace(app=worker.app, is_owner=lambda tp: True)
    reading = Reading(standing, worker.counts, "key", TP(LOG, 0), Who.OWNER_HERE)

    async def view(view: Any, request: Any) -> Any:
        return answer

    assert await scoped(view)(None, {KEY: reading}) is answer


@pytest.mark.parametrize(
    ("streams", "asked_for"),
    [([], b'"key"'), ([None], b"key"), (["raw", None], b"key"), (["json", None], b'"key"')],
)
async def test_a_key_is_placed_as_the_streams_have_it(
    tmp_path: Path, streams: list[str | None], asked_for: bytes
) -> None:
    """Stock hashes the changelog's JSON form, which puts plain keys into another partition."""
    worker = Worker(tmp_path)
    for number, serializer in enumerate(streams):
        worker.app.topics.add(
            worker.app.topic(f"orders-{number}", key_type=str, key_serializer=serializer)
        )
    assert worker.app.router._get_serialized_key(worker.counts, "key") == asked_for


async def test_a_topics_reader_that_is_dead_is_a_503(tmp_path: Path) -> None:
    """With ``topic_route`` no other worker reads the topic; stock fails with 500."""
    worker = Worker(tmp_path)
    worker.app.router.external_topic_key_store = lambda topic, key: DEAD  # type: ignore[method-assign]

    async def handle(request: Any) -> Any:
        topic = worker.app.topic("orders")
        return await worker.app.router.route_topic_req(topic, "key", worker.app.web, request)

    async with (
        served(handle) as url,
        ClientSession() as session,
        session.get(url / "orders") as answer,
    ):
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    await worker.app.on_before_shutdown.send()
