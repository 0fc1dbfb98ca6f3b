"""The drift of weights since the published version, and its limit for the next version.

The drift of a group is the share of its weight that lies on other partitions than before: half the sum of the
absolute differences of each partition's share. 0 means equal shares, 1 means disjoint partitions. Partitions
that only one of the versions has are ignored, so that adding partitions to a topic causes no drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from faust_assigner.errors import ConfigError, FaustAssignerError
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers.files import file_system
from faust_assigner.pipeline.weights.publish import published_records
from faust_assigner.weights.document import WeightRow, WeightsRefused, decode

#: The default limit of ``--max-drift``.
MAX_DRIFT = 0.5


class DriftedTooFar(FaustAssignerError, ValueError):
    """The new weights differ too much, so the published weights stay; the message names the group."""

    exit_code: ClassVar[int] = 3


def parse_share(text: str) -> float:
    """Parse ``50%`` or ``0.5``; raise ConfigError for any other text and for more than 100%.

    >>> parse_share("50%"), parse_share("0.5")
    (0.5, 0.5)
    """
    found = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)(%?)", text.strip())
    share = float(found[1]) / (100 if found[2] else 1) if found else 2.0
    if share > 1:
        raise ConfigError(f"--max-drift {text!r}: expected a share like 50%, at most 100%")
    return share


def published(
    out: str | None, cluster: Cluster | None, topic: str | None
) -> list[Mapping[str, Any]]:
    """Return the rows of the published weights: of the file, else of the topic.

    Unreadable documents are skipped: assignors refuse them too, and use no weights then.
    """
    documents: Iterable[bytes] = ()
    if out is not None:
        documents = _file(out)
    if not documents and cluster is not None and topic is not None:
        documents = published_records(cluster, topic)
    rows: list[Mapping[str, Any]] = []
    for document in documents:
        try:
            rows += decode(document).rows
        except WeightsRefused:
            continue
    return rows


def _file(out: str) -> list[bytes]:
    fs, inside = file_system(out)
    return [fs.cat_file(inside)] if fs.exists(inside) else []


def drift(before: Iterable[Mapping[str, Any]], rows: Sequence[WeightRow]) -> dict[str, float]:
    """Return group -> drift from the published rows to ``rows``, for groups with shared partitions."""
    known = {
        (row["group_id"], row["topic"], row["partition"]): float(row["weight"]) for row in before
    }
    found = {}
    for group in sorted({row.group_id for row in rows}):
        pairs = [
            (known[key], row.weight)
            for row in rows
            if row.group_id == group and (key := (group, row.topic, row.partition)) in known
        ]
        if pairs:
            old, new = (sum(side) for side in zip(*pairs, strict=True))
            found[group] = sum(abs(b / new - a / old) for a, b in pairs) / 2
    return found


def check(found: Mapping[str, float], limit: float) -> None:
    """Raise DriftedTooFar if a group's drift is above ``limit``."""
    worst = max(found, key=lambda group: (found[group], group), default=None)
    if worst is not None and found[worst] > limit:
        raise DriftedTooFar(
            f"not published: {found[worst]:.0%} of the weight of group {worst!r} would lie on other "
            f"partitions than in the published version, the limit is {limit:.0%}; the published "
            "weights stay. Check the samples with `faust-assigner history`; --max-drift 100% publishes "
            "any weights"
        )
