"""The RPCs of operators: orders, a dry run, the state and its watch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Consumer, Pause, Pin, PlannedMove
from faust_assigner.service.server import admin_servicer
from faust_assigner.service.server.auth import Caller
from tests.unit.service.rpcs import AT, PLACE, Aborted, Context, Node, operators


@pytest.mark.parametrize(
    ("rpc", "request_", "call"),
    [
        ("Undrain", pb.UndrainRequest(consumer_name="d", group="g"), ("undrain", ("d",), {})),
        ("Pause", pb.PauseRequest(reason="r", group="g"), ("pause", ("r",), {})),
        ("Resume", pb.ResumeRequest(group="g"), ("resume", (), {})),
        (
            "Pin",
            pb.PinRequest(partition=PLACE, consumer_name="d", group="g"),
            ("pin", (AT, "d"), {}),
        ),
        ("Unpin", pb.UnpinRequest(partition=PLACE, group="g"), ("unpin", (AT,), {})),
        (
            "Move",
            pb.PinRequest(partition=PLACE, consumer_name="d", group="g"),
            ("move", (AT, "d"), {}),
        ),
        (
            "AbortHandoff",
            pb.AbortHandoffRequest(partition=PLACE, handoff_id=7, group="g"),
            ("abort", (AT, 7), {}),
        ),
        (
            "AbortHandoff",
            pb.AbortHandoffRequest(partition=PLACE, group="g"),
            ("abort", (AT, None), {}),
        ),
        (
            "SetTopic",
            pb.Topic(topic="t", partition_count=4, group="g"),
            ("set_topic", ("t", 4), {}),
        ),
        ("RemoveTopic", pb.RemoveTopicRequest(topic="t", group="g"), ("remove_topic", ("t",), {})),
    ],
)
async def test_an_order_reaches_the_node_of_its_group(
    rpc: str, request_: Any, call: tuple[str, tuple[Any, ...], dict[str, Any]]
) -> None:
    """Only an administrator may order; the answer has the revision from which the order holds."""
    node = Node()
    answer = await getattr(operators(node), rpc)(request_, Context())
    assert (node.calls, answer.revision) == ([call], 42)
    plain = Caller(frozenset({"c"}))
    with pytest.raises(Aborted) as ended:
        await getattr(operators(node, plain), rpc)(request_, Context())
    assert ended.value.args[0] is grpc.StatusCode.PERMISSION_DENIED
    assert len(node.calls) == 1


async def test_a_dry_run_has_the_revision_of_its_begin() -> None:
    """Leaving and joining consumers are not swapped."""
    node = Node([PlannedMove(AT, None, "b")])
    node.overview = node
    added = [{"consumer_name": "e"}, {"consumer_name": "d", "rack": "r"}]
    request = pb.PlanRequest(group="g", without=["b", "a"], extra=added)
    parts = [part async for part in operators(node).Plan(request, Context())]
    extra = [Consumer(name="e"), Consumer(name="d", rack="r")]
    assert node.calls == [("plan", (), {"without": ["b", "a"], "extra": extra})]
    assert parts == [pb.PlanResponse(revision=41, moves=[{"partition": PLACE, "to_owner": "b"}])]


class Overview:
    """A group's state that counts reads and watchers; ``during`` runs at each read."""

    def __init__(self) -> None:
        self.reads, self.watchers, self.changed = 0, 0, asyncio.Event()
        self.during: list[Any] = []

    async def leader(self) -> Any:
        """Return None at the first read, then the leader."""
        self.reads += 1
        if self.during:
            self.during.pop()()
        return SimpleNamespace(holder="n") if self.reads > 1 else None

    async def topics(self) -> list[Any]:
        """Return no topics; this serves for the other lists too."""
        return []

    consumers = assignments = handoffs = topics

    @contextlib.contextmanager
    def changes(self) -> Iterator[asyncio.Event]:
        """Yield the event of each change."""
        self.watchers += 1
        try:
            yield self.changed
        finally:
            self.watchers -= 1


