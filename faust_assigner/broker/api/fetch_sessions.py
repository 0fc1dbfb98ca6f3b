"""Fetch sessions (KIP-227): a reader names its partitions once, and later only those that change.

A session belongs to its connection and ends with it. The answer within a session leaves out the partitions
that have no records, no error and no new offsets to tell.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Call, Values

NO_SESSION: Final = 0
FIRST_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH: Final = 2**31 - 1
MAX_PARTITIONS: Final = 10_000  # a reader of more asks in full each time
TOPIC_IDS_SINCE: Final = 13

Place = tuple[Any, int]  # topic name or id, partition


class FetchSession:
    """What one reader wants, and the offsets that it was told last."""

    def __init__(self, *, uses_ids: bool) -> None:
        self.session_id = random.randrange(1, 2**31)
        self.epoch = 1
        self.uses_ids = uses_ids
        self.parts: dict[Place, Any] = {}
        self._told: dict[Place, tuple[int, int]] = {}

    def update(self, parts: Iterable[tuple[Place, Any]], forgotten: Iterable[Place]) -> None:
        """Take over what changed."""
        self.parts.update(parts)
        for place in forgotten:
            self.parts.pop(place, None)
            self._told.pop(place, None)

    def advance(self) -> None:
        """The next request carries the next epoch."""
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def note(self, place: Place, values: Values) -> bool:
        """Remember an answer; whether it has news. A partition with records goes to the end of the row."""
        offsets = (values["high_watermark"], values["log_start_offset"])
        has_records = len(values["records"]) > 0
        is_news = has_records or bool(values["error_code"]) or self._told.get(place) != offsets
        self._told[place] = offsets if not values["error_code"] else (-1, -1)
        if has_records and place in self.parts:
            self.parts[place] = self.parts.pop(place)
        return is_news


def asked_in(request: Any, version: int) -> Iterator[tuple[Place, Any]]:
    """The partitions that a request names itself."""
    for topic in request.topics:
        key = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic
        for part in topic.partitions:
            yield (key, part.partition), part


def _forgotten_in(request: Any, version: int) -> Iterator[Place]:
    for topic in getattr(request, "forgotten_topics_data", ()):
        key = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic
        yield from ((key, number) for number in topic.partitions)


def session_of(call: Call, request: Any) -> tuple[FetchSession | None, ErrorCode]:
    """The session of a request: one that goes on, a new one, or None; or the error that ends it."""
    session_id = getattr(request, "session_id", NO_SESSION)
    epoch = getattr(request, "session_epoch", FINAL_EPOCH)
    session, uses_ids = call.peer.fetch_session, call.version >= TOPIC_IDS_SINCE
    if epoch in (FIRST_EPOCH, FINAL_EPOCH):
        call.peer.fetch_session = None
        return (_begun(call, request) if epoch == FIRST_EPOCH else None), ErrorCode.none
    if session is None or session.session_id != session_id:
        return None, ErrorCode.fetch_session_id_not_found
    if session.epoch != epoch:
        return None, ErrorCode.invalid_fetch_session_epoch
    if session.uses_ids != uses_ids:
        return None, ErrorCode.fetch_session_topic_id_error
    session.update(asked_in(request, call.version), _forgotten_in(request, call.version))
    if not session.parts:
        call.peer.fetch_session = None
        return None, ErrorCode.none
    session.advance()
    return session, ErrorCode.none


def _begun(call: Call, request: Any) -> FetchSession | None:
    sessions, slots = call.node.fetch_sessions, call.node.settings
    made = FetchSession(uses_ids=call.version >= TOPIC_IDS_SINCE)
    made.update(asked_in(request, call.version), ())
    is_room = len(sessions) < slots.max_incremental_fetch_session_cache_slots
    if not is_room or not 0 < len(made.parts) <= MAX_PARTITIONS:
        return None
    sessions.add(made)
    call.peer.fetch_session = made
    return made
