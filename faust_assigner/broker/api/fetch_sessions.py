"""Fetch sessions (KIP-227): a consumer lists all its partitions once, and later only changed partitions.

A session belongs to its connection and ends with it. An answer within a session omits each partition
without records, an error or changed offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Call
from faust_assigner.broker.fetch_session import FetchSession, Place

NO_SESSION: Final = 0
FIRST_EPOCH, FINAL_EPOCH = 0, -1
MAX_PARTITIONS: Final = 10_000  # a larger request gets no session, and a larger session ends
TOPIC_IDS_SINCE: Final = 13


def asked_in(request: Any, version: int) -> Iterator[tuple[Place, object]]:
    """Yield the partitions that a request lists; its session may contain more partitions."""
    for topic in request.topics:
        key = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic
        for part in topic.partitions:
            yield (key, part.partition), part


def _forgotten_partitions(request: Any, version: int) -> Iterator[Place]:
    for topic in getattr(request, "forgotten_topics_data", ()):
        key = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic
        yield from ((key, number) for number in topic.partitions)


def session_of(call: Call, request: Any) -> tuple[FetchSession | None, ErrorCode]:
    """Return the session of a request (continued, new or None), or the error of an invalid session."""
    session_id = getattr(request, "session_id", NO_SESSION)
    epoch = getattr(request, "session_epoch", FINAL_EPOCH)
    if epoch in (FIRST_EPOCH, FINAL_EPOCH):
        call.peer.fetch_session = None  # this frees the slot of the former session
        return (_begin_session(call, request) if epoch == FIRST_EPOCH else None), ErrorCode.none
    session, uses_ids = call.peer.fetch_session, call.version >= TOPIC_IDS_SINCE
    if session is None or session.session_id != session_id:
        return None, ErrorCode.fetch_session_id_not_found
    if session.epoch != epoch:
        return None, ErrorCode.invalid_fetch_session_epoch
    if session.uses_ids != uses_ids:
        return None, ErrorCode.fetch_session_topic_id_error
    session.update(asked_in(request, call.version), _forgotten_partitions(request, call.version))
    if not session.parts:
        call.peer.fetch_session = None
        return None, ErrorCode.none
    if len(session.parts) > MAX_PARTITIONS:
        call.peer.fetch_session = None
        return None, ErrorCode.fetch_session_id_not_found  # the consumer sends a full list
    session.advance()
    return session, ErrorCode.none


def _begin_session(call: Call, request: Any) -> FetchSession | None:
    sessions, slots = call.node.fetch_sessions, call.node.settings
    made = FetchSession(uses_ids=call.version >= TOPIC_IDS_SINCE)
    made.update(asked_in(request, call.version), ())
    is_room = len(sessions) < slots.max_incremental_fetch_session_cache_slots
    if not is_room or not 0 < len(made.parts) <= MAX_PARTITIONS:
        return None
    sessions.add(made)
    call.peer.fetch_session = made
    return made
