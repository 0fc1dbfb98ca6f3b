"""The leader's answers: each member's encoded assignment, within the group record's size limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.placement import directory_of, with_globals
from faust_assigner.ledger import decision_id
from faust_assigner.wire.answer import AnswerWriter
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import VERSION

#: Faust's protocol version; an answer carries the lowest version among the members.
PROTOCOL_VERSION = 4

Answers = dict[str, ConsumerProtocolMemberAssignment]


def encode_answers(view: LeaderView, found: Round) -> tuple[Answers, int]:
    """Return each member's assignment, and the size of a group record that is too large (else 0).

    Each answer contains a directory of the owners of all partitions, with the holders of copies if
    the view asks for them. If the group record would be too large, the holders of copies are
    omitted, and if that is not enough, the whole directory. Only then the returned size is not 0: a
    record with the directory would have at least this number of bytes.
    """
    writer, ours = (
        _answer_writer(view, found),
        [one for one in found.member_claims if one.data.is_ours],
    )
    size = sum(writer.shared_bytes for _ in ours)
    if size <= view.record_bytes:
        answers = _encode_each(view, found, writer, with_directory=True)
        size = sum(record_bytes(one, answers[one.member_id]) for one in found.member_claims)
        if size <= view.record_bytes:
            return answers, 0
    if view.names_standbys:
        return encode_answers(replace(view, names_standbys=False), found)
    return _encode_each(view, found, writer, with_directory=False), size


def _answer_writer(view: LeaderView, found: Round) -> AnswerWriter:
    said, placement, generation = found.member_claims, found.placement, found.inputs.generation
    return AnswerWriter(
        _owner_directory(view, found),
        placement.group_ids,
        generation=generation,
        is_uniform=all(j.data.is_ours for j in said),
        version=min((j.data.version for j in said if j.data.is_ours), default=VERSION),
        decision_id=decision_id(view.app_id, generation, placement.member_ids),
        among=len(found.staying) if found.follows else 0,
        outcome=found.outcome,
    )


def _encode_each(
    view: LeaderView, found: Round, writer: AnswerWriter, *, with_directory: bool
) -> Answers:
    """Return the answer to each member: its part of the placement, with its global tables."""
    subscriptions = {one.member_id: one.topics for one in found.staying}
    given = with_globals(
        found.placement, subscriptions, found.inputs.partitions, found.tables.globals_
    )
    lowest = min([PROTOCOL_VERSION, *(one.protocol_version for one in found.member_claims)])
    answers = {}
    for one in found.member_claims:
        m = one.member_id
        actives, standbys = given.actives.get(m, {}), given.standbys.get(m, {})
        if one.data.is_ours:
            own = found.placement.actives.get(m, {})
            packed = writer.for_ours(
                actives,
                standbys,
                one.data.url,
                with_directory=with_directory,
                awaited=found.awaited.get(m),
                promised=found.promised.get(m),
                writes={t: own[t] for t in found.tables.globals_ if t in own},
                leads=m == view.member_id,
            )
        else:
            packed = writer.for_stock(actives, standbys, one.data.url)
        answers[m] = ConsumerProtocolMemberAssignment(
            max(0, lowest), protocol_list(actives, standbys), packed
        )
    return answers


def _owner_directory(view: LeaderView, found: Round) -> Directory:
    said = found.member_claims
    return directory_of(
        found.placement,
        {j.member_id: j.data.url for j in said},
        {j.member_id: j.data.instance_id for j in said if j.data.instance_id},
        found.tables.changelogs,
        found.tables.globals_,
        with_standbys=view.names_standbys,
    )


def record_bytes(one: MemberClaims, answer: ConsumerProtocolMemberAssignment) -> int:
    """Return the bytes that Kafka stores per member: metadata, assignment and about 150 more."""
    size = 150 + 2 * len(one.member_id) + one.size + len(answer.user_data)
    size += sum(2 + len(topic) for topic in one.topics)
    return size + sum(10 + len(topic) + 4 * len(numbers) for topic, numbers in answer.assignment)


def protocol_list(
    actives: Mapping[str, list[int]], standbys: Mapping[str, list[int]]
) -> list[tuple[str, list[int]]]:
    """Return (topic, partitions to fetch), actives before standbys.

    Stock members compare this list with their actives and standbys.
    """
    topics = sorted(actives.keys() | standbys.keys())
    return [(topic, [*actives.get(topic, ()), *standbys.get(topic, ())]) for topic in topics]