def group_of() -> Node:
    """Return a node with this state."""
    node = Node()
    node.overview = Overview()
    node.condition = SimpleNamespace(silence_s=2.5)
    pins = {"b": Pin(AT, "y", once=True), "a": Pin(AT, "x")}
    entries = {key: SimpleNamespace(value=pin) for key, pin in pins.items()}
    node.view = SimpleNamespace(pins=entries, pause=Pause("why", 3.5))
    return node


STATE_REQUEST = pb.GetStateRequest(group="g")


async def test_a_state_is_made_once_for_all_callers_until_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A state also expires, as ages of hand-offs grow without any change."""
    monkeypatch.setattr(admin_servicer, "TOGETHER_S", 100.0)
    node = group_of()
    servicer = operators(node)

    async def leaders() -> list[str]:
        return [part.leader async for part in servicer.GetState(STATE_REQUEST, Context())]

    assert [await leaders() for _ in range(3)] == [[""]] * 3
    assert node.overview.reads == 1
    node.revision = 43
    assert await leaders() == ["n"]
    assert node.overview.reads == 2
    monkeypatch.setattr(admin_servicer, "TOGETHER_S", -1.0)
    await leaders()
    assert node.overview.reads == 3


async def test_the_states_of_two_groups_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both groups have the same revision, as they share one store."""
    monkeypatch.setattr(admin_servicer, "TOGETHER_S", 100.0)
    node, other = group_of(), group_of()
    other.view = SimpleNamespace(pins={}, pause=None)
    servicer = operators(node, other=other)

    async def state(group: str) -> list[Any]:
        request = pb.GetStateRequest(group=group)
        parts = [part async for part in servicer.GetState(request, Context())]
        return [(part.group, len(part.pins), part.paused.reason) for part in parts]

    for _ in range(2):
        assert await state("g") == [("g", 2, "why")]
        assert await state("other") == [("other", 0, "")]
    assert (node.overview.reads, other.overview.reads) == (1, 1)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_watch_of_a_silent_store_repeats_the_state_with_its_age(
    monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """While the store answers, an unchanged state is not repeated."""
    monkeypatch.setattr(admin_servicer, "TOGETHER_S", 0.0)
    monkeypatch.setattr(admin_servicer, "SILENT_S", 0.0)
    node = group_of()
    node.condition.hears_store = True
    watching = operators(node).WatchState(STATE_REQUEST, Context())
    assert (await anext(watching)).age_s == 2.5
    node.condition = SimpleNamespace(silence_s=19.0, hears_store=not is_silent)
    later = asyncio.ensure_future(anext(watching))
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.sleep(0.005)
    assert later.done() is is_silent
    if is_silent:
        assert ((await later).age_s, node.overview.changed.is_set()) == (19.0, False)
    later.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await later
    await watching.aclose()


async def test_a_state_has_the_orders_and_the_age_of_its_view() -> None:
    """Pins are in the order of their keys; the state has the group's name and the revision."""
    node = group_of()
    [part] = [part async for part in operators(node).GetState(STATE_REQUEST, Context())]
    assert [pin.consumer_name for pin in part.pins] == ["x", "y"]
    assert (part.paused.reason, part.group, part.revision) == ("why", "g", 41)
    assert part.age_s == 2.5


async def test_a_watch_gathers_changes_and_misses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simultaneous changes are one state; a change during a read makes a second state."""
    monkeypatch.setattr(admin_servicer, "TOGETHER_S", 0.0)
    node = group_of()
    overview = node.overview
    watching = operators(node).WatchState(STATE_REQUEST, Context())
    await anext(watching)
    node.revision = 42
    overview.changed.set()
    overview.changed.set()
    overview.during.append(overview.changed.set)
    assert (await anext(watching)).revision == 42
    node.revision = 43
    assert (await anext(watching)).revision == 43
    later = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0.02)
    assert (later.done(), overview.watchers) == (False, 1)
    later.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await later
    await watching.aclose()
    assert overview.watchers == 0
