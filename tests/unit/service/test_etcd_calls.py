"""The calls of etcd's store on a fake channel: messages, pages, errors, endpoints, tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service.errors import (
    Compacted,
    LeaseLost,
    QuotaExceeded,
    StoreError,
    StoreUnavailable,
    TooManyOperations,
)
from faust_assigner.service.store import etcd
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import (
    MAX_OPERATIONS,
    Batch,
    Compare,
    Delete,
    Event,
    Field,
    KeyValue,
    Lease,
    Listing,
    Put,
    TxnResult,
)
from faust_assigner.service.store.etcd import EtcdStore
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb

CODE = grpc.StatusCode
LEADER = ("hasleader", "true")


def failed(code: grpc.StatusCode, details: str = "x") -> grpc.aio.AioRpcError:
    """A gRPC error."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, details)


class Stream:
    """A fake call with messages in both directions."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.is_cancelled = answers, False
        self.sent: list[Any] = []

    async def write(self, request: Any) -> None:
        """Record the request."""
        self.sent.append(request)

    async def read(self) -> Any:
        """Return the next answer, or the end."""
        answer = self.answers.pop(0) if self.answers else grpc.aio.EOF
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.sleep(3_600.0)
        return answer

    def cancel(self) -> None:
        """Note the end."""
        self.is_cancelled = True


class Stage:
    """A store with several endpoints; ``answers`` are those of the calls in turn."""

    def __init__(self, *answers: Any, endpoints: int = 3, **access: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, int, Any, dict[str, Any]]] = []
        self.streams: list[Stream] = []
        self.observed: list[tuple[str, str | None]] = []
        names = tuple(f"http://h{number}:1" for number in range(endpoints))
        self.store = EtcdStore(
            EtcdAccess(endpoints=names, **access),
            observe=lambda name, took_s, error: self.observed.append((name, error)),
        )
        self.number = 0
        connections: Any = self.store._calls._connections
        connections.of = self._of

    def _of(self, number: int) -> Any:
        self.number = number
        return self

    def unary_unary(self, path: str, **_: Any) -> Callable[..., Any]:
        """A unary call."""
        number = self.number

        async def call(request: Any, **options: Any) -> Any:
            self.calls.append((path.removeprefix("/etcdserverpb."), number, request, options))
            answer = self.answers.pop(0)
            if isinstance(answer, asyncio.Future):
                answer = await answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def stream_stream(self, path: str, **_: Any) -> Callable[..., Any]:
        """A streaming call."""
        number = self.number

        def call(**options: Any) -> Stream:
            self.calls.append((path.removeprefix("/etcdserverpb."), number, None, options))
            self.streams.append(Stream(self.answers.pop(0)))
            return self.streams[-1]

        return call


def kv(key: str, revision: int, **more: Any) -> pb.KeyValue:
    """A key-value pair of etcd."""
    return pb.KeyValue(
        key=key.encode(), value=b"v" + key.encode(), create_revision=revision - 1,
        mod_revision=revision, version=2, **more,
    )  # fmt: skip


def read(key: str, revision: int, lease: int = 0) -> KeyValue:
    """The same pair as the store returns it."""
    return KeyValue(key, b"v" + key.encode(), revision - 1, revision, 2, lease)


async def test_a_key_is_read_field_by_field() -> None:
    """A missing key is None; each call has the deadline and requires a leader."""
    stage = Stage(
        pb.RangeResponse(kvs=[kv("/g/a", 7, lease=9), kv("/g/b", 8)]),
        pb.RangeResponse(),
        deadline_s=2.5,
    )
    assert await stage.store.get("/g/a") == read("/g/a", 7, 9)
    assert await stage.store.get("/g/x") is None
    options = {"timeout": 2.5, "metadata": (LEADER,)}
    assert stage.calls[0] == ("KV/Range", 0, pb.RangeRequest(key=b"/g/a"), options)
    assert stage.observed == [("KV/Range", None)] * 2


async def test_a_listing_reads_page_after_page_at_the_revision_of_the_first() -> None:
    """Each page begins after the last key of the previous page."""
    stage = Stage(
        pb.RangeResponse(header={"revision": 50}, kvs=[kv("/g/a", 7), kv("/g/b", 8)], more=True),
        pb.RangeResponse(header={"revision": 60}, kvs=[kv("/g/c", 9)], more=True),
        pb.RangeResponse(header={"revision": 70}),
    )
    found = await stage.store.list("/g/")
    assert found == Listing(50, (read("/g/a", 7), read("/g/b", 8), read("/g/c", 9)))
    common: dict[str, Any] = {"range_end": b"/g0", "limit": etcd.PAGE}
    assert [request for _, _, request, _ in stage.calls] == [
        pb.RangeRequest(key=b"/g/", **common),
        pb.RangeRequest(key=b"/g/b\0", revision=50, **common),
        pb.RangeRequest(key=b"/g/c\0", revision=50, **common),
    ]


async def test_a_page_that_is_too_large_is_asked_for_in_eighths() -> None:
    """The page shrinks down to one key; then, or for any other cause, the error is raised."""
    large = failed(CODE.RESOURCE_EXHAUSTED, "message larger than max")
    stage = Stage(
        large, large, pb.RangeResponse(kvs=[kv("/g/a", 7)], more=True), pb.RangeResponse()
    )
    assert len((await stage.store.list("/g/")).items) == 1
    assert [request.limit for _, _, request, _ in stage.calls] == [2_000, 250, 31, 31]
    assert {number for _, number, _, _ in stage.calls} == {0}
    stage = Stage(*[large] * 9)
    with pytest.raises(StoreUnavailable, match="larger than max"):
        await stage.store.list("/g/")
    assert [request.limit for _, _, request, _ in stage.calls] == [2_000, 250, 31, 3, 1]


async def test_a_transaction_is_sent_field_by_field() -> None:
    """The result has the answer's revision in both cases."""
    stage = Stage(
        pb.TxnResponse(succeeded=True, header={"revision": 80}),
        pb.TxnResponse(succeeded=False, header={"revision": 81}),
    )
    compares = [
        Compare("/v", Field.VALUE, b"x"),
        Compare("/n", Field.VERSION, 2),
        Compare("/m", Field.MOD_REVISION, 3),
        Compare("/c", Field.CREATE_REVISION, 4),
        Compare("/l", Field.LEASE, 5),
    ]
    writes = [Put("/a", b"1", 9), Put("/b", b""), Delete("/c")]
    assert await stage.store.txn(compares, writes) == TxnResult(True, 80)
    assert await stage.store.txn([], []) == TxnResult(False, 81)
    equal = pb.Compare.EQUAL
    assert stage.calls[0][:3] == (
        "KV/Txn",
        0,
        pb.TxnRequest(
            compare=[
                pb.Compare(result=equal, target=pb.Compare.VALUE, key=b"/v", value=b"x"),
                pb.Compare(result=equal, target=pb.Compare.VERSION, key=b"/n", version=2),
                pb.Compare(result=equal, target=pb.Compare.MOD, key=b"/m", mod_revision=3),
                pb.Compare(result=equal, target=pb.Compare.CREATE, key=b"/c", create_revision=4),
                pb.Compare(result=equal, target=pb.Compare.LEASE, key=b"/l", lease=5),
            ],
            success=[
                pb.RequestOp(request_put=pb.PutRequest(key=b"/a", value=b"1", lease=9)),
                pb.RequestOp(request_put=pb.PutRequest(key=b"/b")),
                pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"/c")),
            ],
        ),
    )


