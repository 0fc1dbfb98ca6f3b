"""Protocols of Faust's classes, with the members that our subclasses call; for type checks only.

Each member has a row in ``private_apis.toml`` or is documented by Faust. ``TP`` and records are
Faust's own types, which have no annotations.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSet,
)
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
    from faust.types.app import AppT
    from faust.types.channels import ChannelT
    from faust.types.core import HeadersArg
    from faust.types.events import EventT
    from faust.types.tables import CollectionT
    from faust.types.topics import TopicT
    from faust.types.transports import ConsumerT, ProducerT, TransportT
    from faust.types.tuples import TP, Message
    from faust.web.base import Request, Response, Web
    from mode.services import WaitArgT, WaitResult
    from mode.utils.times import Seconds
    from yarl import URL


class ConsumerBase(Protocol):
    """``faust.transport.consumer.ThreadDelegateConsumer``, the consumer that has its own thread."""

    app: AppT
    transport: TransportT
    transactions: Any
    loop: asyncio.AbstractEventLoop
    diag: Any
    flow_active: bool
    can_resume_flow: asyncio.Event
    should_stop: bool
    in_transaction: bool
    _acked: MutableMapping[TP, list[int]]
    _acked_index: MutableMapping[TP, set[int]]
    _gap: MutableMapping[TP, Any]
    _read_offset: MutableMapping[TP, int | None]
    _committed_offset: MutableMapping[TP, int | None]
    _unacked_messages: MutableSet[Message]
    _active_partitions: set[TP]
    _paused_partitions: set[TP]
    _buffered_partitions: set[TP]
    _thread: AIOKafkaConsumerThread
    _on_partitions_revoked: Callable[[set[TP]], Awaitable[None]]

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def _new_consumer_thread(self) -> AIOKafkaConsumerThread: ...
    async def _getmany(
        self, active_partitions: set[TP] | None, timeout: float
    ) -> Mapping[TP, list[ConsumerRecord[bytes, bytes]]]: ...
    async def _wait_next_records(
        self, timeout: float
    ) -> tuple[Mapping[TP, list[ConsumerRecord[bytes, bytes]]] | None, set[TP] | None]: ...
    async def _commit_tps(self, tps: Iterable[TP], start_new_transaction: bool) -> bool: ...
    async def _commit_offsets(
        self, offsets: Mapping[TP, int], start_new_transaction: bool = True
    ) -> bool: ...
    async def _handle_attached(self, commit_offsets: Mapping[TP, int]) -> None: ...
    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]: ...
    async def on_partitions_revoked(self, revoked: set[TP]) -> None: ...
    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None: ...
    def stop_flow(self) -> None: ...
    def resume_flow(self) -> None: ...
    def resume_partitions(self, tps: Iterable[TP]) -> None: ...
    def pause_partitions(self, tps: Iterable[TP]) -> None: ...
    def assignment(self) -> set[TP]: ...
    def on_buffer_drop(self, tp: TP) -> None: ...
    def topic_partitions(self, topic: str) -> int | None: ...
    async def commit(self, topics: object = None, start_new_transaction: bool = True) -> bool: ...
    async def commit_and_end_transactions(self) -> None: ...
    def add_future(self, coro: Awaitable[object]) -> asyncio.Future[object]: ...
    async def maybe_wait_for_commit_to_finish(self) -> bool: ...
    async def force_commit(
        self, topics: object = None, start_new_transaction: bool = True
    ) -> bool: ...
    async def wait_empty(self) -> None: ...
    async def _wait_for_ack(self, timeout: float) -> None: ...
    def ack(self, message: Message) -> bool: ...
    async def on_restart(self) -> None: ...
    async def perform_seek(self) -> None: ...
    async def wait(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> WaitResult: ...
    async def crash(self, reason: BaseException) -> None: ...
    async def _commit(self, offsets: Mapping[TP, int]) -> bool: ...


class TransactionsBase(Protocol):
    """``faust.transport.consumer.TransactionManager``."""

    app: AppT
    consumer: ConsumerT
    producer: ProducerT

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: HeadersArg | None,
        *,
        transactional_id: str | None = None,
    ) -> Awaitable[object]: ...
    async def commit(
        self, offsets: Mapping[TP, int], start_new_transaction: bool = True
    ) -> bool: ...
    async def crash(self, reason: BaseException) -> None: ...


class StreamBase(Protocol):
    """``faust.streams.Stream``; its processors get each value before the agent does."""

    app: AppT
    channel: ChannelT[object]
    current_event: EventT[object] | None
    enable_acks: bool
    should_stop: bool
    _processors: list[object]
    _active_agens: MutableSet[AsyncGenerator[object, None]]

    def __aiter__(self) -> AsyncIterator[object]: ...
    def add_future(self, coro: Coroutine[object, object, None]) -> asyncio.Future[None]: ...
    async def maybe_start(self) -> bool: ...
    def take(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]: ...
    def take_events(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]: ...
    def take_with_timestamp(
        self, max_: int, within: Seconds, timestamp_field_name: str
    ) -> AsyncGenerator[list[object], None]: ...
    def noack_take(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]: ...
    def add_processor(self, processor: object) -> None: ...
    def group_by(
        self,
        key: Any,
        *,
        name: str | None = None,
        topic: TopicT | None = None,
        partitions: int | None = None,
    ) -> Any: ...
    def through(self, channel: Any) -> Any: ...
    async def stop(self) -> None: ...
    def _enable_passive(self, channel: Any, *, declare: bool = False) -> None: ...
    async def wait(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> WaitResult: ...
    async def ack(self, event: object) -> bool: ...
    async def wait_for_stopped(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> bool: ...


class RouterBase(Protocol):
    """``faust.app.router.Router``."""

    app: AppT

    def __init__(self, app: AppT) -> None: ...
    async def _route_req(self, dest_url: URL, web: Web, request: Request) -> Response: ...
    async def route_topic_req(
        self, topic: object, key: object, web: Web, request: Request
    ) -> Response: ...
    @classmethod
    def _get_serialized_key(cls, table: CollectionT, key: object) -> bytes: ...
