"""Small parts of the service at their limits: leases, condition, digests, certificates, statuses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import grpc
import grpc.aio
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.service.certificates import Pem, PemFiles, stamp_of
from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.errors import (
    BadRequest,
    Expelled,
    LeaseLost,
    NotFound,
    Replaced,
    ServiceRefused,
    StoreError,
    StoreUnavailable,
    TooManyClaims,
    WrongCaller,
    WrongPhase,
)
from faust_assigner.service.faults import Unauthenticated, Unimplemented, code_of, refusal
from faust_assigner.service.instance_state import InstanceState
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.serving.registrar import Registrar
from faust_assigner.service.store.base import Delete, Put, Write, absent, unchanged
from faust_assigner.service.store.rewrite import ATTEMPTS, rewritten
from faust_assigner.service.tasks import cancel_and_wait, first
from faust_assigner.service.view import Change, View
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.support.certificates import Authority
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL

# -- leases ------------------------------------------------------------------------------------------


class Store:
    """Grants leases of 60 s, and renews them with these answers in turn; a call takes a second."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[float, int, float | None]] = []
        self.revoked: list[int] = []

    async def grant(self, ttl_s: float) -> Any:
        """Grant a lease for longer than requested."""
        await asyncio.sleep(1.0)
        return SimpleNamespace(lease_id=7, ttl_s=60.0)

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Answer after a second."""
        self.calls.append((asyncio.get_running_loop().time() - 1_000.0, lease_id, timeout_s))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        await asyncio.sleep(1.0)
        if isinstance(answer, Exception):
            raise answer
        return float(answer)

    async def revoke(self, lease_id: int) -> None:
        """Record the call."""
        self.revoked.append(lease_id)
        if self.answers and isinstance(self.answers[-1], Exception):
            raise self.answers[-1]


def leased(story: Callable[[Any, HeldLease], Awaitable[None]], *answers: Any) -> None:
    """Run a scenario with a lease that was requested at 0 s, for 30 s."""

    async def whole() -> None:
        store: Any = Store(*answers)
        await story(store, await HeldLease.grant(store, LoopClock(), 30.0))

    virtually(whole)


def test_a_lease_is_held_for_two_thirds_of_the_shorter_time_from_its_request() -> None:
    """Each renewal counts from its own request."""

    async def story(store: Any, lease: HeldLease) -> None:
        assert (lease.lease_id, lease.granted_s, lease.renewed_s, lease.left_s) == (
            7,
            60.0,
            1.0,
            19.0,
        )
        await asyncio.sleep(18.5)
        assert (lease.left_s, lease.is_held) == (0.5, True)
        assert await lease.renew() is True
        assert store.calls == [(19.5, 7, 0.5)]
        assert (lease.renewed_s, lease.left_s) == (1.0, 19.0)
        await asyncio.sleep(19.0)
        assert (lease.left_s, lease.is_held, lease.is_lost) == (0.0, False, False)
        assert await lease.renew() is False
        assert len(store.calls) == 1

    leased(story, 30.0)


@pytest.mark.parametrize(
    ("answer", "is_lost"),
    [(LeaseLost(7), True), (0.0, True), (-1.0, True), (StoreUnavailable("x"), False)],
)
def test_a_lost_lease_is_over_at_once_and_a_silent_store_leaves_its_time(
    answer: Any, is_lost: bool
) -> None:
    """The time counts from the last renewal."""

    async def story(store: Any, lease: HeldLease) -> None:
        assert await lease.renew() is False
        assert (lease.is_lost, lease.is_held) == (is_lost, not is_lost)
        assert lease.left_s == (-1.0 if is_lost else 18.0)

    leased(story, answer)


def test_a_lease_that_is_given_up_or_revoked_is_over() -> None:
    """An error of the revocation is only logged."""

    async def story(store: Any, lease: HeldLease) -> None:
        lease.give_up()
        assert (lease.is_held, lease.is_lost, store.revoked) == (False, True, [])
        await lease.revoke()
        assert store.revoked == [7]

    leased(story, 30.0)
    leased(story, StoreError("x"))


def test_a_held_lease_is_renewed_in_its_rhythm_and_five_times_as_often_after_a_failure() -> None:
    """The renewals end when the lease cannot be held."""

    async def story(store: Any, lease: HeldLease) -> None:
        await lease.hold(5.0)
        moments = [moment for moment, *_ in store.calls]
        assert moments == [6.0, 12.0, *[float(moment) for moment in (14, *range(20, 34, 2))]]
        assert asyncio.get_running_loop().time() - 1_000.0 == 34.0

    leased(story, 30.0, StoreUnavailable("x"), 30.0, StoreUnavailable("x"))


def test_an_adopted_lease_counts_from_its_renewal() -> None:
    """A lease without time left is lost."""

    async def story() -> None:
        store: Any = Store(25.0, 0.0)
        lease = await HeldLease.adopt(store, LoopClock(), 9, 30.0)
        assert (lease.lease_id, lease.granted_s, lease.renewed_s) == (9, 25.0, 1.0)
        assert lease.left_s == pytest.approx(25.0 * 2 / 3 - 1.0)
        with pytest.raises(LeaseLost):
            await HeldLease.adopt(store, LoopClock(), 9, 30.0)

    virtually(story)


async def test_a_lease_has_one_name_in_errors_and_log_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The hexadecimal id is the one that ``etcdctl lease list`` shows."""
    caplog.set_level("INFO")
    silent: Any = SimpleNamespace(
        keep_alive=AsyncMock(side_effect=StoreUnavailable("no answer")),
        revoke=AsyncMock(side_effect=StoreUnavailable("no answer")),
    )
    lease = HeldLease(
        silent, LoopClock(), 0x1A2B, granted_s=9.0, ttl_s=9.0, sent=LoopClock().monotonic()
    )
    await lease.renew()
    await lease.revoke()
    settings = ServiceSettings()
    view: Any = None
    await Registrar(silent, ALL, settings, LoopClock(), view, "n")._revoke(0x1A2B)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in lines] == [
        "could not renew the lease 1a2b",
        "could not revoke the lease 1a2b, so it expires",
        "could not revoke the lease 1a2b, so it expires",
    ]
    assert str(LeaseLost(0x1A2B)) == "lease 1a2b is gone"


