"""Limits that are met exactly, and what a stream, a watch or a file leaves to the one after it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.certificates import PemFiles
from faust_assigner.service.commands import Release
from faust_assigner.service.errors import NotReached, StoreError, StoreUnavailable
from faust_assigner.service.records import Ended, Status
from faust_assigner.service.serving.routes import LEAST_S, TOGETHER_S, _wait_for_revision
from faust_assigner.service.store import etcd
from faust_assigner.service.store.base import Put
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb
from tests.support.certificates import Authority
from tests.unit.service import session_stage as sessions
from tests.unit.service import test_etcd_calls as calls
from tests.unit.service import test_told as told
from tests.unit.service.stories import ALL
from tests.unit.service.test_certificates import copied


def test_the_old_owner_of_a_complete_hand_off_has_released_or_is_fenced() -> None:
    """Only a release before the new owner works is strict."""
    for phase, strict in ((told.READY.phase, True), (told.COMPLETE.phase, False)):
        group = told.Group()
        handoff = replace(told.RELEASING, phase=phase)
        [(name, command)] = group.handoff(handoff)
        assert (name, command) == ("a", Release(told.T0, "b", group.revision, strict))


async def test_a_caller_ahead_of_an_instance_is_refused_at_the_end_of_its_time() -> None:
    """An instance that reaches the caller's revision in time serves the caller."""
    now, slept = [50.0], list[float]()
    mirror: Any = SimpleNamespace(dated=7)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += LEAST_S / 2
        mirror.dated += 1

    clock: Any = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    condition: Any = SimpleNamespace(hears_store=True)
    with pytest.raises(NotReached, match="read up to revision 9, the caller up to 11"):
        await _wait_for_revision(mirror, condition, clock, 11)
    assert slept == [TOGETHER_S] * 2
    await _wait_for_revision(mirror, condition, clock, 11)
    assert len(slept) == 4
    await _wait_for_revision(mirror, condition, clock, 11)
    assert len(slept) == 4


# -- streams --------------------------------------------------------------------------------------


def test_the_lease_of_a_dismissed_consumer_is_renewed_no_more() -> None:
    """Its stream ends as drained, because no ready consumer takes its partition."""

    async def story(s: sessions.Stage) -> None:
        await s.store.owner(sessions.T0, "b", "b1")
        stream = await s.register(sessions.B)
        lease = await s.lease("b")
        await s.clock.sleep(30.0)
        assert (stream.ended, s.lives(lease)) == (None, True)
        before = await s.store.registered("b")
        assert before is not None
        draining = codec.dump_consumer(replace(before, status=Status.DRAINING))
        await s.store.txn([], [Put(ALL.consumer("b"), draining, lease)])
        assert (stream.ended, s.sessions._keeping) == (Ended.DRAINED, {})
        assert s.metrics[-1] == ("streams", 0)
        await s.clock.sleep(18.5)
        assert not s.lives(lease)

    sessions.staged(story)


@pytest.mark.parametrize(
    ("expelled", "why"), [("a1", Ended.EXPELLED), ("a0", Ended.REPLACED), (None, Ended.REPLACED)]
)
def test_only_a_stream_of_the_expelled_process_ends_as_expelled(
    expelled: str | None, why: Ended
) -> None:
    """An earlier process of the name may have been expelled."""

    async def story(s: sessions.Stage) -> None:
        stream = await s.register(sessions.A)
        if expelled is not None:
            await s.store.put(ALL.expelled("a", expelled), b"1")
        assert stream.ended is None
        successor = replace(sessions.A, incarnation="a2", session="elsewhere")
        await s.store.consumer(successor, 60.0)
        assert stream.ended is why
        assert s.sessions.registry.get("a") is None

    sessions.staged(story)


# -- the store and its files ----------------------------------------------------------------------


async def test_a_page_of_two_keys_that_is_too_large_becomes_pages_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single key that is too large is an error."""
    monkeypatch.setattr(etcd, "PAGE", 16)
    large = calls.failed(calls.CODE.RESOURCE_EXHAUSTED, "message larger than max")
    stage = calls.Stage(
        large,
        large,
        pb.RangeResponse(header={"revision": 5}, kvs=[calls.kv("/g/a", 3)], more=True),
        pb.RangeResponse(header={"revision": 9}, kvs=[calls.kv("/g/b", 4)]),
    )
    found = await stage.store.list("/g/")
    assert (found.revision, [one.key for one in found.items]) == (5, ["/g/a", "/g/b"])
    assert [request.limit for _, _, request, _ in stage.calls] == [16, 2, 1, 1]


async def test_after_a_cancelled_watch_the_user_gets_a_new_token() -> None:
    """The only endpoint is asked again; a compacted history is no reason for a new token."""
    for watch, again in (
        (calls.changed(canceled=True, cancel_reason="permission"), True),
        (calls.changed(canceled=True, compact_revision=40), False),
    ):
        tokens = [pb.AuthenticateResponse(token=f"t{number}") for number in (1, 2)]
        answers = [tokens[0], [watch], *tokens[1:] * again, pb.RangeResponse()]
        stage = calls.Stage(*answers, endpoints=1, user="u", password="p")
        with pytest.raises(StoreError, match=r"permission|40"):
            await anext(stage.store.watch("/g/", 10))
        await stage.store.get("/g/a")
        metadata = dict(stage.calls[-1][3]["metadata"])
        assert metadata["token"] == ("t2" if again else "t1")
        assert stage.answers == []


def test_a_complaint_about_files_is_logged_again_after_they_were_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same complaint in a row is one line."""
    authority = Authority(tmp_path)
    pair = copied(authority.sign("one"), tmp_path)
    files = PemFiles(pair.cert, pair.key, None, "--pair", "--ca", "The test")
    files.read()
    for name in ("two", "three"):
        kept = authority.sign(name)
        pair.key.unlink()
        assert (files.changed(), files.changed()) == (None, None)
        shutil.copy(kept.cert, pair.cert)
        shutil.copy(kept.key, pair.key)
        assert files.changed() is not None
    assert caplog.text.count("The test keeps its previous certificates") == 2


async def test_a_user_whose_refusal_has_no_details_is_refused() -> None:
    """Some proxies send a status without any text."""
    none = calls.grpc.aio.Metadata()
    silent = calls.grpc.aio.AioRpcError(calls.CODE.UNAVAILABLE, none, none)
    stage = calls.Stage(silent, user="u")
    with pytest.raises(StoreUnavailable, match=r"^etcd at h0:1: UNAVAILABLE: $"):
        await stage.store.get("/g/a")


async def test_a_compacted_revision_of_a_read_is_named() -> None:
    """The oldest remaining revision is unknown: etcd's answer does not have it."""
    stage = calls.Stage(
        pb.RangeResponse(header={"revision": 17}, kvs=[calls.kv("/g/a", 3)], more=True),
        calls.failed(calls.CODE.OUT_OF_RANGE, "required revision has been compacted"),
    )
    with pytest.raises(calls.Compacted) as compacted:
        await stage.store.list("/g/")
    assert (compacted.value.wanted, compacted.value.oldest) == (17, 0)
