"""Which workers are asked for a key, their order and time limits, and the answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from faust.app.router import Router
from faust.exceptions import SameNode
from faust.types import TP
from faust.web.exceptions import ServiceUnavailable
from yarl import URL

from faust_assigner.app import settings
from faust_assigner.app.host.mixing import over
from faust_assigner.app.queries import router as module
from faust_assigner.app.queries.decide import Here, Who
from faust_assigner.app.queries.forwarding import HOP
from faust_assigner.app.queries.reading import KEY, ROLE
from faust_assigner.app.queries.router import MARK, SHUNNED_S, KeyRouter

LOG = "shop-counts-changelog"
OWN, OWNER, COPY, LAST = (URL(f"http://w{n}:6066") for n in range(4))
COUNTS: Any = SimpleNamespace(changelog_topic=SimpleNamespace(get_topic_name=lambda: LOG))


class Request(dict[Any, Any]):
    """A request, direct or forwarded."""

    def __init__(self, method: str = "GET", *, is_forwarded: bool = False) -> None:
        self.method, self.headers = method, {HOP: "1"} if is_forwarded else {}


class Answer:
    """A worker's answer."""

    def __init__(self, status: int = 200, role: str | None = None) -> None:
        self.status, self.headers = status, {} if role is None else {ROLE: role}


class Workers:
    """The forwarding part: workers answer by URL, and ``asked`` lists each request."""

    def __init__(self) -> None:
        self.answers: dict[URL, Any] = {}
        self.asked: list[URL] = []

    async def forward(self, url: URL, web: Any, request: Any) -> Any:
        """Note the request and return the worker's answer."""
        self.asked.append(url)
        answer = self.answers.get(url, Answer())
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Careful(Router):  # type: ignore[misc]
    """The base router."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def route_topic_req(self, topic: Any, key: Any, web: Any, request: Any) -> Any:
        """Forward the request to the topic's reader."""
        assert (topic, key, type(web), type(request)) == ("orders", "a", SimpleNamespace, Request)
        return await self.forwarding.forward(OWNER, None, None)


class Made:
    """The router of a worker at ``OWN``; ``OWNER`` owns the key's partition 3."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, here: Here, bound_s: float = 30.0) -> None:
        self.now, self.owner, self.joined = 100.0, OWNER, True
        self.here, self.copies = here, [COPY, LAST]
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        monkeypatch.setattr(settings, "read", lambda app, setting: ())
        assignor = SimpleNamespace(owner_of=self._owner_of, standbys_of=lambda tp: self.copies)
        app = SimpleNamespace(
            assignor=assignor,
            producer=SimpleNamespace(key_partition=self._partition_of),
            tables={"counts": COUNTS},
            conf=SimpleNamespace(canonical_url=OWN),
        )
        standing = SimpleNamespace(
            app=SimpleNamespace(tables={}),
            bound_s=bound_s,
            here=lambda tp: self.here,
            is_owner=lambda tp: self.here.is_owner,
        )
        setattr(app, MARK, standing)
        router = type("Made", (over(KeyRouter, Careful),), {})  # type: ignore[arg-type]
        router._get_serialized_key = staticmethod(lambda table, key: key.encode())
        self.router: Any = router(app)
        self.router.forwarding = self.workers = Workers()
        self.web = SimpleNamespace(json=lambda said, *, status, headers: (status, said["error"]))

    def _partition_of(self, topic: str, key: bytes) -> TP:
        if not self.joined:
            raise KeyError(topic)
        assert key == b"a"
        return TP(topic, 3)

    def _owner_of(self, tp: TP) -> URL:
        if self.owner is None:
            raise KeyError(tp)
        return self.owner

    async def get(self, *method: str, is_forwarded: bool = False) -> Any:
        """Return the answer, or the role in which this worker answers itself."""
        request = Request(*method, is_forwarded=is_forwarded)
        try:
            return await self.router.route_req("counts", "a", self.web, request)
        except SameNode:
            return request[KEY].who

    @property
    def asked(self) -> list[URL]:
        """Return the asked workers in order."""
        return self.workers.asked


async def test_fausts_own_requests_go_through_the_forwarding_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The forwarding part sets their time limit."""
    it, said = Made(monkeypatch, Here()), list[Any]()

    async def forward(*asked: Any, **options: Any) -> str:
        said.append((asked, options))
        return "answer"

    it.router.forwarding = SimpleNamespace(forward=forward)
    assert await it.router._route_req(COPY, "web", "request") == "answer"
    assert said == [((COPY, "web", "request"), {})]


NOT_HERE, FRESH = Here(), Here(lag=2, age_s=1.0)


