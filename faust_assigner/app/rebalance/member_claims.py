"""The leader's check of the members' metadata, and their conversion to the planner's input.

Invalid metadata never raise an error, never block the leader, and never harm another member. The
leader refuses such metadata with a reason, and counts the member as a member without claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims, Member, Positions
from faust_assigner.wire.bounded import NAME_CHARS, TOPICS
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import STOCK, JoinData, Memo, decode_join
from faust_assigner.wire.runs import Numbers, Runs

if TYPE_CHECKING:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

#: The minimum limit for the partition numbers in all claims of a round; the limit grows with the
#: cluster. This number of int64 values takes 128 MiB.
LEAST_BUDGET = 16 * 1024 * 1024
#: The consequence of a refusal, which is appended to the reason.
STATELESS = "; it counts as stateless"


@dataclass(frozen=True)
class MemberClaims:
    """One member's metadata; ``topics`` is sorted and unique.

    ``refused`` is the reason if the leader refused the metadata, else None. ``size`` is the number of
    bytes in which the member sent ``data``.
    """

    member_id: str
    topics: tuple[str, ...]
    data: JoinData
    protocol_version: int
    refused: str | None = None
    size: int = 0


def read_members(metadata: Mapping[str, object]) -> tuple[MemberClaims, ...]:
    """Decode aiokafka's ``{member_id: ConsumerProtocolMemberMetadata}``; sort the result by id."""
    memo: Memo = {}
    return tuple(
        _read_member(member_id, metadata[member_id], memo) for member_id in sorted(metadata)
    )


def _read_member(member_id: str, said: ConsumerProtocolMemberMetadata, memo: Memo) -> MemberClaims:
    refused, data = "", JoinData()
    topics = _topics(said.subscription)
    try:
        data = decode_join(said.user_data, topics, memo=memo)
    except MetadataRefused as exc:
        refused, data = str(exc), JoinData(exc.url)
    except Exception as exc:  # a bug in the decoder must not stop the leader
        refused = f"{type(exc).__name__} while reading"
    if len(topics) > TOPICS:
        refused, topics = f"{len(topics)} topics, the limit is {TOPICS}", topics[:TOPICS]
    version = said.version if type(said.version) is int else 0
    size = len(said.user_data or b"")
    if not refused:
        return MemberClaims(member_id, topics, data, version, size=size)
    data = JoinData(data.url, version=STOCK)
    return MemberClaims(member_id, topics, data, version, refused + STATELESS, size)


def _topics(subscription: Iterable[object]) -> tuple[str, ...]:
    names = subscription if isinstance(subscription, (list, tuple, set, frozenset)) else ()
    return tuple(sorted({t for t in names if type(t) is str and 0 < len(t) <= NAME_CHARS}))


@dataclass(frozen=True)
class Claimed:
    """The planner's members, and the claims that were left out.

    ``beyond`` maps a topic to the number of claims on partitions that no longer exist. ``refused``
    maps a member to the reason, if its claims exceeded the round's limit.
    """

    members: tuple[Member, ...]
    beyond: Mapping[str, int]
    refused: Mapping[str, str]


def claims_of(
    said: Sequence[MemberClaims],
    partitions: Mapping[str, int],
    globals_: Mapping[str, bool],
    *,
    generation: int,
    is_kafkas: bool,
    last: Directory,
    last_generation: int,
) -> Claimed:
    """Convert the metadata to the planner's members.

    ``generation`` is the generation being formed. If ``is_kafkas`` is set, Kafka has assigned the
    number, and no claim can have this or a later generation. ``last`` is the directory of owners in
    the leader's own last assignment. It restores the claims of a static member that has restarted,
    by instance id.
    """
    reader = _ClaimReader(partitions, globals_)
    budget = max(LEAST_BUDGET, 8 * sum(partitions.values()))
    refused: dict[str, str] = {}
    members: dict[str, Member] = {}
    sizes = dict.fromkeys((j.member_id for j in said), 0)
    if 4 * len(said) * sum(partitions.values()) > budget:  # otherwise claims on all partitions fit
        sizes = {j.member_id: reader.count_numbers(j.data) for j in said}
    # Read the smallest claims first, so that only the members with the largest claims are refused.
    for one in sorted(said, key=lambda j: (sizes[j.member_id], j.member_id)):
        data = one.data
        budget -= sizes[one.member_id]
        if budget < 0:
            refused[one.member_id] = (
                f"claims {sizes[one.member_id]} partitions, which exceeds the round's "
                f"limit{STATELESS}"
            )
            data = replace(
                data,
                actives={},
                standbys={},
                on_disk={},
                former_actives={},
                awaited={},
                overdue={},
                promised={},
                generation=-1,
            )
        elif data.instance_id and data.generation < 0:
            data = _with_claims_before_restart(data, last, last_generation)
        data = _with_promised_partitions(data)
        members[one.member_id] = reader.member(one, data, generation - 1, is_kafkas=is_kafkas)
    return Claimed(tuple(members[j.member_id] for j in said), reader.beyond, refused)


