"""The commands for consumers: one per change of the state, and a snapshot at a stream's start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.client import Assigned as Told
from faust_assigner.service.client import AssignerClient, Grant
from faust_assigner.service.client import Release as Asked
from faust_assigner.service.client import TopicPartition as Known
from faust_assigner.service.commands import AbortWarm, Assignment, Command, Owned, Release, Warm
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.records import Assigned, Consumer
from faust_assigner.service.server.convert import messages_of
from faust_assigner.service.serving.relay import commands_of_changes, snapshot
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL, AT, HANDOFF, view_of

OTHER = TopicPartition("t", 1)
STRICT = replace(HANDOFF, strict=True)
KNOWN = Known(*AT)


def given(*handoffs: Handoff) -> View:
    """``old`` owns both partitions; these hand-offs are open."""
    return view_of(
        Consumer(name="old"),
        Consumer(name="new"),
        Consumer(name="third"),
        topics={"t": 2},
        owners={AT: "old", OTHER: "old"},
        handoffs=handoffs,
    )


def happens(view: View, *documents: tuple[str, bytes | None]) -> list[tuple[str, Command]]:
    """Write these keys at one revision, and return the commands for the change."""
    revision = 100
    changes = []
    for key, value in documents:
        old = view.raw.get(key)
        created = old.create_revision if old else revision
        kv = None if value is None else KeyValue(key, value, created, revision)
        change = view.apply(Event(key, revision, kv))
        assert change is not None
        changes.append(change)
    return list(commands_of_changes(view, changes))


def stored(handoff: Handoff) -> tuple[str, bytes]:
    """The hand-off's key and value."""
    return ALL.handoff(handoff.at), codec.dump_handoff(handoff)


def owned_by(name: str) -> tuple[str, bytes]:
    """The assignment's key and value."""
    return ALL.assignment(AT), codec.dump_assigned(Assigned(AT, name))


def told_again(handoff: Handoff, *held: Grant) -> tuple[AssignerClient, list[Any]]:
    """The client ``old`` with these grants, and its commands from the next stream's snapshot."""
    client = AssignerClient("nowhere:1", "old", clock=lambda: 0.0)
    client.holdings.begin(10.0)
    client.holdings.update(held, (), snapshot=True)
    view = given(handoff)
    if handoff.phase is Phase.COMPLETE:
        happens(view, owned_by("new"))
    messages = [m for command in snapshot(view, "old") for m in messages_of(command)]
    for number, message in enumerate(messages):
        client._inbox.take(message, is_first=number == 0)
    queue = client._inbox._queue
    return client, [queue.get_nowait() for _ in range(queue.qsize())]


def test_a_new_handoff_asks_the_new_owner_to_warm() -> None:
    """The id is the revision that created the hand-off."""
    assert happens(given(), stored(HANDOFF)) == [("new", Warm(AT, "old", 100))]


def test_progress_is_told_to_nobody() -> None:
    """The hand-off's state is unchanged."""
    assert happens(given(HANDOFF), stored(replace(HANDOFF, progress=0.5))) == []


def test_a_strict_handoff_that_is_ready_asks_the_old_owner_to_release() -> None:
    """The release precedes the new owner's grant."""
    [(name, told)] = happens(given(STRICT), stored(replace(STRICT, phase=Phase.READY)))
    assert (name, isinstance(told, Release) and told.strict) == ("old", True)


def test_a_complete_handoff_gives_and_asks_for_release_in_one_go() -> None:
    """The old owner gets a Release instead of a loss."""
    ready = replace(HANDOFF, phase=Phase.READY)
    view = given(ready)
    created = view.handoffs[AT].kv.create_revision
    told = happens(view, stored(replace(ready, phase=Phase.COMPLETE)), owned_by("new"))
    assert told == [("new", Assignment((Owned(AT, 100),))), ("old", Release(AT, "new", created))]


def test_a_handoff_that_is_over_tells_the_old_owner_that_it_has_lost_the_partition() -> None:
    """A confirmation of the old owner's release is not needed."""
    view = given(replace(HANDOFF, phase=Phase.COMPLETE))
    happens(view, owned_by("new"))
    assert happens(view, (ALL.handoff(AT), None)) == [("old", Assignment((), (AT,)))]


def test_a_handoff_that_was_given_up_tells_the_new_owner_to_forget_it() -> None:
    """The command has the hand-off's id; the old owner gets no command."""
    view = given(HANDOFF)
    created = view.handoffs[AT].kv.create_revision
    assert happens(view, (ALL.handoff(AT), None)) == [("new", AbortWarm(AT, created))]


def test_a_strict_owner_that_was_never_asked_to_release_notices_nothing() -> None:
    """The new owner was still warming up, so the old owner needs no second grant."""
    view = given(STRICT)
    created = view.handoffs[AT].kv.create_revision
    assert happens(view, (ALL.handoff(AT), None)) == [("new", AbortWarm(AT, created))]


def test_an_owner_that_was_asked_to_release_in_vain_is_told_to_go_on() -> None:
    """The old owner may have drained already; its epoch is unchanged."""
    view = given(replace(STRICT, phase=Phase.READY, released=True))
    epoch = view.assignments[AT].value.epoch
    told = dict(happens(view, (ALL.handoff(AT), None)))
    assert told["old"] == Assignment((Owned(AT, epoch, keep=True),))
    assert isinstance(told["new"], AbortWarm)