async def test_the_owner_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading has the key, its partition and its table."""
    it = Made(monkeypatch, Here(is_owner=True))
    assert await it.get() is Who.OWNER_HERE
    request = Request()
    with pytest.raises(SameNode):
        await it.router.route_req("counts", "a", it.web, request)
    reading = request[KEY]
    assert (reading.key, reading.tp, reading.table) == ("a", TP(LOG, 3), COUNTS)
    assert it.asked == []


async def test_another_worker_is_asked_as_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner answers reads and writes."""
    it = Made(monkeypatch, FRESH)
    for method in ("GET", "HEAD", "POST"):
        assert (await it.get(method)).status == 200
    assert it.asked == [OWNER] * 3


@pytest.mark.parametrize(
    "failure",
    [
        aiohttp.ClientError(),
        TimeoutError(),
        OSError(),
        RuntimeError("closed"),
        ServiceUnavailable(),
        SameNode(),
        Answer(503, "none"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_copy_stands_in_for_an_owner_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    """The local copy answers first, else the remote copies in order."""
    it = Made(monkeypatch, FRESH)
    it.workers.answers[OWNER] = failure
    assert await it.get() is Who.COPY_HERE
    it.here, it.workers.answers[COPY] = NOT_HERE, failure
    it.router._shunned.clear()
    it.workers.asked.clear()
    assert (await it.get()).status == 200
    assert it.asked == [OWNER, COPY, LAST]


@pytest.mark.parametrize("answer", [Answer(503), Answer(503, "owner"), Answer(404, "none")])
async def test_an_answer_that_its_view_gave_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    """The app's own errors pass as well; no copy is asked."""
    it = Made(monkeypatch, NOT_HERE)
    it.workers.answers[OWNER] = answer
    assert await it.get() is answer
    assert it.asked == [OWNER]


async def test_a_worker_that_did_not_answer_is_asked_last_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This needs a copy that can answer; a 503 with role "none" is no silence."""
    it = Made(monkeypatch, NOT_HERE)
    it.workers.answers[OWNER] = OSError()
    await it.get()
    it.workers.asked.clear()
    it.now += SHUNNED_S - 0.1
    await it.get()
    assert it.asked == [COPY]
    it.copies = []
    assert (await it.get())[0] == 503
    assert it.asked == [COPY, OWNER], "nobody else is there"
    it.now += SHUNNED_S
    it.workers.answers[OWNER] = Answer(503, "none")
    await it.get()
    assert it.router._shunned[OWNER] <= it.now


async def test_a_copy_that_grows_old_while_the_owner_is_asked_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The router asks the next copy."""
    it = Made(monkeypatch, FRESH)

    class Silent(OSError):
        def __init__(self) -> None:
            it.here = Here(lag=2, age_s=31.0)

    forward = it.workers.forward

    async def slow(url: URL, *args: Any, **options: Any) -> Any:
        if url == OWNER:
            raise Silent
        return await forward(url, *args, **options)

    it.workers.forward = slow
    assert (await it.get()).status == 200
    assert it.asked == [COPY]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("not joined", "has not joined"),
        ("no owner", "being moved or restored"),
        ("silent", "does not answer"),
    ],
)
async def test_nobody_who_can_answer_means_503_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, case: str, reason: str
) -> None:
    """Each possible worker is asked before."""
    it = Made(monkeypatch, NOT_HERE)
    it.joined, it.copies = case != "not joined", []
    if case == "no owner":
        it.owner = None  # type: ignore[assignment]
    it.workers.answers[OWNER] = OSError()
    status, said = await it.get()
    assert (status, reason in said) == (503, True)
    assert it.asked == ([OWNER] if case == "silent" else [])


@pytest.mark.parametrize("failure", [None, OSError(), ServiceUnavailable(), ValueError("a bug")])
async def test_a_request_for_a_topic_is_for_its_reader_alone(
    monkeypatch: pytest.MonkeyPatch, failure: Exception | None
) -> None:
    """A silent reader causes a 503; a bug is raised."""
    it = Made(monkeypatch, FRESH)
    if failure is not None:
        it.workers.answers[OWNER] = failure
    asked = it.router.route_topic_req("orders", "a", it.web, Request())
    if isinstance(failure, ValueError):
        with pytest.raises(ValueError, match="bug"):
            await asked
    else:
        answer = await asked
        if failure is None:
            assert answer.status == 200
        else:
            assert answer == (
                503,
                "Cannot answer for this key right now: the worker with its partition does not "
                "answer, or is unknown",
            )


# -- the location of a key


class Topic:
    """A topic with these names, whose keys ``make`` serializes."""

    def __init__(self, make: Any, *names: str) -> None:
        self.topics, self._make = names, make

    def prepare_key(self, key: str, _: None) -> tuple[bytes, None]:
        """Serialize the key."""
        return self._make(key), None


