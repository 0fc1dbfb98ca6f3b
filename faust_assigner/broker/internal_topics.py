"""Kafka's internal topics, which clients see in metadata. In this broker, they are always empty.

Kafka keeps committed offsets and the states of transactions in two compacted topics. This broker keeps both
in its store. Clients still look for the topics: user interfaces hide them, and a consumer with a regular
expression excludes topics with the internal flag. Like Kafka, the broker creates a topic when the first
client looks up a coordinator. Reads find no record; Produce and DeleteRecords get INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

import logging
from typing import Final

from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topics import Catalogue, Refused

logger = logging.getLogger(__name__)
OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_CONFIGS: Final = {
    OFFSETS: {**_COMPACTED, "compression.type": "producer"},
    TRANSACTIONS: {**_COMPACTED, "compression.type": "uncompressed", "min.insync.replicas": "1"},
}


def is_internal(name: str) -> bool:
    """Whether clients get the internal flag for a topic; as in Kafka, only the name decides."""
    return name in _CONFIGS


def ensure(catalogue: Catalogue, settings: Settings, name: str) -> None:
    """Create an internal topic if it is missing. A refusal is logged: groups do not depend on the topic."""
    if catalogue.get(name) is not None:
        return
    try:
        catalogue.create(name, partitions(settings, name), _CONFIGS[name])
    except (Refused, StoreFailed) as error:
        logger.warning("the internal topic %s was not created: %s", name, error)


def partitions(settings: Settings, name: str) -> int:
    """Return the number of partitions of an internal topic."""
    if name == OFFSETS:
        return settings.offsets_topic_num_partitions
    return settings.transaction_state_log_num_partitions
