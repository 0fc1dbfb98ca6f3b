"""Members of both group protocols, whose identities commit offsets."""

from __future__ import annotations

import asyncio
import datetime
import random
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.timers import Purpose
from tests.property.broker_sim.host import Host
from tests.property.broker_sim.model import INTERVAL, Model
from tests.property.broker_sim.model import SESSION as SESSION_MS
from tests.property.lives import must

JOIN, HEARTBEAT, LEAVE, SYNC, CONSUMER = 11, 12, 13, 14, 68
#: The groups with members, and their protocols. All other groups only commit offsets.
CLASSIC, NEW = ("g",), ("m",)
SESSION: Final = datetime.timedelta(seconds=30)
#: The errors that a member may get after a rebalance, an expired session or a refused write.
STALE: Final = (
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    ErrorCode.rebalance_in_progress,
    ErrorCode.stale_member_epoch,
    ErrorCode.fenced_member_epoch,
    ErrorCode.group_id_not_found,
)
OF_DISK: Final = (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available)
TOPIC_T: Final = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"


@dataclass
class Member:
    """The identity of a group's member; the generation is also the epoch of KIP-848."""

    member_id: str = ""
    generation: int = -1


class Members:
    """One member of each protocol."""

    def __init__(self, host: Host, draw: random.Random, ask: Any, model: Model) -> None:
        self.host, self.draw, self.ask, self.model = host, draw, ask, model
        self.known = {group: Member() for group in (*CLASSIC, *NEW)}

    def identity(self, group: str) -> dict[str, Any]:
        """Return the fields of a commit."""
        member = self.known.get(group, Member())
        return {"member_id": member.member_id, "generation_id": member.generation}

    def refusals(self, group: str) -> tuple[ErrorCode, ...]:
        """Return the errors that the group may have for a commit."""
        return STALE if group in self.known else ()

    async def act(self) -> None:
        """Let a member join, send a heartbeat or leave."""
        group = self.draw.choice((*CLASSIC, *NEW))
        member = self.known[group]
        if member.generation >= 0 and self.draw.random() < 0.15:
            await self._leave(group)
        elif group in NEW:
            await self.beat(group)
        elif member.generation < 0 or self.draw.random() < 0.3:
            await self._join(group)
        else:
            answer = await self.ask(HEARTBEAT, 4, group_id=group, **self.identity(group))
            self._heard(group, answer.error_code)

    def _heard(self, group: str, error: ErrorCode) -> bool:
        error = ErrorCode(error)
        if error is ErrorCode.none:
            return True
        allowed = (*STALE, *OF_DISK) if self.host.has_refused else STALE
        must(error in allowed, "a member's request is accepted", group, error)
        if error in STALE:
            self.known[group] = Member()
        return False

    async def beat(self, group: str) -> None:
        """Let a member of KIP-848 join or send a heartbeat."""
        member = self.known[group]
        if member.generation < 0:
            member.member_id, member.generation = f"member-{self.draw.randrange(10**6)}", 0
        joins = member.generation == 0
        answer = await self.ask(
            CONSUMER,
            1,
            group_id=group,
            member_id=member.member_id,
            member_epoch=member.generation,
            rebalance_timeout=SESSION,
            subscribed_topic_names=["t", "u"] if joins else None,
            topic_partitions=[] if joins else None,
        )
        if self._heard(group, answer.error_code):
            member.generation = answer.member_epoch
            told = round(answer.heartbeat_interval.total_seconds() * 1_000)
            wanted = self.model.config(group, INTERVAL)
            must(told == wanted, "a heartbeat is answered with the group's interval", told, wanted)
            self.check_session(group, member.member_id)
        elif joins:
            self.known[group] = Member()

    async def _join(self, group: str) -> None:
        joining = asyncio.ensure_future(
            self.ask(
                JOIN,
                3,
                group_id=group,
                session_timeout=SESSION,
                rebalance_timeout=SESSION,
                member_id=self.known[group].member_id,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": TOPIC_T}],
            )
        )
        for turn in range(100):
            await asyncio.sleep(0)
            if joining.done():
                break
            if turn == 50:  # an earlier member, whose identity is lost, does not join again
                self.host.now += 31_000
            self.host.node.groups.tick(group)
        answer = await joining
        if not self._heard(group, answer.error_code):
            return
        member = Member(answer.member_id, answer.generation_id)
        answer = await self.ask(
            SYNC,
            3,
            group_id=group,
            member_id=member.member_id,
            generation_id=member.generation,
            assignments=[{"member_id": member.member_id, "assignment": b"all"}],
        )
        self.known[group] = member
        self._heard(group, answer.error_code)

    async def _leave(self, group: str) -> None:
        member = self.known[group]
        if group in NEW:
            answer = await self.ask(
                CONSUMER,
                1,
                group_id=group,
                member_id=member.member_id,
                member_epoch=-1,
                rebalance_timeout=SESSION,
                subscribed_topic_names=None,
                topic_partitions=None,
            )
        else:
            leaver = {"member_id": member.member_id, "group_instance_id": None}
            answer = await self.ask(LEAVE, 3, group_id=group, members=[leaver])
        if self._heard(group, answer.error_code):
            self.known[group] = Member()

    def check_session(self, group_id: str, member_id: str) -> None:
        """The member's session began now, and lasts as long as the group's config says."""
        group = self.host.node.groups.get(group_id)
        must(isinstance(group, ConsumerGroup), "a group with a member of KIP-848", group_id)
        left = group.timers.get(Purpose.SESSION, member_id) - self.host.now
        wanted = self.model.config(group_id, SESSION_MS)
        must(left == wanted, "a session lasts as long as the group's config says", left, wanted)

    def check_limits(self) -> None:
        """After a restart of the broker, every session began now."""
        for group_id in NEW:
            group = self.host.node.groups.get(group_id)
            for member in group.describe().members if group is not None else ():
                self.check_session(group_id, member.member_id)

    async def leave(self) -> None:
        """Let all members leave, or expire."""
        for group in self.known:
            if self.known[group].generation >= 0:
                await self._leave(group)
            self.host.node.groups.tick(group)

    def facts(self) -> dict[str, Any]:
        """Return the state of the groups that a restart keeps."""
        found: dict[str, Any] = {}
        for group in self.host.node.groups:
            view = group.describe()
            is_kept = group.group_type == "consumer" or not self.host.has_lost_group
            if is_kept and view.state in ("Stable", "Empty") and view.epoch:
                found[group.group_id] = view
        return found
