"""The APIs of the Kafka protocol, one module for each family; ``APIS`` maps API keys to served APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from faust_assigner.broker.api import (
    acls,
    cluster,
    consumer_groups,
    fetch,
    group_admin,
    group_offsets,
    list_offsets,
    membership,
    metadata,
    offset_commit,
    one_node,
    produce,
    sasl,
    topic_admin,
    topic_pages,
    transaction_views,
    transactions,
    versions,
)
from faust_assigner.broker.api.call import CLOSE, NO_RESPONSE, Api, Call, Encoded

_FAMILIES = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    group_offsets,
    membership,
    consumer_groups,
    group_admin,
    topic_admin,
    topic_pages,
    cluster,
    transactions,
    transaction_views,
    one_node,
    acls,
    sasl,
    versions,
)
APIS: Final[Mapping[int, Api]] = {api.key: api for family in _FAMILIES for api in family.APIS}
versions.advertise(APIS.values())

__all__ = ["APIS", "CLOSE", "NO_RESPONSE", "Api", "Call", "Encoded"]