async def test_a_transaction_that_etcd_would_refuse_is_not_sent() -> None:
    """129 compares, 129 writes or a repeated key are refused; 128 operations are sent."""
    stage = Stage(*[pb.TxnResponse()] * 2)
    compares = [Compare(str(n), Field.VERSION, 0) for n in range(MAX_OPERATIONS + 1)]
    writes = [Put(str(n), b"") for n in range(MAX_OPERATIONS + 1)]
    for operations in ((compares, []), ([], writes)):
        with pytest.raises(TooManyOperations, match=f"{MAX_OPERATIONS + 1} operations"):
            await stage.store.txn(*operations)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a key twice"):
        await stage.store.txn([], [Put("a", b""), Put("b", b""), Delete("a")])
    assert stage.calls == []
    await stage.store.txn(compares[:-1], writes[:-1])


@pytest.mark.parametrize(("ttl_s", "asked"), [(2.0, 2), (2.1, 3), (0.2, 1), (0.0, 1)])
async def test_a_lease_is_granted_for_whole_seconds(ttl_s: float, asked: int) -> None:
    """The granted time counts; an error in the answer is raised."""
    stage = Stage(
        pb.LeaseGrantResponse(ID=77, TTL=5),
        pb.LeaseGrantResponse(error="no"),
        pb.LeaseRevokeResponse(),
    )
    assert await stage.store.grant(ttl_s) == Lease(77, 5.0)
    with pytest.raises(StoreError, match="no lease: no"):
        await stage.store.grant(ttl_s)
    await stage.store.revoke(77)
    assert [call[:3] for call in stage.calls] == [
        ("Lease/LeaseGrant", 0, pb.LeaseGrantRequest(TTL=asked)),
        ("Lease/LeaseGrant", 0, pb.LeaseGrantRequest(TTL=asked)),
        ("Lease/LeaseRevoke", 0, pb.LeaseRevokeRequest(ID=77)),
    ]


