"""Edge cases of the server: parts of long messages, tokens with several names, repaired files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.service.commands import AbortWarm, Assignment, Command, Owned, Replicas
from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server import auth, convert
from faust_assigner.service.server.auth import TokenAuthenticator
from faust_assigner.service.server.convert import message_of, messages_of
from faust_assigner.service.server.limits import MAX_SUPPOSED, check_plan
from faust_assigner.service.server.requests import consumer_of
from faust_assigner.service.server.servicer import ConsumerServicer

ATS = [TopicPartition("t", number) for number in range(5)]


class Stream:
    """A stream with a snapshot in parts and a later command."""

    session, lives_s, revision = "s1", 9.0, 7

    async def __aiter__(self) -> AsyncIterator[Command]:
        yield Assignment(tuple(Owned(at, 1) for at in ATS), full=True)
        self.revision = 8
        yield AbortWarm(ATS[0], 3)


@pytest.mark.parametrize("with_session", [True, False])
async def test_only_the_first_message_of_a_stream_has_the_session_and_all_have_the_revision(
    with_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot has five parts, and the client counts its time from the first part."""
    monkeypatch.setattr(convert, "PART_BYTES", 1)
    anything: Any = None
    node: Any = SimpleNamespace(settings=SimpleNamespace(pulse_s=2.5))
    stream: Any = Stream()
    servicer = ConsumerServicer(anything, anything)
    found = [m async for m in servicer._messages(node, stream, with_session=with_session)]
    said = [(m.assignment.session_id, m.assignment.lives_ms, m.assignment.pulse_ms) for m in found]
    first = ("s1", 9_000, 2_500) if with_session else ("", 0, 0)
    assert said == [first, *[("", 0, 0)] * 5]
    assert [m.revision for m in found] == [7] * 5 + [8]
    assert [m.assignment.more for m in found] == [True] * 4 + [False] * 2
    assert [m.assignment.snapshot for m in found] == [True] + [False] * 5


def test_no_part_of_a_long_message_is_empty_or_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition is longer than a part, so each gets a part of its own."""
    monkeypatch.setattr(convert, "PART_BYTES", 1)
    gone = list(messages_of(Assignment(unassigned=tuple(ATS))))
    places = [message_of(at) for at in ATS]
    assert [list(m.assignment.unassigned) for m in gone] == [[one] for one in places]
    kept = list(messages_of(Replicas(tuple(ATS))))
    assert [list(m.standby.standbys) for m in kept] == [[one] for one in places]
    assert [m.standby.more for m in kept] == [True] * 4 + [False]
    [none] = messages_of(Assignment())
    assert none == pb.AssignmentCommand(assignment=pb.AssignmentUpdate())


@pytest.mark.parametrize("is_full", [True, False])
def test_each_row_of_a_long_assignment_is_in_one_part(
    monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """The losses come first; the last of them is in the first part with grants."""
    monkeypatch.setattr(convert, "PART_BYTES", 1)
    assignment = Assignment(
        (Owned(ATS[0], 5), Owned(ATS[1], 6)), (ATS[2], ATS[3]), full=is_full, releasing=(ATS[4],)
    )
    places = [message_of(at) for at in ATS]
    grants = [pb.Grant(partition=places[0], epoch=5), pb.Grant(partition=places[1], epoch=6)]
    assert [one.assignment for one in messages_of(assignment)] == [
        pb.AssignmentUpdate(unassigned=[places[2]]),
        pb.AssignmentUpdate(
            assigned=[places[0]],
            grants=[grants[0]],
            unassigned=[places[3]],
            snapshot=is_full,
            more=is_full,
        ),
        pb.AssignmentUpdate(assigned=[places[1]], grants=[grants[1]], more=is_full),
        pb.AssignmentUpdate(releasing=[places[4]]),
    ]


async def test_claims_of_one_topic_in_several_entries_count_together() -> None:
    """The cases are weights, replicas and former partitions, in both forms."""
    request = pb.RegisterRequest(
        consumer_name="c",
        weights=[pb.PartitionWeight(partition=message_of(ATS[3]), weight=7.0)],
        weights_by_topic=[
            {"topic": "t", "partitions": [4], "weights": [1.0]},
            {"topic": "t", "partitions": [1], "weights": [2.0]},
        ],
        replicas=[message_of(ATS[2])],
        replicas_by_topic=[{"topic": "t", "partitions": [1]}, {"topic": "t", "partitions": [0]}],
        former=[{"topic": "t", "partitions": [4]}, {"topic": "t", "partitions": [3, 4]}],
    )
    found = await consumer_of(request)
    assert found.weights == {"t": {3: 7.0, 4: 1.0, 1: 2.0}}
    assert (found.holds, found.former) == ({"t": (0, 1, 2)}, {"t": (3, 4)})


@pytest.mark.parametrize(("extra", "without", "is_good"), [(400, 600, True), (400, 601, False)])
def test_the_consumers_of_a_dry_run_count_together(extra: int, without: int, is_good: bool) -> None:
    """Added and left-out consumers count together."""
    assert MAX_SUPPOSED == 1_000
    request = pb.PlanRequest(extra=[pb.RegisterRequest()] * extra, without=["a"] * without)
    if is_good:
        check_plan(request)
    else:
        with pytest.raises(BadRequest, match="got 1001"):
            check_plan(request)


def called(token: str) -> Any:
    """The context of a call with this token."""
    headers = (("authorization", f"Bearer {token}"),)
    return SimpleNamespace(invocation_metadata=lambda: headers)


def test_a_token_of_several_names_is_a_caller_with_all_of_them(tmp_path: Path) -> None:
    """If one of the names is an administrator, the caller is an administrator."""
    path = tmp_path / "tokens"
    path.write_text("a one\nb one\nc two\n")
    tokens = TokenAuthenticator.of_file(path, admins=["b"])
    caller = tokens.caller(called("one"))
    assert (caller.names, caller.is_admin) == ({"a", "b"}, True)
    other = tokens.caller(called("two"))
    assert (other.names, other.is_admin) == ({"c"}, False)


def test_a_file_of_tokens_that_could_not_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is read again even without a change; the same failure later is logged again."""
    path = tmp_path / "tokens"
    path.write_text("a one\n")
    tokens = TokenAuthenticator.of_file(path)
    read = auth.read_tokens

    def fails(path: Path) -> Any:
        raise ConfigError("not now")

    for number in (2, 3):
        path.write_text(f"{'a' * number} one\n")
        monkeypatch.setattr(auth, "read_tokens", fails)
        tokens.look()
        tokens.look()
        assert tokens.caller(called("one")).names == {"a" * (number - 1)}
        monkeypatch.setattr(auth, "read_tokens", read)
        tokens.look()
        assert tokens.caller(called("one")).names == {"a" * number}
    assert caplog.text.count("keeps its current tokens: not now") == 2
