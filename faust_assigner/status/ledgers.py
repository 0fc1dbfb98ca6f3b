"""Reads the ledgers of a group from the workers that answered, and from their ledger topics."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.errors import KafkaError

from faust_assigner.errors import FaustAssignerError
from faust_assigner.pipeline.ledgers.topic_source import read_story_lines
from faust_assigner.settings.schema import TOPIC
from faust_assigner.settings.table import LEDGER
from faust_assigner.status.evidence import Evidence
from faust_assigner.status.worker_requests import ask_ledgers
from faust_assigner.wire.documents import printable

#: The most pages that are read from each worker's ledger; a page has about one MiB.
LEDGER_PAGES = 64
#: The records of a ledger topic that count as a page, and the time limit for a topic in seconds.
RECORDS_A_PAGE, TOPIC_S = 65_536, 60.0


async def read_ledgers(
    evidence: Evidence, connection: Mapping[str, object], *, deadline_s: float, most_pages: int
) -> tuple[list[bytes], tuple[str, ...]]:
    """Return the distinct lines of all workers' ledgers, and sentences about missing ledgers.

    The ledger topics also have the rows of departed workers and of earlier processes.
    ``deadline_s`` applies to each worker.
    """
    answered = [url for url, one in evidence.heard.items() if one.status is not None]
    told = await ask_ledgers(answered, deadline_s=deadline_s, most_pages=most_pages)
    silent = [
        f"{one.detail}: its ledger is missing"
        for one in evidence.heard.values()
        if one.status is None
    ]
    lines = [line for url in sorted(told) for line in told[url][0]]
    missing = [*silent, *(why for _, (_, why) in sorted(told.items()) if why)]
    for topic in ledger_topics(evidence):
        found, why = await _read_topic(
            topic, evidence.group.group_id, connection, most_pages * RECORDS_A_PAGE
        )
        lines += found
        missing += [why] if why else []
    return list(dict.fromkeys(lines)), tuple(missing)


def ledger_topics(evidence: Evidence) -> tuple[str, ...]:
    """Return the ledger topics of the workers that answered."""
    places = {
        one.status.settings.get(LEDGER.name, "")
        for one in evidence.heard.values()
        if one.status is not None
    }
    return tuple(sorted(p.removeprefix(TOPIC) for p in places if p.startswith(TOPIC)))


async def _read_topic(
    topic: str, group_id: str, connection: Mapping[str, object], most_records: int
) -> tuple[list[bytes], str]:
    """Return the group's lines in a topic, and the reason if the topic is unreadable."""
    try:
        return await read_story_lines(
            connection, topic, group_id, most_records=most_records, seconds=TOPIC_S
        )
    except (FaustAssignerError, KafkaError, OSError, TimeoutError) as error:
        return [], f"the ledger topic {printable(topic)} is unreadable: {error}"