async def test_what_is_already_gone_is_no_error() -> None:
    """A revoked lease and a compacted revision are no errors; other errors are raised."""
    gone, compacted = (
        failed(CODE.NOT_FOUND, "lease not found"),
        failed(CODE.OUT_OF_RANGE, "compacted"),
    )
    stage = Stage(
        gone, compacted, pb.CompactionResponse(), failed(CODE.INTERNAL), failed(CODE.INTERNAL)
    )
    await stage.store.revoke(5)
    await stage.store.compact(9)
    await stage.store.compact(10)
    assert stage.calls[2][:3] == ("KV/Compact", 0, pb.CompactionRequest(revision=10))
    for call in (stage.store.revoke(5), stage.store.compact(9)):
        with pytest.raises(StoreUnavailable):
            await call


@pytest.mark.parametrize(
    ("answers", "expected", "number"),
    [
        ([pb.LeaseKeepAliveResponse(TTL=7)], 7.0, 0),
        ([pb.LeaseKeepAliveResponse(TTL=0)], LeaseLost, 0),
        ([pb.LeaseKeepAliveResponse(TTL=-1)], LeaseLost, 0),
        ([], StoreUnavailable, 1),
        ([failed(CODE.UNAVAILABLE)], StoreUnavailable, 1),
        ([asyncio.InvalidStateError()], StoreUnavailable, 1),
        ([failed(CODE.NOT_FOUND, "no lease")], LeaseLost, 0),
    ],
)
async def test_a_renewal_is_one_message_on_a_stream_of_its_own(
    answers: list[Any], expected: Any, number: int
) -> None:
    """The shorter deadline counts; the stream is always cancelled; silence changes the endpoint."""
    stage = Stage(list(answers), pb.RangeResponse(), deadline_s=3.0)
    if isinstance(expected, float):
        assert await stage.store.keep_alive(77, timeout_s=1.5) == expected
        stage.answers.insert(0, [pb.LeaseKeepAliveResponse(TTL=7)])
        await stage.store.keep_alive(77, timeout_s=9.0)
        stage.answers.insert(0, [pb.LeaseKeepAliveResponse(TTL=7)])
        await stage.store.keep_alive(77)
        timeouts = [options["timeout"] for _, _, _, options in stage.calls]
        assert timeouts == [1.5, 3.0, 3.0]
    else:
        with pytest.raises(expected):
            await stage.store.keep_alive(77)
    assert stage.streams[0].sent == [pb.LeaseKeepAliveRequest(ID=77)]
    assert all(stream.is_cancelled for stream in stage.streams)
    await stage.store.get("/g/a")
    assert stage.calls[-1][1] == number
    assert stage.observed[0][0] == "Lease/LeaseKeepAlive"


