"""The safety rules for a client; each function runs a scenario that checks one rule.

A slow machine does not make a client fail: a write counts as too late only if the client dates it
after the latest permitted moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import grpc

from faust_assigner.service.conformance.simulated_service import SimulatedService
from faust_assigner.service.conformance.stage import PATIENCE_S, QUIET_S, RuleBroken, Stage
from faust_assigner.service.conformance.subjects import Start


async def says_who_it_is(stage: Stage) -> None:
    """A process sends one incarnation in every request, and sends heartbeats.

    It sets ``heartbeats`` in each registration, and ``returns`` from its second registration on.
    """
    async with stage.begun((0, 5)):
        first = stage.part.streams[0].request
        stage.check(first.incarnation, "the registration has no incarnation")
        stage.check(first.heartbeats, "the registration does not set `heartbeats`")
        stage.check(not first.returns, "a first registration sets `returns`")
        stage.part.tell(stage.part.warm(1, 7))
        await stage.until(lambda: stage.part.received("PartitionReady"), "PartitionReady comes")
        await stage.until(lambda: stage.part.received("Heartbeat"), "a heartbeat comes")
        stage.part.tell(grpc.StatusCode.UNAVAILABLE)
        again = (await stage.registered(2)).request
        stage.check(again.returns, "a second registration does not set `returns`")
        seen = {call.request.incarnation for call in stage.part.calls}
        stage.check(seen == {first.incarnation}, f"several incarnations of one process: {seen}")
        names = {call.request.consumer_name for call in stage.part.calls}
        stage.check(names == {stage.name}, f"several names of one process: {names}")


async def takes_a_snapshot_whole(stage: Stage) -> None:
    """A partition missing in a snapshot is lost; all parts of a snapshot form one assignment."""
    async with stage.begun((0, 5), (1, 5), (2, 5)):
        part = stage.part
        told = part.tell(
            part.snapshot([(0, 5)], more=True), part.snapshot([(2, 5), (3, 8)], first=False)
        )
        await stage.stops(1)
        for number, epoch in ((0, 5), (2, 5), (3, 8)):
            await stage.works(number, epoch, told + QUIET_S)


async def works_under_the_grants_epoch(stage: Stage) -> None:
    """A write carries the epoch of the partition's newest grant."""
    async with stage.begun((0, 5)):
        told = stage.part.tell(stage.part.grants([(0, 9)]))
        await stage.works(0, 9, told)
        since = time.monotonic() + QUIET_S
        await stage.works(0, 9, since)
        late = {one.epoch for one in stage.written(0, since)}
        stage.check(late == {9}, f"writes under {late} after a grant under 9")


async def stops_what_is_taken(stage: Stage) -> None:
    """The client stops work on an unassigned partition, and continues its other partitions."""
    async with stage.begun((0, 5), (1, 5)):
        told = stage.part.tell(stage.part.takes(1))
        await stage.stops(1)
        await stage.works(0, 5, told + QUIET_S)


async def stops_when_its_time_is_over(stage: Stage) -> None:
    """A registration lives for `lives_ms` from the moment at which the client *sent* its request.

    After that the client works on no partition, until a new registration grants partitions.
    """
    async with stage.begun((0, 5)):
        part = stage.part
        part.answers, part.refuses = False, grpc.StatusCode.UNAVAILABLE
        await asyncio.sleep(0.5)
        over = part.renewed_at + part.lives_s
        await asyncio.sleep(max(0.0, over - time.monotonic()) + 2 * QUIET_S)
        count = len(part.streams)
        part.answers, part.refuses = True, None
        await stage.registered(count + 1)
        await asyncio.sleep(part.lives_s / 4)
        late = [one.when - over for one in stage.written(0, over)]
        stage.check(not late, f"{len(late)} writes up to {max(late, default=0):.2f} s too late")
        told = part.tell(part.snapshot([(0, 6)]))
        await stage.works(0, 6, told)


async def wakes_without_harm(stage: Stage) -> None:
    """A process that was stopped for longer than its registration lives does no work afterwards.

    One late write is allowed, if the client began it before the stop: the sink refuses it by its epoch.
    """
    async with stage.begun((0, 5)):
        await stage.subject.freeze(stage.part.lives_s + QUIET_S)
        woken = time.monotonic()
        count = len(stage.part.streams)
        await stage.registered(count if stage.part.streams[-1].when >= woken else count + 1)
        await asyncio.sleep(stage.part.lives_s / 4)
        late = stage.written(0, woken + 0.001)
        stage.check(len(late) <= 1, f"{len(late)} writes after it woke")
        told = stage.part.tell(stage.part.snapshot([(0, 6)]))
        await stage.works(0, 6, told)