def test_what_ended_in_the_same_breath_asks_nobody_to_release() -> None:
    """A Release after the grant would make the owner release its partition for good."""
    view = given(STRICT)
    epoch = view.assignments[AT].value.epoch
    told = happens(view, stored(replace(STRICT, phase=Phase.READY)), (ALL.handoff(AT), None))
    assert [command for name, command in told if name == "old"] == [
        Assignment((Owned(AT, epoch, keep=True),))
    ]


def test_one_handoff_in_place_of_another_ends_the_first_and_begins_the_second() -> None:
    """A listing may skip the states in between."""
    view = given(HANDOFF)
    created = view.handoffs[AT].kv.create_revision
    view.raw.pop(ALL.handoff(AT))
    told = happens(view, stored(replace(HANDOFF, new_owner="third")))
    assert told == [("new", AbortWarm(AT, created)), ("third", Warm(AT, "old", 100))]


def test_a_stream_begins_with_a_full_assignment_even_when_it_is_empty() -> None:
    """The open requests follow."""
    view = given(HANDOFF)
    first, warm = snapshot(view, "new")
    assert first == Assignment(full=True)
    assert isinstance(warm, Warm)
    assert list(snapshot(view, "nobody")) == [Assignment(full=True)]


def test_a_reconnected_owner_does_not_go_on_with_what_it_may_have_let_go() -> None:
    """Its answer may be in flight, so the release is requested again."""
    view = given(replace(STRICT, phase=Phase.READY))
    first, release = snapshot(view, "old")
    assert isinstance(first, Assignment)
    assert [owned.at for owned in first.assigned] == [OTHER]
    assert isinstance(release, Release)


@pytest.mark.parametrize(
    "asked",
    [replace(STRICT, phase=Phase.READY), replace(HANDOFF, phase=Phase.COMPLETE)],
    ids=["strict", "not strict"],
)
def test_an_owner_keeps_a_partition_until_the_release_after_its_snapshot(asked: Handoff) -> None:
    """Without an earlier Release, a consumer that drops the partition flushes nothing."""
    client, [*before, released] = told_again(asked, Grant(KNOWN, 2))
    assert client.holdings.may_work(KNOWN, now=5.0)
    assert isinstance(released, Asked)
    assert not [one for one in before if isinstance(one, Told) and one.removed]


def test_a_snapshot_returns_no_released_partition_whose_acknowledgement_is_on_the_way() -> None:
    """Its new owner may start at any moment."""
    client, commands = told_again(replace(STRICT, phase=Phase.READY))
    assert not any(isinstance(one, Told) and KNOWN in one.owned for one in commands)
    assert KNOWN not in client.holdings.owned


def test_a_released_partition_is_not_named_as_about_to_be_released() -> None:
    """No Release would follow, so the consumer would keep the partition forever."""
    [full] = snapshot(given(replace(STRICT, phase=Phase.READY, released=True)), "old")
    assert full == Assignment(full.assigned, full=True)  # type: ignore[union-attr]
    assert [owned.at for owned in full.assigned] == [OTHER]  # type: ignore[union-attr]


def test_raised_epochs_give_nobody_back_what_it_lets_go() -> None:
    """Each stream starts again; a strict old owner's partition in release is not granted."""
    view = given(replace(STRICT, phase=Phase.READY))
    epoch = view.dated(view.assignments[OTHER].value).epoch
    assert happens(view, (ALL.epochs, codec.dump_base(1_000))) == []
    full = {name: next(iter(snapshot(view, name))) for name in ("new", "old", "third")}
    assert full == {
        "new": Assignment(full=True),
        "old": Assignment((Owned(OTHER, epoch + 1_000),), full=True, releasing=(AT,)),
        "third": Assignment(full=True),
    }


def test_an_owner_whose_partition_goes_elsewhere_before_its_handoff_is_complete_is_told() -> None:
    """No Release comes, so without the loss it would continue forever."""
    view = given(replace(HANDOFF, phase=Phase.READY))
    told = dict(happens(view, owned_by("third")))
    assert told["old"] == Assignment((), (AT,))


def test_a_new_owner_that_loses_the_partition_again_is_told_while_the_old_one_releases() -> None:
    """The complete hand-off requests a release only from the first owner."""
    view = given(replace(HANDOFF, phase=Phase.COMPLETE))
    happens(view, owned_by("new"))
    told = dict(happens(view, owned_by("third")))
    assert told["new"] == Assignment((), (AT,))
    assert told["third"] == Assignment((Owned(AT, 100),))


def test_who_owned_a_partition_for_a_moment_only_is_not_told_that_it_does() -> None:
    """Two writes arrive in one batch, and the first of the new owners gets no grant."""
    told = dict(happens(given(), owned_by("third"), owned_by("new")))
    assert told == {
        "new": Assignment((Owned(AT, 100),)),
        "old": Assignment((), (AT,)),
        "third": Assignment((), (AT,)),
    }


def test_who_has_a_partition_back_is_told_its_new_epoch_and_of_no_loss() -> None:
    """The owner continues; a sink refuses its writes under the old epoch."""
    told = dict(happens(given(), owned_by("third"), owned_by("old")))
    assert told["old"] == Assignment((Owned(AT, 100),))


def test_what_went_on_in_the_same_breath_asks_for_what_it_is_by_now_alone() -> None:
    """The old owner has already released, and a second Release would come after its loss."""
    releasing, released = (
        replace(STRICT, phase=Phase.READY, released=done) for done in (False, True)
    )
    assert happens(given(STRICT), stored(releasing), stored(released)) == []
