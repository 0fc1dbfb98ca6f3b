"""The records in progress: those that an agent processes or has begun, among all unfinished records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from faust.types.tuples import Message

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.events import EventT

#: The app's attribute with its streams.
_STREAMS = "faust_assigner_streams"


class ReadStream(Protocol):
    """A stream that has been read."""

    channel: Any

    def in_hand(self) -> Iterator[EventT[object]]:
        """Iterate over the records that the stream has begun and that the agent has not ended."""

    def acks_by_hand(self) -> bool:
        """Return whether the stream does not know when the agent ends a record."""


def streams_of(app: AppT) -> WeakSet[ReadStream]:
    """Return the streams of ``app`` that have been read."""
    streams: WeakSet[ReadStream] = app.__dict__.setdefault(_STREAMS, WeakSet())
    return streams


def in_progress(app: AppT, unfinished: Iterable[Message]) -> list[Message]:
    """Return the messages of ``unfinished`` that an agent processes or has begun.

    Several agents may read a topic. A rebalance drops the queued copy of a slow agent after the other
    agents have ended theirs: no code ends this message, so no code may wait for it. The message of a window
    that is being closed is no record of the consumer: the closing ends it.
    """
    held, known, by_hand = set[int](), set[str](), set[str]()
    for stream in list(streams_of(app)):
        held.update(id(event.message) for event in stream.in_hand())
        topics = getattr(stream.channel, "topics", ())
        known.update(topics)
        by_hand.update(topics if stream.acks_by_hand() else ())
    return [
        message
        for message in unfinished
        if id(message) in held
        or type(message) is Message
        or message.tp.topic in by_hand
        or message.tp.topic not in known
    ]
