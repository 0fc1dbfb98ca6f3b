"""A fetch session (KIP-227): the partitions that a consumer fetches, and the offsets in its last answers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

LAST_EPOCH: Final = 2**31 - 1
Place = tuple[Any, int]  # topic name or id, partition


class FetchSession:
    """The fetched partitions of one consumer, and the offsets in its last answers."""

    def __init__(self, *, uses_ids: bool) -> None:
        self.session_id = random.randrange(1, 2**31)
        self.epoch = 1
        self.uses_ids = uses_ids
        self.parts: dict[Place, object] = {}
        self._told: dict[Place, tuple[int, int]] = {}

    def update(self, parts: Iterable[tuple[Place, object]], forgotten: Iterable[Place]) -> None:
        """Apply the changes of one request."""
        self.parts.update(parts)
        for place in forgotten:
            self.parts.pop(place, None)
            self._told.pop(place, None)

    def advance(self) -> None:
        """Expect the next epoch in the next request."""
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def note(self, place: Place, values: Mapping[str, Any]) -> bool:
        """Record a partition's answer; return whether the answer must be sent.

        A partition with records moves to the end, so that the next answer starts with other partitions.
        """
        offsets = (values["high_watermark"], values["log_start_offset"])
        has_records = len(values["records"]) > 0
        is_news = has_records or bool(values["error_code"]) or self._told.get(place) != offsets
        self._told[place] = offsets if not values["error_code"] else (-1, -1)
        if has_records and place in self.parts:
            self.parts[place] = self.parts.pop(place)
        return is_news