def _with_claims_before_restart(data: JoinData, last: Directory, generation: int) -> JoinData:
    """Return a static member's data with its claims before its restart, if ``last`` has any."""
    held = last.held_by_instance(data.instance_id or "")
    return replace(data, actives=held, generation=generation) if held else data


def _with_promised_partitions(data: JoinData) -> JoinData:
    """Add the promised partitions to the actives, so that this round keeps the last plan."""
    if not data.promised:
        return data
    topics = data.actives.keys() | data.promised.keys()
    return replace(
        data,
        actives={t: Runs.of([*data.actives.get(t, ()), *data.promised.get(t, ())]) for t in topics},
    )


def existing_positions(
    positions: Mapping[str, Positions], partitions: Mapping[str, int]
) -> dict[str, Positions]:
    """Return ``positions`` without partitions that do not exist."""
    found: dict[str, Positions] = {}
    for topic, said in positions.items():
        if topic in partitions and isinstance(said, tuple):
            kept = int(np.searchsorted(said[0], partitions[topic]))
            found[topic] = said[0][:kept], said[1][:kept]
    return found


class _ClaimReader:
    """Converts claims to arrays, and counts the claims on missing partitions.

    Topics of one member may share one claim object; the reader converts a shared object only once.
    """

    def __init__(self, partitions: Mapping[str, int], globals_: Mapping[str, bool]) -> None:
        self._partitions = partitions
        self._globals = globals_
        self.beyond: dict[str, int] = {}

    def count_numbers(self, data: JoinData) -> int:
        """Return the number of partition numbers in the claims; a shared claim counts once."""
        distinct = {
            (id(claim), self._partitions[topic]): claim
            for claims in (
                data.actives,
                data.standbys,
                data.on_disk,
                data.former_actives,
                data.awaited,
                data.overdue,
                data.promised,
            )
            for topic, claim in claims.items()
            if topic in self._partitions
        }
        return sum(Runs.of(claim).below(count).size for (_, count), claim in distinct.items())

    def member(self, one: MemberClaims, data: JoinData, newest: int, *, is_kafkas: bool) -> Member:
        """Return the planner's member for ``one``, with its claims as arrays.

        Claims of stock members on a global table do not count: only this package's members report
        the partitions that they write. Former partitions have their own generation. A member
        without current claims gets the generation of its former partitions.
        """
        mine = set(one.topics)
        skipped = set() if data.is_ours else set(self._globals)
        spare = self._numbers_by_topic(data.on_disk, mine - self._globals.keys())
        for topic, numbers in self._numbers_by_topic(
            data.standbys, mine - self._globals.keys()
        ).items():
            spare[topic] = (
                Runs.of([*spare[topic], *numbers]).numbers() if topic in spare else numbers
            )
        former = self._numbers_by_topic(data.former_actives, mine - skipped)
        dates = data.generation, data.former_generation
        if former and not data.actives and data.generation < 0:
            dates = data.former_generation, data.former_generation
        generation, former_generation = (min(date, newest) if is_kafkas else date for date in dates)
        return Member(
            one.member_id,
            one.topics,
            actives=self._numbers_by_topic(data.actives, mine - skipped),
            standbys=spare,
            former_actives=former,
            former_generation=former_generation,
            generation=generation,
            instance_id=data.instance_id,
            rack_id=data.rack_id,
            capacity=data.capacity,
            positions=None
            if data.positions is None
            else existing_positions(data.positions, self._partitions),
            awaited=self._numbers_by_topic(data.awaited, mine - self._globals.keys()),
            overdue=self._numbers_by_topic(data.overdue, mine - self._globals.keys()),
        )

    def _numbers_by_topic(self, claims: Claims, topics: set[str]) -> dict[str, Numbers]:
        if not claims:
            return {}
        read: dict[tuple[int, int], Numbers] = {}
        found: dict[str, Numbers] = {}
        for topic in claims.keys() & topics & self._partitions.keys():
            count = self._partitions[topic]
            key = (id(claims[topic]), count)
            if key not in read:
                read[key] = Runs.of(claims[topic]).below(count).numbers()
            found[topic] = read[key]
            lost = Runs.of(claims[topic]).size - len(read[key])
            if lost > 0:
                self.beyond[topic] = self.beyond.get(topic, 0) + lost
        return dict(sorted(found.items()))
