"""Answers to hand-offs: the stored hand-off, the returned revision, and each refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import (
    BadRequest,
    Expelled,
    NotFound,
    Replaced,
    WrongCaller,
    WrongPhase,
)
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.records import Consumer
from faust_assigner.service.server import readable
from faust_assigner.service.serving.acks import PROGRESS_EVERY_S, Acks, Answer
from faust_assigner.service.store.base import Delete, Put
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL, acks_of

AT, OTHER = TopicPartition("t", 3), TopicPartition("t", 4)
WARMING = Handoff(
    AT, "old", "new", Phase.WARMING, 1.0, progress=0.25, old_incarnation="o1", new_incarnation="n1"
)
READY = replace(WARMING, phase=Phase.READY, progress=1.0)
RELEASING = replace(READY, strict=True)
RELEASED = replace(RELEASING, released=True)
UNRELEASED = replace(RELEASING, unreleased="r")
EXPELLED = replace(UNRELEASED, expelled=True)
FAILED = replace(WARMING, failed="f")
COMPLETE = replace(READY, phase=Phase.COMPLETE)
HANDED = replace(RELEASED, phase=Phase.COMPLETE)
NAMES = {
    "warming": WARMING,
    "strict": replace(WARMING, strict=True),
    "ready": READY,
    "releasing": RELEASING,
    "released": RELEASED,
    "unreleased": UNRELEASED,
    "expelled": EXPELLED,
    "failed": FAILED,
    "complete": COMPLETE,
    "handed": HANDED,
}

Say = Callable[[Acks], Awaitable[int]]
SAY: dict[str, Say] = {
    "ready": lambda acks: acks.ready(Answer("new", AT, incarnation="n1")),
    "released": lambda acks: acks.released(Answer("old", AT, incarnation="o1"), 41),
    "cannot": lambda acks: acks.release_failed(Answer("old", AT, incarnation="o1"), "why"),
    "gave up": lambda acks: acks.warm_failed(Answer("new", AT, incarnation="n1"), "why"),
    "aborted": lambda acks: acks.abort(AT, None),
}
GONE = "gone"
OPEN = ("warming", "strict", "ready", "releasing", "released")
WARM = ("ready", "releasing", "released", "complete", "handed")
ENDED = "ended by an operator"
#: (state, answer) -> the hand-off stored afterwards; answers without an entry are refused.
AFTER: dict[tuple[str, str], Any] = {
    ("warming", "ready"): READY,
    ("strict", "ready"): RELEASING,
    **{(name, "ready"): NAMES[name] for name in WARM},
    ("releasing", "released"): replace(RELEASED, offset=41),
    ("released", "released"): RELEASED,
    ("complete", "released"): GONE,
    ("handed", "released"): HANDED,
    ("releasing", "cannot"): replace(RELEASING, unreleased="why"),
    ("unreleased", "cannot"): UNRELEASED,
    ("complete", "cannot"): GONE,
    **{(name, "gave up"): replace(NAMES[name], failed="why") for name in OPEN},
    ("failed", "gave up"): FAILED,
    **{(name, "aborted"): replace(NAMES[name], failed=ENDED) for name in OPEN},
    ("failed", "aborted"): FAILED,
}  # fmt: skip


async def stored(store: Followed, at: TopicPartition = AT) -> Any:
    """Return the stored hand-off, or GONE."""
    kv = await store.get(ALL.handoff(at))
    return GONE if kv is None else codec.load_handoff(kv.value)


@pytest.mark.parametrize("answer", SAY)
@pytest.mark.parametrize("state", NAMES)
async def test_each_answer_in_each_state_changes_or_keeps_or_is_refused(
    state: str, answer: str
) -> None:
    """A repeated answer writes nothing and returns the hand-off's revision."""
    store = Followed()
    before = await store.handoff(NAMES[state])
    acks = acks_of(store)
    if (state, answer) not in AFTER:
        with pytest.raises(
            WrongPhase, match=f"t/3: .*, but the hand-off is {state.replace('strict', 'warming')}"
        ):
            await SAY[answer](acks)
        assert await stored(store) == NAMES[state]
        return
    revision = await SAY[answer](acks)
    after = AFTER[state, answer]
    assert await stored(store) == after
    assert revision == (before if after == NAMES[state] else before + 1) == store.revision


