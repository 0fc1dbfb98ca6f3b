"""The leader's check of what members report: claims and changelogs. Pure.

A claim is a partition that a member reports to own. A single member with false claims could keep the
group rebalancing. It could claim the newest generation, or claim partitions that other members own in
the same generation. So the leader checks claims before it plans. A member with false claims stays in
the group. The partitions that this leader assigned to it in the previous round count as its claims. If
these are unknown, the member counts as new. A single member could also turn a different member's source
into a changelog. So all subscribers of a topic must report that it is one.

A true claim may be overdue: a member that missed answers delays the moves of the partitions that it
still processes. After ``MOST_HELD_UP`` rounds such claims are refused, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.model import Claims
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs

#: A member's claims may delay this number of consecutive rounds if they are older than the last
#: round. A member that missed one answer needs few rounds: it joins again and receives the next
#: answer.
MOST_HELD_UP = 10


@dataclass(frozen=True)
class Record:
    """This leader's answers in ``generation``: member id -> the claims that the member may make."""

    generation: int = -1
    given: Mapping[str, JoinData] = field(default_factory=dict)


def checked(
    said: Sequence[MemberClaims], generation: int, last_generation: int, record: Record
) -> tuple[MemberClaims, ...]:
    """Replace the false claims in ``said`` and set ``refused`` to the reason.

    ``generation`` is Kafka's number of the round being formed. No claim is checked if this number
    is unknown (-1), or if it is not above the leader's own ``last_generation``, because the group's
    generations have then restarted. A member that is missing in ``record`` and processes no partition
    may have been removed from the group and have joined again. Its claims count as claims of the
    generation before ``record``. Cost: O(claims).
    """
    if last_generation >= generation:
        return tuple(said)
    if record.generation != generation - 1:
        record = Record()
    return tuple(_refuse_if_false(one, generation, record) for one in said)


def _refuse_if_false(one: MemberClaims, generation: int, record: Record) -> MemberClaims:
    data, given = one.data, record.given.get(one.member_id)
    if data.generation >= generation:
        why = f"it claims generation {data.generation} while {generation} is being formed"
    elif data.generation < 0 or data.generation != record.generation:
        return one
    elif given is None and not data.holds:
        return replace(one, data=replace(data, generation=record.generation - 1))
    elif topics := _topics_beyond_given(data.actives, {} if given is None else given.actives):
        why = f"it claims partitions of {', '.join(topics)} that were not assigned to it"
    else:
        return one
    instead = "it counts as a new member"
    if given is not None:
        instead = f"its assignment of generation {record.generation} counts instead"
    return replace(one, data=_replacement_claims(data, given), refused=f"{why}; {instead}")


def _topics_beyond_given(claims: Claims, given: Claims) -> list[str]:
    """Return up to three topics with claims on partitions that were not ``given`` to the member."""
    found = (
        topic
        for topic in sorted(claims)
        if not Runs.of(given.get(topic, ())).covers(Runs.of(claims[topic]))
    )
    return [*islice(found, 3)]


def _replacement_claims(data: JoinData, given: JoinData | None) -> JoinData:
    truth = JoinData() if given is None else given
    return replace(
        data,
        actives=truth.actives,
        standbys=truth.standbys,
        promised=truth.promised,
        awaited=truth.awaited,
        among=truth.among,
        generation=truth.generation,
        holds=data.holds and given is not None,
        on_disk={},
        former_actives={},
        former_generation=-1,
        overdue={},
        positions=None,
        group_ids={},
    )


def count_delayed_rounds(before: Mapping[str, int], by: Collection[str]) -> dict[str, int]:
    """Return member -> number of consecutive rounds delayed by the member, including this round."""
    return {m: before.get(m, 0) + 1 for m in by}


def refuse_overdue_claims(
    said: Sequence[MemberClaims], rounds: Mapping[str, int]
) -> tuple[MemberClaims, ...]:
    """Refuse the claims of members that have delayed ``MOST_HELD_UP`` consecutive rounds.

    ``rounds``: member -> consecutive rounds that the member has delayed.
    """
    return tuple(
        replace(
            one,
            data=replace(one.data, holds=False),
            refused=one.refused
            or (
                "has blocked partitions that are assigned to other members for "
                f"{rounds[one.member_id]} rounds, with old claims"
            ),
        )
        if one.data.holds and rounds.get(one.member_id, 0) >= MOST_HELD_UP
        else one
        for one in said
    )


def agreed(own: TableFacts, said: Sequence[MemberClaims], app_id: str) -> TableFacts:
    """Combine the leader's own tables with the tables of members that run newer or older code.

    A topic that the leader's app does not declare as a changelog is a changelog if all its
    subscribers report this. A stock member cannot report changelogs; for this member the topic's
    name must follow Faust's pattern.
    """
    subscribers: dict[str, list[JoinData]] = {}
    for one in said:
        for topic in one.topics:
            if topic not in own.changelogs:
                subscribers.setdefault(topic, []).append(one.data)
    changelogs, globals_ = set(own.changelogs), dict(own.globals_)
    for topic, members in subscribers.items():
        named = topic.startswith(f"{app_id}-") and topic.endswith("-changelog")
        if all(topic in m.changelogs if m.is_ours else named for m in members):
            changelogs.add(topic)
            flags = [m.globals_[topic] for m in members if topic in m.globals_]
            if flags and len(flags) == sum(m.is_ours for m in members):
                globals_[topic] = any(flags)
    return TableFacts(frozenset(changelogs), globals_)
