"""Reports on a round: the leader's log line, each worker's log line, warnings and counters.

``assignments``, ``fallbacks``          rounds led, and rounds in which the planner failed
``refused_members``                     members with refused claims, over all rounds
``missing_topics``, ``shrunk_topics``   topics without partitions; topics that lost claimed partitions
``disbelieved_positions``               copies with a position beyond the end of their changelog
``duplicate_urls``                      URLs that more than one member gave
``unknown_tables``                      changelogs of tables that the leader's code does not know
``directories_left_out``                rounds with a directory too large for the group's record
``memory_failures``, ``memories_ignored``  failed writes and reads of this member's memory file
``follow_ups``                          rounds that this member requested (follow_up.py)
``unreadable_partitions``               attempts at partitions with unreadable records (set_aside.py)
``unreadable_answers``, ``foreign_urls``, ``metadata_failures``, ``weights_failures``, ``sensor_failures``
                                        see the warnings of the same round
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from mode import get_logger

from faust_assigner.app.rebalance.leader_round import Round
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.app.rebalance.outcome import loads
from faust_assigner.app.rebalance.table_facts import TableFacts, facts_of
from faust_assigner.views.placed import RULES
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.join import JoinData

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)

#: The maximum number of names in one warning; further names are only counted.
MOST_NAMED = 20


def log_round(found: Round, counters: Counter[str], own: TableFacts) -> None:
    """Log the leader's decision and its problems, and count the problems.

    ``own`` contains the leader's own tables.
    """
    counters["assignments"] += 1
    logger.info("%s", round_line(found))
    _log_failure(found, counters)
    _log_refused_claims(found, counters)
    _log_topic_problems(found, counters)
    if line := eager_members_line(found):
        logger.info("%s", line)
    _log_shared_urls(found, counters)
    _log_unknown_tables(found, counters, own)
    _log_oversize(found, counters)


def round_line(found: Round) -> str:
    """Return the leader's log line: the cause, the task counts and the tasks that each rule placed."""
    told = found.outcome
    start = f"Generation {found.inputs.generation} ({told.trigger}): {told.members} members, "
    if found.plan is None:
        return start + "partitions assigned without regard to their former owners"
    rules = np.bincount(found.plan.flat_rule[loads(found.plan)], minlength=len(RULES)).tolist()
    counted = ", ".join(
        f"{count} {rule}" for rule, count in zip(RULES, rules, strict=True) if count
    )
    return (
        f"{start}{told.tasks} tasks, {told.moved} moved, {told.cold} cold, {told.off_target} off "
        "target"
        f"{f', {told.warming} warming up' if told.warming else ''}; {counted or 'nothing to place'}"
    )


def eager_members_line(found: Round) -> str | None:
    """Return a log line that names the members which do not support cooperative rebalances yet.

    Returns None if all members support them, or if no member does.
    """
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
        f"{_list_names(others)}; on the way back to stock, that of the cooperative ones ({len(able)}) "
        "with "
        "FAUST_ASSIGNER_COOPERATIVE=0"
    )


def log_answer_problems(
    answer: Answer, memory: Memory, error: Exception | None, own_url: str, counters: Counter[str]
) -> None:
    """Log and count two problems: an answer that could not be decoded, or an answer with a wrong URL."""
    if error is not None:
        counters["unreadable_answers"] += 1
        logger.error(
            "Could not decode the leader's answer; all %d assigned partitions count as active: %s",
            sum(1 for numbers in memory.actives.values() for _ in numbers),
            error,
        )
    if answer.url and answer.url != own_url:
        counters["foreign_urls"] += 1
        logger.warning(
            "This worker's URL is %s, but the leader routes requests to %s", own_url, answer.url
        )


def log_own_assignment(memory: Memory, claimed: JoinData | None, app: AppT) -> None:
    """Log a worker's new assignment. Never raises: a failure is logged, and the assignment is valid."""
    try:
        logger.info("%s", own_assignment_line(memory, claimed, facts_of(app)))
    except Exception:
        logger.exception("Could not report the assignment to its observers")


def own_assignment_line(memory: Memory, claimed: JoinData | None, own: TableFacts) -> str:
    """Return a worker's log line: its partitions, and how many active changelogs were warm or cold.

    A changelog partition is warm if ``claimed``, the metadata at the join, contains it. If
    ``claimed`` is None, all partitions count as cold.
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


def _log_failure(found: Round, counters: Counter[str]) -> None:
    if found.failure is not None:
        counters["fallbacks"] += 1
        logger.error(
            "The planner failed; partitions are assigned without regard to their former owners: %r",
            found.failure,
            exc_info=found.failure,
        )


def _log_refused_claims(found: Round, counters: Counter[str]) -> None:
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


def _log_topic_problems(found: Round, counters: Counter[str]) -> None:
    if found.missing:
        counters["missing_topics"] += len(found.missing)
        logger.warning(
            "Topics without partitions are left out: %s. Their records are not processed, and "
            "tables with "
            "such a changelog are not restored; create the topics",
            _list_names(found.missing),
        )
    if found.claimed.beyond:
        counters["shrunk_topics"] += len(found.claimed.beyond)
        logger.warning(
            "Claims on partitions that no longer exist are ignored; check whether a topic was "
            "deleted and created again: %s",
            _list_names(f"{t} ({n})" for t, n in sorted(found.claimed.beyond.items())),
        )
    if (
        disbelieved := found.plan.warmup_plan.disbelieved
        if found.plan and found.plan.warmup_plan
        else {}
    ):
        counters["disbelieved_positions"] += sum(disbelieved.values())
        logger.warning(
            "Copies beyond the end of their changelog count as empty; check whether a topic was "
            "deleted and created again: %s",
            _list_names(f"{t} ({n})" for t, n in sorted(disbelieved.items())),
        )


def _log_shared_urls(found: Round, counters: Counter[str]) -> None:
    for url, members in sorted(found.shared_urls.items())[:MOST_NAMED]:
        logger.warning(
            "%d members report the same URL %s; requests may reach the wrong member: %s",
            len(members),
            url,
            _list_names(members),
        )
    counters["duplicate_urls"] += len(found.shared_urls)


def _log_unknown_tables(found: Round, counters: Counter[str], own: TableFacts) -> None:
    if unknown := sorted(found.tables.changelogs - own.changelogs):
        counters["unknown_tables"] += len(unknown)
        logger.warning(
            "The leader's app does not declare the tables of these changelogs, for example during "
            "a rolling deploy: %s",
            _list_names(unknown),
        )


def _log_oversize(found: Round, counters: Counter[str]) -> None:
    if found.oversize:
        counters["directories_left_out"] += 1
        logger.warning(
            "The group's record would have %d bytes or more, so the directory of owners is left "
            "out; requests cannot be routed by key until the record fits "
            "(FAUST_ASSIGNER_GROUP_RECORD_BYTES)",
            found.oversize,
        )


def _list_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(listed[:MOST_NAMED]) + more