SAY_OF: dict[str, Callable[[Acks, int | None], Awaitable[int]]] = {
    "ready": lambda acks, one: acks.ready(Answer("new", AT, one, incarnation="n1")),
    "released": lambda acks, one: acks.released(Answer("old", AT, one, incarnation="o1"), 41),
    "cannot": lambda acks, one: acks.release_failed(
        Answer("old", AT, one, incarnation="o1"), "why"
    ),
    "gave up": lambda acks, one: acks.warm_failed(Answer("new", AT, one, incarnation="n1"), "why"),
    "aborted": lambda acks, one: acks.abort(AT, one),
    "progress": lambda acks, one: acks.progress(Answer("new", AT, one, incarnation="n1"), 0.75),
}


@pytest.mark.parametrize("answer", SAY_OF)
@pytest.mark.parametrize(
    ("handoff_id", "is_taken"), [(None, True), (101, True), (100, False), (102, False), (0, False)]
)
async def test_an_answer_with_an_id_is_for_that_hand_off_alone(
    answer: str, handoff_id: int | None, is_taken: bool
) -> None:
    """The id is the key's create_revision, not its mod_revision."""
    store = Followed()
    handoff = RELEASING if answer in ("released", "cannot") else WARMING
    await store.handoff(replace(handoff, progress=0.0))
    await store.handoff(handoff)
    acks = acks_of(store)
    if is_taken:
        assert await SAY_OF[answer](acks, handoff_id) == 103
        assert await stored(store) != handoff
    else:
        with pytest.raises(WrongPhase, match=f"t/3: hand-off {handoff_id} has ended; .* 101"):
            await SAY_OF[answer](acks, handoff_id)
        assert await stored(store) == handoff


CALLERS: list[tuple[str, str, str, type[Exception] | None]] = [
    ("ready", "new", "n1", None),
    ("ready", "old", "o1", WrongCaller),
    ("ready", "new", "n0", Replaced),
    ("ready", "new", "", Replaced),
    ("ready", "new", "n2", WrongPhase),
    ("released", "old", "o1", None),
    ("released", "new", "n1", WrongCaller),
    ("released", "old", "o2", Replaced),
    ("cannot", "old", "o1", None),
    ("cannot", "new", "n1", WrongCaller),
    ("gave up", "new", "n1", None),
    ("gave up", "old", "o1", WrongCaller),
    ("progress", "new", "n1", None),
    ("progress", "old", "o1", WrongCaller),
    ("progress", "new", "n0", Replaced),
]


@pytest.mark.parametrize(("answer", "name", "incarnation", "error"), CALLERS)
async def test_each_answer_is_taken_from_its_side_alone(
    answer: str, name: str, incarnation: str, error: type[Exception] | None
) -> None:
    """The registered successor n2 of the new owner is not refused as replaced."""
    store = Followed()
    await store.consumer(Consumer(name="new", incarnation="n2"))
    handoff = RELEASING if answer in ("released", "cannot") else WARMING
    await store.handoff(handoff)
    acks = acks_of(store)
    calls: dict[str, Callable[[], Awaitable[int]]] = {
        "ready": lambda: acks.ready(Answer(name, AT, incarnation=incarnation)),
        "released": lambda: acks.released(Answer(name, AT, incarnation=incarnation), 5),
        "cannot": lambda: acks.release_failed(Answer(name, AT, incarnation=incarnation), "w"),
        "gave up": lambda: acks.warm_failed(Answer(name, AT, incarnation=incarnation), "w"),
        "progress": lambda: acks.progress(Answer(name, AT, incarnation=incarnation), 0.75),
    }
    if error is None:
        await calls[answer]()
        assert await stored(store) != handoff
    else:
        with pytest.raises(error) as refused:
            await calls[answer]()
        assert type(refused.value) is error
        assert await stored(store) == handoff


@pytest.mark.parametrize("state", ["warming", "ready"])
@pytest.mark.parametrize("marked", ["n1", "n0", "-"])
async def test_only_an_expelled_process_is_refused_as_expelled(state: str, marked: str) -> None:
    """A repeated answer is refused like an answer that would change the hand-off."""
    store = Followed()
    await store.handoff(NAMES[state])
    await store.put(ALL.expelled("new", marked), b"x")
    acks = acks_of(store)
    if marked == "n1":
        with pytest.raises(Expelled, match="new: incarnation n1"):
            await acks.ready(Answer("new", AT, incarnation="n1"))
        assert await stored(store) == NAMES[state]
    else:
        await acks.ready(Answer("new", AT, incarnation="n1"))
        assert await stored(store) == READY