# -- errors, endpoints and tokens --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "details", "error", "turns"),
    [
        (CODE.UNAVAILABLE, "down", StoreUnavailable, True),
        (CODE.DEADLINE_EXCEEDED, "late", StoreUnavailable, True),
        (CODE.NOT_FOUND, "requested lease not found", LeaseLost, False),
        (CODE.NOT_FOUND, "something else", StoreUnavailable, True),
        (CODE.OUT_OF_RANGE, "revision has been compacted", Compacted, False),
        (CODE.OUT_OF_RANGE, "future revision", StoreUnavailable, True),
        (CODE.RESOURCE_EXHAUSTED, "database space exceeded", QuotaExceeded, False),
        (CODE.RESOURCE_EXHAUSTED, "too many requests", StoreUnavailable, False),
        (CODE.UNAUTHENTICATED, "x", StoreError, False),
        (CODE.PERMISSION_DENIED, "x", StoreError, False),
        (CODE.INVALID_ARGUMENT, "invalid auth token", StoreError, False),
        (CODE.UNKNOWN, "auth: revision in header is old", StoreError, False),
        (CODE.INVALID_ARGUMENT, "revision of auth store is old", StoreError, False),
        (CODE.INVALID_ARGUMENT, "user name is empty", StoreError, False),
    ],
)
async def test_each_answer_of_etcd_has_its_error(
    code: grpc.StatusCode, details: str, error: type[Exception], turns: bool
) -> None:
    """Only an endpoint that cannot serve is left for the next endpoint."""
    stage = Stage(failed(code, details), pb.RangeResponse())
    with pytest.raises(error) as raised:
        await stage.store.txn([], [Put("a", b""), Put("b", b"", 9)])
    assert type(raised.value) is error
    if error in (StoreUnavailable, StoreError):
        assert str(raised.value).startswith("etcd at h0:1")
    if isinstance(raised.value, LeaseLost):
        assert raised.value.lease_id == 9
    await stage.store.get("/g/a")
    assert stage.calls[-1][1] == turns
    assert stage.observed == [("KV/Txn", error.__name__), ("KV/Range", None)]


async def test_the_endpoints_are_used_in_turn_and_one_alone_for_ever() -> None:
    """Each failure moves on by one endpoint."""
    down = failed(CODE.UNAVAILABLE)
    for endpoints, used in ((3, [0, 1, 2, 3, 4]), (1, [0, 0, 0, 0, 0])):
        stage = Stage(*[down] * 4, pb.RangeResponse(), endpoints=endpoints)
        for number in range(4):
            with pytest.raises(StoreUnavailable, match=f"etcd at h{number % endpoints}:1"):
                await stage.store.get("/g/a")
        await stage.store.get("/g/a")
        assert [number for _, number, _, _ in stage.calls] == used


async def test_a_user_gets_a_token_once_and_anew_after_a_refusal_and_at_the_next_endpoint() -> None:
    """Every call carries the token."""
    ok = pb.RangeResponse()
    stage = Stage(
        pb.AuthenticateResponse(token="t1"), ok, ok, failed(CODE.UNAUTHENTICATED),
        pb.AuthenticateResponse(token="t2"), failed(CODE.UNAVAILABLE),
        pb.AuthenticateResponse(token="t3"), ok, user="u", password="p",
    )  # fmt: skip
    for number in range(5):
        if number in (2, 3):
            with pytest.raises(StoreError):
                await stage.store.get("/g/a")
        else:
            await stage.store.get("/g/a")
    asked = pb.AuthenticateRequest(name="u", password="p")
    said = [
        request if path == "Auth/Authenticate" else dict(options["metadata"]).get("token")
        for path, _, request, options in stage.calls
    ]
    assert said == [asked, "t1", "t1", "t1", asked, "t2", asked, "t3"]
    assert stage.calls[1][3]["metadata"][0] == LEADER
    assert stage.calls[-1][1] == 1