def serialized(*topics: Topic, use_partitioner: bool = False, joined: bool = True) -> bytes:
    """Serialize "a" for a table beside these topics; "orders" and "clicks" are in its group."""
    groups = {LOG: 1, "orders": 1, "clicks": 1, "other": 2} if joined else {}
    app = SimpleNamespace(
        topics=topics,
        tables=SimpleNamespace(changelog_topics={LOG}),
        assignor=SimpleNamespace(group_for_topic=groups.__getitem__),
    )
    changelog = Topic(lambda key: b"changelog", LOG)
    changelog.get_topic_name = lambda: LOG  # type: ignore[attr-defined]
    table = SimpleNamespace(app=app, changelog_topic=changelog, use_partitioner=use_partitioner)
    made: Any = over(KeyRouter, Router)  # type: ignore[arg-type]
    return bytes(made._get_serialized_key(table, "a"))


def broken(key: str) -> bytes:
    """Fail as for a key of a different type."""
    raise TypeError(key)


RAW, JSON = (lambda key: b"raw"), (lambda key: b"json")


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ((Topic(RAW, "orders"),), b"raw"),
        ((Topic(RAW, "orders"), Topic(RAW, "clicks")), b"raw"),
        ((Topic(RAW, "orders"), Topic(JSON, "clicks")), b"changelog"),
        ((Topic(RAW, "orders"), Topic(broken, "clicks")), b"raw"),
        ((Topic(RAW, "orders"), Topic(JSON, "other")), b"raw"),
        ((Topic(RAW, "orders"), Topic(JSON, LOG)), b"raw"),
        ((Topic(RAW, "orders"), Topic(JSON, "unknown")), b"raw"),
        ((Topic(RAW, "other", "orders"),), b"raw"),
        ((Topic(RAW, "other"),), b"changelog"),
        ((SimpleNamespace(topics=None), SimpleNamespace(), Topic(RAW, "orders")), b"raw"),
        ((), b"changelog"),
    ],
)
def test_a_key_has_the_form_that_it_has_in_the_streams_beside_the_table(
    topics: tuple[Topic, ...], expected: bytes
) -> None:
    """If these topics disagree, the changelog's form counts."""
    assert serialized(*topics) == expected


def test_rows_that_are_placed_by_the_table_have_the_form_of_its_changelog() -> None:
    """The same holds before the worker joins the group."""
    orders = Topic(RAW, "orders")
    assert serialized(orders, use_partitioner=True) == b"changelog"
    assert serialized(orders, joined=False) == b"changelog"


async def test_each_silent_worker_is_asked_last_for_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After that time the worker has its turn again; the local worker is never delayed."""
    it = Made(monkeypatch, NOT_HERE)
    it.workers.answers = {OWNER: OSError(), COPY: TimeoutError()}
    await it.get()
    assert it.asked == [OWNER, COPY, LAST]
    it.now += SHUNNED_S / 2
    it.workers.answers = {LAST: OSError()}
    it.workers.asked.clear()
    await it.get()
    assert it.asked == [LAST, OWNER], "in their order among those that are asked last"
    it.now += SHUNNED_S / 2
    it.workers.asked.clear()
    await it.get()
    assert it.asked == [OWNER], "its time is over, and it answers"
    it.workers.asked.clear()
    it.workers.answers, it.copies = {OWNER: OSError()}, [LAST, COPY]
    await it.get()
    assert it.asked == [OWNER, COPY], "the third is still put off"
    it.workers.asked.clear()
    await it.get()
    assert it.asked == [COPY], "the owner was silent again, and is put off anew"


async def test_a_forwarded_request_goes_no_further_and_one_that_changes_something_to_the_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The header and the method decide."""
    it = Made(monkeypatch, NOT_HERE)
    status, said = await it.get("GET", is_forwarded=True)
    assert (status, "being moved or restored" in said, it.asked) == (503, True, [])
    it.workers.answers[OWNER] = OSError()
    for method in ("POST", "DELETE", "PUT"):
        assert (await it.get(method))[0] == 503
    assert it.asked == [OWNER] * 3
    it.here = FRESH
    assert await it.get("GET", is_forwarded=True) is Who.COPY_HERE


async def test_what_is_known_of_the_owner_is_asked_for_the_keys_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copies and this worker's own state are asked for the same partition."""
    it, asked = Made(monkeypatch, NOT_HERE), list[Any]()
    assignor = it.router.app.assignor
    assignor.owner_of = lambda tp: asked.append(("owner", tp)) or OWNER
    assignor.standbys_of = lambda tp: asked.append(("copies", tp)) or ()
    it.router.standing.here = lambda tp: asked.append(("here", tp)) or NOT_HERE
    await it.get()
    assert sorted(asked) == [(what, TP(LOG, 3)) for what in ("copies", "here", "owner")]