async def test_an_answer_beside_a_change_is_decided_again() -> None:
    """An ended hand-off is not recreated; an advanced hand-off advances from its new state."""
    store = Followed()
    await store.handoff(WARMING)
    acks = acks_of(store)
    store.meanwhile = [[Delete(ALL.handoff(AT))]]
    with pytest.raises(NotFound, match="t/3: no hand-off"):
        await acks.ready(Answer("new", AT, incarnation="n1"))
    await store.handoff(RELEASING)
    store.meanwhile = [[Put(ALL.handoff(AT), codec.dump_handoff(replace(RELEASING, progress=0.5)))]]
    await acks.released(Answer("old", AT, incarnation="o1"), 0)
    assert await stored(store) == replace(RELEASED, progress=0.5, offset=0)


AFTERWARDS: list[tuple[str, tuple[str, str], bool]] = [
    ("ready", ("new", "n1"), True),
    ("ready", ("new", "n2"), False),
    ("ready", ("third", "x"), False),
    ("gave up", ("new", "n1"), False),
    ("gave up", ("third", "x"), True),
    ("released", ("old", "o1"), False),
    ("released", ("old", "o2"), True),
    ("released", ("new", "n1"), True),
    ("cannot", ("old", "o1"), False),
    ("cannot", ("new", "n1"), True),
]


@pytest.mark.parametrize(("answer", "owner", "is_taken"), AFTERWARDS)
async def test_an_answer_after_the_end_is_taken_if_the_owner_shows_its_result(
    answer: str, owner: tuple[str, str], is_taken: bool
) -> None:
    """The answer has the assignment's revision; name and incarnation must match."""
    store = Followed()
    revision = await store.owner(AT, *owner)
    await store.put("/g/later", b"x")
    acks = acks_of(store)
    if is_taken:
        assert await SAY[answer](acks) == revision
    else:
        with pytest.raises(NotFound, match="t/3: no hand-off"):
            await SAY[answer](acks)


@pytest.mark.parametrize("assignment", [None, b"?"])
@pytest.mark.parametrize("answer", SAY)
async def test_an_answer_without_hand_off_and_owner_is_refused(
    answer: str, assignment: bytes | None
) -> None:
    """Unreadable values count as absent; an abort always needs a hand-off."""
    store = Followed()
    await store.put(ALL.handoff(AT), b"?")
    if assignment is not None:
        await store.put(ALL.assignment(AT), assignment)
    with pytest.raises(NotFound):
        await SAY[answer](acks_of(store))
    if answer == "aborted":
        await store.owner(AT, "third")
        with pytest.raises(NotFound):
            await SAY[answer](acks_of(store))


@pytest.mark.parametrize("is_later", [True, False])
async def test_an_answer_beside_an_unreadable_hand_off_has_the_later_revision(
    is_later: bool,
) -> None:
    """A message with this revision shows both the assignment and the unreadable value."""
    store = Followed()
    if is_later:
        await store.put(ALL.handoff(AT), b"?")
    revision = await store.owner(AT, "new", "n1")
    if not is_later:
        revision = await store.put(ALL.handoff(AT), b"?")
    await store.put("/g/later", b"x")
    assert await acks_of(store).ready(Answer("new", AT, incarnation="n1")) == revision


async def test_an_expelled_process_is_refused_after_the_end_too() -> None:
    """Without the mark the answer would be accepted."""
    store = Followed()
    await store.owner(AT, "new", "n1")
    await store.put(ALL.expelled("new", "n1"), b"x")
    with pytest.raises(Expelled):
        await acks_of(store).ready(Answer("new", AT, incarnation="n1"))


@pytest.mark.parametrize(("offset", "is_good"), [(2**63 - 1, True), (2**63, False), (-1, False)])
async def test_an_offset_has_63_bits(offset: int, is_good: bool) -> None:
    """A wrong offset is refused before any request to the store."""
    store = Followed()
    await store.handoff(RELEASING)
    acks = acks_of(store)
    if is_good:
        await acks.released(Answer("old", AT, incarnation="o1"), offset)
        assert (await stored(store)).offset == offset
    else:
        with pytest.raises(BadRequest, match=f"t/3: .* got {offset}"):
            await acks.released(Answer("old", AT, incarnation="o1"), offset)


@pytest.mark.parametrize(("granted", "is_taken"), [(None, True), (101, True), (100, False)])
async def test_a_failed_release_may_name_the_grant_to_which_it_refers(
    granted: int | None, is_taken: bool
) -> None:
    """The failure does not revoke a later grant, and is refused without an assignment."""
    store = Followed()
    await store.owner(AT, "old", "o1")
    await store.handoff(RELEASING)
    acks = acks_of(store)
    if is_taken:
        await acks.release_failed(Answer("old", AT, incarnation="o1"), "w", granted)
    else:
        with pytest.raises(WrongPhase, match="the epoch of this answer has ended"):
            await acks.release_failed(Answer("old", AT, incarnation="o1"), "w", granted)
        await store.txn([], [Delete(ALL.assignment(AT))])
        with pytest.raises(WrongPhase, match="the epoch of this answer has ended"):
            await acks.release_failed(Answer("old", AT, incarnation="o1"), "w", 101)


