"""C3, C4 and C9 of real processes: from the taps' transactions, etcd's history, consumers' answers."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

import grpc.aio

from faust_assigner.service.client import AssignerClient, TopicPartition
from faust_assigner.service.errors import ServiceRefused
from faust_assigner.service.faults import refusal
from faust_assigner.service.handoff import HandoffEvent
from faust_assigner.service.handoff import TopicPartition as At
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import FENCE_AT
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub
from faust_assigner.service.store.base import Event
from faust_assigner.service.view import View
from tests.support.assigning.rules import Moment, Said, during, fits, uncompared
from tests.support.assigning.wiretap import Tap, Transaction

ANSWERS = {
    "PartitionReady": HandoffEvent.WARM,
    "PartitionReleased": HandoffEvent.LET_GO,
    "WarmFailed": HandoffEvent.GAVE_UP,
}


def without_compares(taps: Sequence[Tap], keys: Keys) -> list[str]:
    """C3, for every transaction of an instance."""
    return [
        fault
        for tap in taps
        for one in tap.transactions
        for fault in uncompared(keys, one.compares, one.writes)
    ]


def after_the_term(
    taps: Sequence[Tap], events: Sequence[Event], keys: Keys, leader_ttl_s: float, *, late_s: float
) -> list[str]:
    """C4: writes of a leader after its term, or more than ``late_s`` seconds after its fence."""
    ended = {}  # the revision that began a term -> the revision that ended it
    term = 0
    for event in events:
        if event.key == keys.leader:
            ended[term] = event.revision
            term = event.revision if event.kv is not None else 0
    found = []
    for tap in taps:
        leases = {
            one.revision: write.lease
            for one in tap.transactions
            if one.revision
            for write in one.writes
            if write.key == keys.leader and hasattr(write, "lease")
        }
        for one in tap.transactions:
            guard = next(
                (c.expected for c in one.compares if c.key == keys.leader and c.expected), None
            )
            if not one.writes or not isinstance(guard, int):
                continue
            if one.revision and not guard <= one.revision <= ended.get(guard, one.revision):
                found.append(f"C4 term {guard} ended at {ended[guard]}, it wrote at {one.revision}")
            fence = (
                max(
                    (
                        r.asked
                        for r in tap.renewals
                        if r.lease_id == leases.get(guard) and r.asked <= one.asked
                    ),
                    default=0.0,
                )
                + leader_ttl_s * FENCE_AT
            )
            if one.asked > fence + late_s:
                found.append(
                    f"C4 term {guard} was fenced {one.asked - fence:.2f} s before it asked"
                )
    return found


def moments(
    events: Sequence[Event], carried: Sequence[Transaction], keys: Keys
) -> dict[At, list[Moment]]:
    """Return the states of each partition, each with its earliest and latest time."""
    known = {one.revision: one for one in carried if one.revision and one.writes}
    revisions = [
        (revision, tuple(group)) for revision, group in groupby(events, lambda e: e.revision)
    ]
    # Revisions are ordered: each one happens after its predecessors and before its successors.
    earliest, latest = [0.0], [float("inf")]
    for revision, _ in revisions:
        earliest.append(max(earliest[-1], known[revision].asked if revision in known else 0.0))
    for revision, _ in reversed(revisions):
        latest.append(
            min(latest[-1], known[revision].answered if revision in known else float("inf"))
        )
    view, found = View(keys), dict[At, list[Moment]]()
    for (_, group), begin, end in zip(revisions, earliest[1:], reversed(latest[1:]), strict=True):
        changes = [view.apply(event) for event in group]
        for at in {
            c.name for c in changes if c is not None and c.kind in ("assignments", "handoffs")
        }:
            owner = view.assignments.get(at)
            found.setdefault(at, []).append(
                Moment(begin, end, view.handoffs.get(at), owner.value if owner else None)
            )
    return found


def unfitting(heard: Sequence[Said], history: Mapping[At, Sequence[Moment]]) -> list[str]:
    """C9: answers that fit no state between request and answer."""
    return [
        f"C9 {said}: {during(history.get(said.at, []), said)}"
        for said in heard
        if not fits(history.get(said.at, []), said)
    ]


class HeardClient(AssignerClient):
    """A client that keeps the service's answers to its acknowledgements."""

    heard: ClassVar[list[Said]] = []

    def __init__(self, *said: Any, **options: Any) -> None:
        super().__init__(*said, **options)
        once = self._calls.once

        async def noted(method: str, request: Any, **more: Any) -> Any:
            sent, refused = time.monotonic(), False
            try:
                return await once(method, request, **more)
            except ServiceRefused:
                refused = True
                raise
            except BaseException:
                method = ""  # the outcome is unknown
                raise
            finally:
                if method in ANSWERS:
                    self.heard.append(_said(method, request, sent, refused=refused))

        self._calls.once = noted  # type: ignore[method-assign]


def _said(method: str, request: Any, sent: float, *, refused: bool) -> Said:
    at = At(request.partition.topic, request.partition.partition)
    return Said(
        at,
        request.consumer_name,
        ANSWERS[method],
        request.handoff_id,
        sent,
        time.monotonic(),
        refused,
        request.incarnation,
    )


async def lie(
    target: str,
    partitions: Sequence[TopicPartition],
    names: Sequence[str],
    ids: Sequence[int],
    dice: random.Random,
) -> Said | None:
    """Send a random event for a random hand-off and name; return the answer, if it came."""
    method, at, name = dice.choice(sorted(ANSWERS)), dice.choice(partitions), dice.choice(names)
    if method != "PartitionReady":
        name = "stranger"  # a true client that reports a drain or a failure would harm itself
    request = getattr(pb, f"{method}Request")(
        consumer_name=name,
        handoff_id=dice.choice(ids),
        partition=pb.TopicPartition(topic=at.topic, partition=at.partition),
    )
    sent = time.monotonic()
    async with grpc.aio.insecure_channel(target) as channel:
        try:
            await getattr(KafkaAssignerStub(channel), method)(request, timeout=5.0)
        except grpc.aio.AioRpcError as error:
            return None if refusal(error) is None else _said(method, request, sent, refused=True)
    return _said(method, request, sent, refused=False)