@pytest.mark.parametrize("is_refused", [True, False])
async def test_calls_that_wait_for_a_token_share_one_request_for_it(is_refused: bool) -> None:
    """etcd hashes the password for each request; many at once would all exceed their deadline."""
    token: asyncio.Future[Any] = asyncio.Future()
    ok = pb.RangeResponse()
    stage = Stage(token, ok, ok, ok, user="u", password="p")
    calls = [asyncio.create_task(stage.store.get("/g/a")) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()  # the others still get the token
    await asyncio.sleep(0)
    answer = pb.AuthenticateResponse(token="t1")
    token.set_result(failed(CODE.UNAVAILABLE) if is_refused else answer)
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    expected = StoreUnavailable if is_refused else type(None)
    assert [type(one) for one in done[1:]] == [expected] * 2
    assert [path for path, *_ in stage.calls].count("Auth/Authenticate") == 1


async def test_a_store_that_closes_while_it_waits_for_a_token_leaves_no_task() -> None:
    """The request for the token ends with the store."""
    stage = Stage(asyncio.Future(), user="u", password="p")
    call = asyncio.create_task(stage.store.get("/g/a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await stage.store.close()
    await asyncio.gather(call, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_user_is_not_checked_while_authentication_is_off() -> None:
    """Calls carry no token; any other refusal of the user is raised."""
    stage = Stage(
        failed(CODE.FAILED_PRECONDITION, "etcdserver: authentication is not enabled"),
        pb.RangeResponse(), pb.RangeResponse(), user="u",
    )  # fmt: skip
    await stage.store.get("/g/a")
    await stage.store.get("/g/a")
    assert [options.get("metadata") for *_, options in stage.calls] == [None, (LEADER,), (LEADER,)]
    assert stage.calls[0][2] == pb.AuthenticateRequest(name="u", password="")
    stage = Stage(failed(CODE.UNAVAILABLE), user="u")
    with pytest.raises(StoreUnavailable):
        await stage.store.get("/g/a")


# -- watches -----------------------------------------------------------------------------------------


def changed(*events: pb.Event, **more: Any) -> pb.WatchResponse:
    """A message of a watch."""
    return pb.WatchResponse(events=events, **more)


def put(key: str, revision: int) -> pb.Event:
    """A put event."""
    return pb.Event(type=pb.Event.PUT, kv=kv(key, revision))


async def test_a_watch_begins_at_its_revision_and_joins_fragments() -> None:
    """The last fragment may be empty; the revision is that of the last event."""
    deletion = pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=b"/g/b", mod_revision=12))
    stage = Stage(
        [
            changed(created=True),
            changed(put("/g/a", 11), fragment=True, header={"revision": 99}),
            changed(deletion, fragment=True, header={"revision": 99}),
            changed(header={"revision": 99}),
            changed(header={"revision": 99}),
            changed(put("/g/c", 15), fragment=True),
            changed(put("/g/d", 16), header={"revision": 99}),
        ],
        pb.RangeResponse(),
    )
    watch = stage.store.watch("/g/", 10)
    found = [await anext(watch), await anext(watch)]
    with pytest.raises(StoreUnavailable, match="the watch ended"):
        await anext(watch)
    assert found == [
        Batch(12, (Event("/g/a", 11, read("/g/a", 11)), Event("/g/b", 12, None))),
        Batch(16, (Event("/g/c", 15, read("/g/c", 15)), Event("/g/d", 16, read("/g/d", 16)))),
    ]
    request = pb.WatchCreateRequest(key=b"/g/", range_end=b"/g0", start_revision=10, fragment=True)
    assert stage.streams[0].sent == [pb.WatchRequest(create_request=request)]
    assert stage.calls[0][3] == {"metadata": (LEADER,)}
    assert stage.streams[0].is_cancelled
    await stage.store.get("/g/a")
    assert stage.calls[-1][1] == 1


@pytest.mark.parametrize(
    ("answers", "error", "text", "number"),
    [
        ([changed(canceled=True, compact_revision=40)], Compacted, "10 .* 40", 0),
        ([changed(canceled=True, cancel_reason="no leader")], StoreUnavailable, "no leader", 1),
        ([changed(canceled=True)], StoreUnavailable, "no reason given", 1),
        (
            [changed(), failed(CODE.UNAVAILABLE, "gone")],
            StoreUnavailable,
            "h0:1: UNAVAILABLE: gone",
            1,
        ),
        ([None], StoreUnavailable, "h0:1: no answer in time", 1),
        ([changed(), asyncio.InvalidStateError("broken")], StoreUnavailable, "broken", 1),
    ],
)
async def test_a_watch_that_ends_says_why(
    answers: list[Any], error: type[Exception], text: str, number: int
) -> None:
    """A compacted history is no fault of the endpoint; all other ends change the endpoint."""
    stage = Stage(answers, pb.RangeResponse(), deadline_s=0.05)
    with pytest.raises(error, match=text):
        await anext(stage.store.watch("/g/", 10))
    assert stage.streams[0].is_cancelled
    await stage.store.get("/g/a")
    assert stage.calls[-1][1] == number


async def test_a_closed_store_is_not_asked_any_more() -> None:
    """All kinds of calls are refused."""
    stage = Stage()
    await stage.store.close()
    for call in (stage.store.get("a"), stage.store.keep_alive(5), stage.store.version()):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"/g/", b"/g0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"a\xfe", b"a\xff")],
)
def test_the_end_of_a_prefix_is_the_first_key_behind_it(prefix: bytes, end: bytes) -> None:
    """The last byte below 255 is incremented; without one, the range has no end."""
    assert etcd._prefix_end(prefix) == end