# -- the condition -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader_ttl_s", "reconcile_s", "limit"), [(15.0, 5.1, 15.3), (15.0, 4.9, 15.0)]
)
def test_the_store_is_heard_within_the_longer_of_two_times(
    leader_ttl_s: float, reconcile_s: float, limit: float
) -> None:
    """The times are the leader's time to live and three comparisons; the first answer is required."""
    settings = ServiceSettings(leader_ttl_s=leader_ttl_s, reconcile_s=reconcile_s)
    mirror: Any = SimpleNamespace(view=View(ALL), heard_at=-float("inf"))
    now = [100.0]
    clock: Any = SimpleNamespace(monotonic=lambda: now[0])
    condition = InstanceState(mirror, clock, settings)
    assert (condition.hears_store, condition.has_leader, condition.is_paused) == (
        False,
        False,
        False,
    )
    mirror.heard_at = 100.0
    seen = []
    for passed in (limit - 0.01, limit + 0.01):
        now[0] = 100.0 + passed
        seen.append((condition.hears_store, condition.silence_s))
    assert seen == [(True, pytest.approx(limit - 0.01)), (False, pytest.approx(limit + 0.01))]


def test_a_leaders_key_counts_for_its_time_to_live_after_it_is_gone() -> None:
    """The time is exact; changes of other keys do not extend it, and a new key ends the vacancy."""
    view: Any = SimpleNamespace(leader=None)
    now = [100.0]
    mirror: Any = SimpleNamespace(view=view, heard_at=0.0)
    clock: Any = SimpleNamespace(monotonic=lambda: now[0])
    condition = InstanceState(mirror, clock, ServiceSettings(leader_ttl_s=15.0))
    leader, other = Change("leaders", "leader", None, None), Change("topics", "t", None, None)
    condition.on_changes([other, leader])
    now[0] = 114.9
    condition.on_changes([other])
    assert condition.has_leader is True
    now[0] = 115.0
    assert condition.has_leader is False
    view.leader = "n1"
    condition.on_changes([leader, other])
    now[0] = 1e9
    assert condition.has_leader is True


