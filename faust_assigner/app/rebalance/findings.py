"""What is said of a round: one line by the leader, one by each worker, warnings to act on, and counters.

``assignments``, ``fallbacks``          rounds led, and those the planner failed in
``refused_members``                     members whose claims were refused, over all rounds
``missing_topics``, ``shrunk_topics``   subscribed but not there; claimed with partitions it has no more
``disbelieved_positions``               copies said to be further than their changelog's owner
``duplicate_urls``                      URLs that more than one member gave
``unknown_tables``                      changelogs of tables that the leader's code does not know
``directories_left_out``                rounds whose directory would have burst Kafka's record
``memory_failures``, ``memories_ignored``  what this member owns was not written, what it owned not read
``follow_ups``                          rounds this member asked for (follow_up.py)
``unreadable_partitions``               tries of partitions whose records cannot be read (set_aside.py)
``unreadable_answers``, ``foreign_urls``, ``metadata_failures``, ``weights_failures``, ``sensor_failures``
                                        see the warnings of the same round
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from mode import get_logger

from faust_assigner.app.rebalance.leader import Round
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.views.placed import RULES
from faust_assigner.wire.join import JoinData

logger = get_logger(__name__)

#: Names listed in one warning; the rest is counted.
MOST_NAMED = 20


def say(found: Round, counters: Counter[str], own: TableFacts) -> None:
    """Log what was decided and what is wrong with it, and count that.

    ``own`` are the tables of the leader itself.
    """
    counters["assignments"] += 1
    logger.info("%s", outcome(found))
    if found.failure is not None:
        counters["fallbacks"] += 1
        logger.error(
            "The planner failed, partitions are dealt out without memory: %r",
            found.failure,
            exc_info=found.failure,
        )
    _say_refused(found, counters)
    if found.missing:
        counters["missing_topics"] += len(found.missing)
        logger.warning(
            "Topics without partitions are left out: %s. Their records are not processed, and tables with "
            "such a changelog are not restored; create the topics",
            _named(found.missing),
        )
    if found.claimed.beyond:
        counters["shrunk_topics"] += len(found.claimed.beyond)
        logger.warning(
            "Claims on partitions that no longer exist are ignored, was a topic created anew? %s",
            _named(f"{t} ({n})" for t, n in sorted(found.claimed.beyond.items())),
        )
    if disbelieved := found.plan.onward.disbelieved if found.plan and found.plan.onward else {}:
        counters["disbelieved_positions"] += sum(disbelieved.values())
        logger.warning(
            "Copies beyond the end of their changelog count as empty, was a topic made anew? %s",
            _named(f"{t} ({n})" for t, n in sorted(disbelieved.items())),
        )
    if line := why_eager(found):
        logger.info("%s", line)
    for url, members in sorted(found.shared_urls.items())[:MOST_NAMED]:
        logger.warning(
            "%d members say they are reached at %s, requests may go to the wrong one: %s",
            len(members),
            url,
            _named(members),
        )
    counters["duplicate_urls"] += len(found.shared_urls)
    if unknown := sorted(found.tables.changelogs - own.changelogs):
        counters["unknown_tables"] += len(unknown)
        logger.warning(
            "Changelogs of tables the leader's code does not know, as in a rolling deploy: %s",
            _named(unknown),
        )
    if found.oversize:
        counters["directories_left_out"] += 1
        logger.warning(
            "The group's record would be %d bytes or more; requests cannot be routed by key until "
            "it fits (FAUST_ASSIGNER_GROUP_RECORD_BYTES)",
            found.oversize,
        )


def outcome(found: Round) -> str:
    """The leader's line: why there was a round, what became of the tasks and which rules placed how many."""
    told = found.outcome
    start = f"Generation {found.inputs.generation} ({told.trigger}): {told.members} members, "
    if found.plan is None:
        return start + "partitions dealt out without memory"
    rules = np.bincount(found.plan.flat_rule, minlength=len(RULES)).tolist()
    counted = ", ".join(
        f"{count} {rule}" for rule, count in zip(RULES, rules, strict=True) if count
    )
    return (
        f"{start}{told.tasks} tasks, {told.moved} moved, {told.cold} cold, {told.off_target} off target"
        f"{f', {told.warming} warming up' if told.warming else ''}; {counted or 'nothing to place'}"
    )


def why_eager(found: Round) -> str | None:
    """Who has to be rolled before rebalances stop nobody; None where all offer that, or nobody does."""
    able = {one.member_id for one in found.member_claims if one.data.cooperative}
    others = [
        f"{one.member_id} ({'eager, its log says why' if one.data.is_ours else 'stock Faust'})"
        for one in found.member_claims
        if one.member_id not in able
    ]
    if not able or not others:
        return None
    return (
        f"Rebalances stop everybody until each worker is cooperative; the next roll is that of "
        f"{_named(others)}; on the way back to stock, that of the cooperative ones ({len(able)}) with "
        "FAUST_ASSIGNER_COOPERATIVE=0"
    )


def taken(memory: Memory, claimed: JoinData | None, own: TableFacts) -> str:
    """A worker's line: its partitions, and for how many changelogs of its own it held state as it joined.

    ``claimed`` is what it said when it joined; None where that is unknown, and all counts as cold.
    """
    warm = cold = 0
    for topic in memory.actives.keys() & own.stateful:
        held = (
            [
                claims[topic]
                for claims in (claimed.actives, claimed.standbys, claimed.on_disk)
                if topic in claims
            ]
            if claimed is not None
            else []
        )
        for partition in memory.actives[topic]:
            has_state = any(partition in numbers for numbers in held)
            warm, cold = warm + has_state, cold + (not has_state)
    actives, standbys = (
        sum(runs.size for runs in claims.values()) for claims in (memory.actives, memory.standbys)
    )
    return (
        f"Generation {memory.generation}: {actives} active and {standbys} standby partitions; "
        f"of the active changelogs {warm} warm, {cold} cold"
    )


def _say_refused(found: Round, counters: Counter[str]) -> None:
    refused = sorted(found.refused.items())
    counters["refused_members"] += len(refused)
    for member_id, reason in refused[:MOST_NAMED]:
        logger.warning(
            "Generation %d: the claims of member %s are refused: %s",
            found.inputs.generation,
            member_id,
            reason,
        )
    if len(refused) > MOST_NAMED:
        logger.warning(
            "Generation %d: the claims of %d more members are refused",
            found.inputs.generation,
            len(refused) - MOST_NAMED,
        )


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(listed[:MOST_NAMED]) + more