async def releases_before_it_says_so(stage: Stage) -> None:
    """The client sends PartitionReleased, with the hand-off's id, after its last write."""
    async with stage.begun((0, 5), (1, 5)):
        stage.part.tell(stage.part.release(1, 77))
        await stage.until(
            lambda: stage.part.received("PartitionReleased"), "PartitionReleased comes"
        )
        call = stage.part.received("PartitionReleased")[0]
        stage.check(call.request.handoff_id == 77, f"handoff_id is {call.request.handoff_id}")
        stage.check(call.request.partition.partition == 1, "another partition is released")
        await asyncio.sleep(QUIET_S)
        late = stage.written(1, call.when)
        stage.check(not late, f"{len(late)} writes after PartitionReleased")
        stage.check(stage.written(0, call.when), "the other partition stands still")


async def warms_before_it_works(stage: Stage) -> None:
    """The client does not write to a partition that it warms.

    The client sends PartitionReady with the hand-off's id, and writes only after the grant.
    """
    async with stage.begun((0, 5)):
        stage.part.tell(stage.part.warm(1, 78))
        await stage.until(lambda: stage.part.received("PartitionReady"), "PartitionReady comes")
        call = stage.part.received("PartitionReady")[0]
        stage.check(call.request.handoff_id == 78, f"handoff_id is {call.request.handoff_id}")
        await asyncio.sleep(QUIET_S)
        stage.check(not stage.written(1, 0.0), "writes to a partition that was not granted")
        told = stage.part.tell(stage.part.grants([(1, 6)]))
        await stage.works(1, 6, told)


async def keeps_what_is_given_again(stage: Stage) -> None:
    """The client continues a partition that is granted with `keep`, under the same epoch."""
    async with stage.begun((0, 5)):
        stage.part.tell(stage.part.release(0, 79))
        await stage.until(
            lambda: stage.part.received("PartitionReleased"), "PartitionReleased comes"
        )
        told = stage.part.tell(stage.part.grants([(0, 5)], keep=True))
        await stage.works(0, 5, told)


async def ends_when_it_is_replaced(stage: Stage) -> None:
    """After ALREADY_EXISTS the process stops all work and does not register again."""
    await _ends(stage, grpc.StatusCode.ALREADY_EXISTS)


async def ends_when_it_is_expelled(stage: Stage) -> None:
    """After ABORTED the process stops all work: only a new process may register again."""
    await _ends(stage, grpc.StatusCode.ABORTED)


async def _ends(stage: Stage, status: grpc.StatusCode) -> None:
    async with stage.begun((0, 5)):
        stage.part.refuses = status
        told = stage.part.tell(status)
        await stage.stops(0)
        since = time.monotonic()
        await asyncio.sleep(stage.part.lives_s)
        stage.check(not stage.part.received("Register", told), "it registers again")
        stage.check(not stage.written(0, since), "it continues to work")


async def registers_again_when_it_is_unknown(stage: Stage) -> None:
    """After a heartbeat with `known` false the session is over: the client registers again."""
    async with stage.begun((0, 5)):
        stage.part.knows = False
        await stage.registered(2)
        stage.part.knows = True
        stage.part.tell(stage.part.snapshot([(1, 6)]))
        await stage.stops(0)
        await stage.works(1, 6, 0.0)


async def leaves_a_silent_stream(stage: Stage) -> None:
    """If the service sends `pulse_ms`, the client leaves a stream that is silent for too long.

    The limit is half of `lives_ms`. Answered heartbeats do not prove that commands arrive.
    """
    stage.part.pulse_s = stage.part.lives_s / 9
    async with stage.begun((0, 5)):
        await stage.registered(2)


async def passes_over_what_it_does_not_know(stage: Stage) -> None:
    """The client ignores a command that only a later release defines."""
    async with stage.begun((0, 5)):
        told = stage.part.tell(stage.part.later(), stage.part.grants([(1, 6)]))
        await stage.works(1, 6, told)
        await stage.works(0, 5, told + QUIET_S)
        stage.check(len(stage.part.streams) == 1, "it registers again")


Rule = Callable[[Stage], Awaitable[None]]
#: The rules, in the order of the reference page.
RULES: Final[dict[str, Rule]] = {
    "identity": says_who_it_is,
    "snapshot": takes_a_snapshot_whole,
    "epoch": works_under_the_grants_epoch,
    "unassigned": stops_what_is_taken,
    "lease": stops_when_its_time_is_over,
    "freeze": wakes_without_harm,
    "release": releases_before_it_says_so,
    "warm": warms_before_it_works,
    "keep": keeps_what_is_given_again,
    "replaced": ends_when_it_is_replaced,
    "expelled": ends_when_it_is_expelled,
    "unknown": registers_again_when_it_is_unknown,
    "silence": leaves_a_silent_stream,
    "future": passes_over_what_it_does_not_know,
}


async def broken(rule: str, start: Start, *, patience_s: float = PATIENCE_S) -> str:
    """Return how the client breaks the rule, or "" if the client keeps the rule."""
    part = SimulatedService()
    stage = Stage(start, part, f"conformance-{rule}", patience_s=patience_s)
    try:
        await RULES[rule](stage)
    except RuleBroken as error:
        return str(error)
    return ""