@pytest.mark.parametrize("kind", ["cannot", "gave up"])
@pytest.mark.parametrize(
    ("reason", "said"),
    [("a\nb", "a b"), ("", "no reason given"), ("x" * 501, "x" * 500), ("\x1b[1m", " [1m")],
)
async def test_a_reason_is_one_printable_line_of_at_most_500_characters(
    kind: str, reason: str, said: str
) -> None:
    """The reasons of both owners are cleaned in the same way."""
    store = Followed()
    await store.handoff(RELEASING)
    acks = acks_of(store)
    if kind == "cannot":
        await acks.release_failed(Answer("old", AT, incarnation="o1"), reason)
        assert (await stored(store)).unreleased == said
    else:
        await acks.warm_failed(Answer("new", AT, incarnation="n1"), reason)
        assert (await stored(store)).failed == said


def test_progress_is_stored_every_five_seconds_for_each_partition_and_consumer() -> None:
    """Earlier reports return the stored revision; a ready hand-off keeps its progress."""

    async def story() -> None:
        store, clock = Followed(), LoopClock()
        acks = acks_of(store, clock)
        await store.handoff(WARMING)
        await store.handoff(replace(WARMING, at=OTHER))
        first = await acks.progress(Answer("new", AT, incarnation="n1"), 0.5)
        await clock.sleep(1.0)
        other = await acks.progress(Answer("new", OTHER, incarnation="n1"), 0.625)
        assert (first, other) == (103, 104)
        await clock.sleep(PROGRESS_EVERY_S - 1.125)
        assert await acks.progress(Answer("new", AT, incarnation="n1"), 0.75) == first
        assert (await stored(store)).progress == 0.5
        await clock.sleep(0.125)
        assert await acks.progress(Answer("new", AT, incarnation="n1"), 0.75) == 105
        assert await acks.progress(Answer("new", OTHER, incarnation="n1"), 0.75) == other
        assert [(await stored(store, at)).progress for at in (AT, OTHER)] == [0.75, 0.625]
        await clock.sleep(PROGRESS_EVERY_S)
        ready = await store.handoff(READY)
        assert await acks.progress(Answer("new", AT, incarnation="n1"), 0.875) == ready
        assert await stored(store) == READY
        await store.close()

    virtually(story)


def test_a_refused_report_of_progress_is_not_remembered() -> None:
    """The first report after the hand-off's start is stored."""

    async def story() -> None:
        store = Followed()
        acks = acks_of(store)
        with pytest.raises(NotFound):
            await acks.progress(Answer("new", AT, incarnation="n1"), 0.5)
        await store.handoff(WARMING)
        await acks.progress(Answer("new", AT, incarnation="n1"), 0.5)
        assert (await stored(store)).progress == 0.5
        await store.close()

    virtually(story)


@pytest.mark.parametrize(
    ("expected", "said", "is_taken"),
    [("~n", "", True), ("~n", "x", False), ("", "x", False), ("", "", True), ("n", "", False)],
)
async def test_a_process_with_an_incarnation_does_not_answer_for_one_without(
    expected: str, said: str, is_taken: bool
) -> None:
    """The name alone is enough only if neither side has an incarnation."""
    store = Followed()
    await store.handoff(replace(WARMING, new_incarnation=expected))
    acks = acks_of(store)
    if is_taken:
        await acks.ready(Answer("new", AT, incarnation=said))
    else:
        with pytest.raises(Replaced):
            await acks.ready(Answer("new", AT, incarnation=said))


def test_reports_of_progress_are_forgotten_after_their_time() -> None:
    """A service that runs for months keeps only the reports of the last seconds."""

    async def story() -> None:
        store, clock = Followed(), LoopClock()
        acks = acks_of(store, clock)
        for number in range(20):
            await store.handoff(replace(WARMING, at=TopicPartition("t", number)))
            await acks.progress(Answer("new", TopicPartition("t", number), incarnation="n1"), 0.5)
            await clock.sleep(2.0)
        assert len(acks._reported) <= 5
        await store.close()

    virtually(story)


def test_a_log_line_counts_invalid_requests(caplog: pytest.LogCaptureFixture) -> None:
    """The line reads right for one request as for many."""
    requests = readable.ReadableRequests(clock=lambda: 0.0)
    requests._count("/S/Drain", 40)
    assert "not valid messages: 1; the last one, to /S/Drain, is 40 bytes long" in caplog.text
