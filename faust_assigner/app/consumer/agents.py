"""The agents of an app: their runs after errors, their isolated partitions, and the requests to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from faust.agents.agent import Agent
from faust.agents.replies import ReplyPromise
from faust.types.topics import TopicT
from mode.supervisors import SupervisorStrategy
from mode.utils.aiter import aiter

from faust_assigner.app.host.mixing import over

if TYPE_CHECKING:
    from faust.types.agents import ActorRefT, ReplyToArg
    from faust.types.channels import ChannelT
    from faust.types.streams import StreamT
    from faust.types.tuples import TP
    from mode.types import ServiceT


class PatientSupervisor(SupervisorStrategy):  # type: ignore[misc]
    """Starts the next runs of an agent, also if several runs fail at once.

    mode means to end the worker after 100 restarts within a second, but its limit allows one restart in each
    10 ms. So with stock Faust the worker ends if two runs (``concurrency``, ``isolated_partitions``) fail
    together, as they do when a database is down. This supervisor has no limit: a run that fails again begins
    again at the supervisor's next look, up to five seconds later.

    A discarded run is not restarted, and the next added run takes its place. In mode the places of all
    later runs would be wrong.
    """

    def __init__(self, *services: ServiceT, **options: object) -> None:
        #: mode's list of services, with None in the place of a discarded service.
        self._places: list[ServiceT | None] = list(services)
        no_limit = {"max_restarts": 1e9, "raises": None}
        super().__init__(*services, **{**options, **no_limit})

    def add(self, *services: ServiceT) -> None:
        """Supervise ``services``."""
        for service in services:
            if None in self._places:
                self.insert(self._places.index(None), service)
            else:
                self._places.append(service)
                super().add(service)

    def insert(self, index: int, service: ServiceT) -> None:
        """Supervise ``service`` in the place of an ended service."""
        self._places[index] = service
        super().insert(index, service)

    def discard(self, *services: ServiceT) -> None:
        """Do not restart ``services`` any more, which the caller stops."""
        for service in services:
            if service.supervisor is self:  # not so if an error of the service ends the worker
                self._places[self._places.index(service)] = None

    async def restart_service(self, service: ServiceT) -> None:
        """Start the next run, unless ``service`` is discarded."""
        if service in self._places:
            await super().restart_service(service)


class LastingAgent(Agent):  # type: ignore[misc]
    """An agent that reads on after an error, and may be asked for more than 1,000 values at once.

    Stock Faust ends the worker if 1,000 replies wait for the end of ``join()`` or the reader of ``map()``.
    It keeps each failed run, with the objects that the run used, until the worker ends.

    With ``isolated_partitions`` stock Faust unregisters the channel of a failed run. After the next rebalance
    a record of that partition ends the worker with KeyError. A worker whose agent has no partition left, or
    whose only partition fails, drops the topic from its subscription. If a run fails before the first
    assignment, the assignment ends the worker. If a run is cancelled because its partition is revoked, stock
    Faust starts it again.
    """

    #: The latest run for each stream; with ``isolated_partitions`` without the runs of revoked partitions.
    _runs: Sequence[ActorRefT] = ()
    #: With ``isolated_partitions``: the channel that keeps the topic in the worker's subscription.
    _subscriber: ChannelT[object] | None = None
    supervisor_strategy: type[SupervisorStrategy] | None

    async def on_start(self) -> None:
        """Start the supervisor, and with it the first runs."""
        chosen = self.supervisor_strategy or self.app.conf.agent_supervisor
        self.supervisor_strategy = over(PatientSupervisor, chosen)
        is_new = self.isolated_partitions and self._subscriber is None
        if is_new and isinstance(self.channel, TopicT):
            self._subscriber = self.channel.clone(active_partitions=set())
            self.app.topics.add(self._subscriber)
        await super().on_start()

    def actor_from_stream(
        self,
        stream: StreamT[object] | None,
        *,
        index: int | None = None,
        active_partitions: set[TP] | None = None,
        channel: ChannelT[object] | None = None,
    ) -> ActorRefT:
        """Create a run of the agent; after an error ``stream`` is the stream of the failed run.

        Faust passes the stream's ``channel``, too, only after an error.
        """
        failed = stream if channel is not None else None
        if failed is not None:
            failed.begin_again()
        run: ActorRefT = super().actor_from_stream(
            stream, index=index, active_partitions=active_partitions, channel=channel
        )
        if stream is None:
            run.stream.keep_processors()
            if active_partitions is not None:
                # Keep the channel registered when an iterator of the stream ends.
                channel_of_run: Any = run.stream.channel
                channel_of_run.on_stop_iteration = _keep_registered
        if failed is not None:
            self._forget(earlier for earlier in self._runs if earlier.stream is failed)
        self._runs = (*self._runs, run)
        return run

    def _forget(self, runs: Iterable[ActorRefT]) -> None:
        """Forget ``runs``, which end: Faust's tree of services would keep them."""
        ended = list(runs)
        self._runs = tuple(run for run in self._runs if run not in ended)
        for run in ended:
            run.beacon.detach(self.beacon)

    async def on_stop(self) -> None:
        """Start the later runs that Faust's supervisor has not started yet; then stop all runs.

        The supervisor starts a later run up to five seconds after the error, and stops started runs only. The
        task of such a run, which reads meanwhile, would not end if it waits behind a ``group_by``.
        """
        for run in self._runs:
            await run.maybe_start()
        self._forget(self._runs)
        await super().on_stop()

    async def on_isolated_partitions_assigned(self, assigned: Collection[TP]) -> None:
        """Start a run for each partition; the run of an agent without partitions gets the first."""
        for tp in sorted(assigned):
            if not self._runs_of(tp):
                idle = next((run for run in self._runs if not run.active_partitions), None)
                if idle is None:
                    await self._start_for_partitions({tp})
                else:
                    assert idle.active_partitions is not None
                    idle.active_partitions.add(tp)  # the set of its stream and its channel, too
            for run in self._runs_of(tp):
                await run.on_isolated_partition_assigned(tp)

    async def on_isolated_partitions_revoked(self, revoked: Collection[TP]) -> None:
        """Stop the run of each partition."""
        for tp in sorted(revoked):
            for run in self._runs_of(tp):
                self.app.topics.discard(run.stream.channel)
                self.supervisor.discard(run)
                self._forget([run])
                run.stream.beacon.detach(self.beacon)
                await run.maybe_start()  # otherwise stop() does not end its task
                await run.on_isolated_partition_revoked(tp)

    def _runs_of(self, tp: TP) -> list[ActorRefT]:
        return [run for run in self._runs if tp in (run.active_partitions or ())]

    async def kvmap(self, items: Any, reply_to: ReplyToArg | None = None) -> AsyncIterator[Any]:
        """Send the (key, value) pairs ``items``; yield each reply as it arrives."""
        arrived: asyncio.Queue[ReplyPromise] = asyncio.Queue()
        waiting = set[ReplyPromise]()
        async for key, value in aiter(items):
            sent = await self._request(key, value, reply_to)
            waiting.add(sent)
            sent.add_done_callback(arrived.put_nowait)
            while not arrived.empty():
                waiting.discard(reply := arrived.get_nowait())
                yield reply.result()
        while waiting:
            waiting.discard(reply := await arrived.get())
            yield reply.result()

    async def kvjoin(self, items: Any, reply_to: ReplyToArg | None = None) -> list[Any]:
        """Send the (key, value) pairs ``items``; return their replies in the same order."""
        sent = [await self._request(key, value, reply_to) async for key, value in aiter(items)]
        return list(await asyncio.gather(*sent))

    async def _request(self, key: Any, value: Any, reply_to: ReplyToArg | None) -> ReplyPromise:
        """Send a request as ``ask()`` does; return the promise of its reply."""
        promise = await self.ask_nowait(
            value, key=key, reply_to=reply_to or self.app.conf.reply_to, force=True
        )
        await self.app._reply_consumer.add(promise.correlation_id, promise)
        await self.app.maybe_start_client()
        return promise


def _keep_registered() -> None:
    """Do nothing at the end of an iteration; Faust would unregister the channel."""