# -- digests -------------------------------------------------------------------------------------------


#: The digest of "t/0/5", computed by a different program.
DIGEST_OF_T_0_5 = 0xF978EA1A80235E84


def test_a_digest_is_the_sum_of_the_first_eight_bytes_of_each_hash() -> None:
    """A different program computed one of the digests; the order is irrelevant; sums are modulo 2**64."""
    one, two = Held(1, 0x6F3A1D9C00000000), ("t", 1, 5)
    a, b = digest_of([("t", 0, 5)]), digest_of([two])
    assert (
        digest_of([("t", 0, 5), two])
        == digest_of([two, ("t", 0, 5)])
        == Held(2, (a.digest + b.digest) % 2**64)
    )
    assert a.plus(*two) == Held(2, (a.digest + b.digest) % 2**64)
    assert a.plus(*two).minus("t", 0, 5) == b
    assert Held().minus(*two) == Held(-1, 2**64 - b.digest)
    assert one.plus(*two).minus(*two) == one
    assert a.digest == DIGEST_OF_T_0_5


# -- statuses --------------------------------------------------------------------------------------------

CODES: dict[type[ServiceRefused], grpc.StatusCode] = {
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    Replaced: grpc.StatusCode.ALREADY_EXISTS,
    Expelled: grpc.StatusCode.ABORTED,
    Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
    WrongCaller: grpc.StatusCode.PERMISSION_DENIED,
    WrongPhase: grpc.StatusCode.FAILED_PRECONDITION,
    NotFound: grpc.StatusCode.NOT_FOUND,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_each_refusal_has_a_status_and_comes_back_as_itself(
    kind: type[ServiceRefused], code: grpc.StatusCode
) -> None:
    """The error has its text, or without a text the status's name."""
    none = grpc.aio.Metadata()
    assert code_of(kind("x")) is code
    for details, text in (("why", "why"), ("", code.name)):
        found = refusal(grpc.aio.AioRpcError(code, none, none, details))
        assert (type(found), str(found)) == (kind, text)


def test_other_errors_have_the_status_of_their_kind_or_may_be_tried_again() -> None:
    """A subclass has the status of its class; an unknown refusal is a failed precondition."""
    none = grpc.aio.Metadata()
    assert code_of(TooManyClaims("c", 5)) is grpc.StatusCode.INVALID_ARGUMENT
    assert code_of(ServiceRefused("x")) is grpc.StatusCode.FAILED_PRECONDITION
    for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
        assert refusal(grpc.aio.AioRpcError(code, none, none, "x")) is None


# -- a key that is decided and rewritten -----------------------------------------------------------------


async def test_a_key_is_rewritten_under_a_compare_of_the_value_that_was_read() -> None:
    """A decision may be one write or several; without a write, the value's revision or 0 is returned."""
    store = Followed()

    def deciding(answer: Any) -> Callable[[Any], Awaitable[Any]]:
        async def decide(kv: Any) -> Any:
            seen.append(kv and kv.value)
            return answer

        return decide

    seen: list[Any] = []
    assert await rewritten(store, "/g/a", deciding(None)) == 0
    assert await rewritten(store, "/g/a", deciding(Put("/g/a", b"1"))) == 101
    kv = await store.get("/g/a")
    assert kv is not None
    several: list[Write] = [Put("/g/a", b"2"), Put("/g/b", b"3")]
    assert await rewritten(store, "/g/a", deciding(several)) == 102
    assert await rewritten(store, "/g/a", deciding(None)) == 102
    assert await rewritten(store, "/g/a", deciding(Delete("/g/a"))) == 103
    assert seen == [None, None, b"1", b"2", b"2"]
    assert [compares for compares, _ in store.txns][:2] == [(absent("/g/a"),), (unchanged(kv),)]


async def test_a_key_that_changes_all_the_time_is_given_up_after_twenty_tries() -> None:
    """A refusal by a further key comes at once; a known value is tried first, and only once."""
    store = Followed()
    await store.put("/g/a", b"0")
    known = await store.get("/g/a")
    seen: list[bytes] = []

    async def decide(kv: Any) -> Write:
        seen.append(kv.value)
        store.meanwhile = [[Put("/g/a", str(len(seen)).encode())]]
        return Put("/g/a", b"mine")

    await store.put("/g/a", b"new")
    with pytest.raises(StoreUnavailable, match=f"/g/a changed {ATTEMPTS} times"):
        await rewritten(store, "/g/a", decide, known=known)
    assert ATTEMPTS == 20
    assert seen == [b"0", *(str(n).encode() for n in range(1, 20))]
    store.meanwhile = []
    await store.put("/g/mark", b"")

    async def once(kv: Any) -> Write:
        seen.append(b"once")
        return Put("/g/a", b"mine")

    unless: dict[str, Exception] = {"/g/other": NotFound("x"), "/g/mark": WrongPhase("marked")}
    with pytest.raises(WrongPhase, match="marked"):
        await rewritten(store, "/g/a", once, unless=unless)
    assert seen[-2:] == [b"19", b"once"]


# -- tasks -----------------------------------------------------------------------------------------------


def test_the_first_end_cancels_the_rest_and_waits_for_it() -> None:
    """The position of the task does not matter."""

    async def story() -> None:
        acts: list[Any] = []

        async def slow(name: str, seconds: float) -> None:
            try:
                await asyncio.sleep(seconds)
                acts.append(name)
            finally:
                await asyncio.sleep(1.0)
                acts.append(f"{name} ended")

        await first(slow("a", 9.0), slow("b", 3.0), slow("c", 9.0))
        assert acts == ["b", "b ended", "a ended", "c ended"]
        assert asyncio.get_running_loop().time() == 1_006.0

    virtually(story)


async def test_an_ended_task_has_ended_and_its_error_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cancelled task logs no line."""

    async def fails() -> None:
        raise ValueError("broken")

    quiet = asyncio.create_task(asyncio.sleep(99.0))
    await cancel_and_wait(quiet)
    assert (quiet.cancelled(), caplog.records) == (True, [])
    task = asyncio.create_task(fails(), name="a part")
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert "a part failed" in caplog.text


# -- certificates ------------------------------------------------------------------------------------------


def files(authority: Authority, name: str, **more: Any) -> PemFiles:
    """The files of a pair and its CA."""
    pair = authority.sign(name)
    made: dict[str, Any] = {"certificate": pair.cert, "key": pair.key, "authorities": authority.ca}
    return PemFiles(**{**made, **more}, flags="--pair", ca_flag="--ca", user="The port")


def test_each_file_is_read_checked_and_followed(tmp_path: Path) -> None:
    """Each file alone works, and each file's change is detected."""
    authority = Authority(tmp_path)
    found = files(authority, "one")
    assert found.certificate is not None
    assert found.key is not None
    assert found.read() == Pem(
        authority.ca.read_bytes(), found.certificate.read_bytes(), found.key.read_bytes()
    )
    assert found.changed() is None
    for path in (authority.ca, found.certificate, found.key):
        stamp = stamp_of(path)
        os.utime(path, ns=(stamp[0] + 10**9, stamp[0] + 10**9))
        assert found.changed() == found.read()
        assert found.changed() is None
    only = files(authority, "two", certificate=None, key=None)
    assert only.read() == Pem(authority.ca.read_bytes(), None, None)
    none = files(authority, "three", certificate=None, key=None, authorities=None)
    assert none.read() == Pem(None, None, None)


def test_a_wrong_file_is_named_by_its_flag(tmp_path: Path) -> None:
    """The cases: a foreign key, a missing file, and files without certificates."""
    authority = Authority(tmp_path)
    other = authority.sign("other")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for changes, text in (
        (
            {"key": other.key},
            "--pair: could not read a certificate and its key in PEM format: KEY_VALUES_MISMATCH",
        ),
        ({"key": empty}, "--pair: could not read a certificate"),
        ({"authorities": empty}, "--ca: could not read certificates in PEM format"),
    ):
        with pytest.raises(ConfigError, match=text):
            files(authority, "one", **changes).read()
    with pytest.raises(OSError, match="nosuch"):
        files(authority, "one", key=tmp_path / "nosuch").read()
