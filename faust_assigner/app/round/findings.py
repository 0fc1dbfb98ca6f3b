"""What the leader says of a round: warnings a person can act on, once per round, and counters.

``assignments``, ``fallbacks``          rounds led, and those the planner failed in
``refused_members``                     members that counted as stateless, over all rounds
``missing_topics``, ``shrunk_topics``   subscribed but not there; claimed with partitions it has no more
``duplicate_urls``                      URLs that more than one member gave
``unknown_tables``                      changelogs of tables that the leader's code does not know
``directories_left_out``                rounds whose directory would have burst Kafka's record
``unreadable_answers``, ``foreign_urls``, ``metadata_failures``, ``weights_failures``, ``sensor_failures``
                                        see the warnings of the same round
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mode import get_logger

from faust_assigner.app.round.leader import Round
from faust_assigner.app.round.tables import TableFacts

logger = get_logger(__name__)

#: Names listed in one warning; the rest is counted.
MOST_NAMED = 20


def say(found: Round, counters: Counter[str], own: TableFacts) -> None:
    """Log what is wrong with ``found`` and count it; ``own`` are the tables of the leader itself."""
    counters["assignments"] += 1
    if found.failure is not None:
        counters["fallbacks"] += 1
        logger.error("The planner failed, partitions are dealt out without memory: %r", found.failure,
                     exc_info=found.failure)
    _say_refused(found, counters)
    if found.missing:
        counters["missing_topics"] += len(found.missing)
        logger.warning("Topics without partitions are left out: %s", _named(found.missing))
    if found.claimed.beyond:
        counters["shrunk_topics"] += len(found.claimed.beyond)
        logger.warning("Claims on partitions that no longer exist are ignored, was a topic created anew? %s",
                       _named(f"{t} ({n})" for t, n in sorted(found.claimed.beyond.items())))
    for url, members in sorted(found.shared_urls.items())[:MOST_NAMED]:
        logger.warning("%d members say they are reached at %s, requests may go to the wrong one: %s",
                       len(members), url, _named(members))
    counters["duplicate_urls"] += len(found.shared_urls)
    if unknown := sorted(found.tables.changelogs - own.changelogs):
        counters["unknown_tables"] += len(unknown)
        logger.warning("Changelogs of tables the leader's code does not know, as in a rolling deploy: %s",
                       _named(unknown))
    if found.oversize:
        counters["directories_left_out"] += 1
        logger.warning("The group's record would be %d bytes or more; requests cannot be routed by key until "
                       "it fits (FAUST_ASSIGNER_GROUP_RECORD_BYTES)", found.oversize)


def _say_refused(found: Round, counters: Counter[str]) -> None:
    refused = sorted(found.refused.items())
    counters["refused_members"] += len(refused)
    for member_id, reason in refused[:MOST_NAMED]:
        logger.warning("Generation %d: member %s counts as stateless: %s",
                       found.inputs.generation, member_id, reason)
    if len(refused) > MOST_NAMED:
        logger.warning("Generation %d: %d more members count as stateless",
                       found.inputs.generation, len(refused) - MOST_NAMED)


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(listed[:MOST_NAMED]) + more
