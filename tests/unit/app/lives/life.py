"""The life of a group: its workers, the group's coordinator that the test plays, and the transcript."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.types import TP

from faust_assigner import __version__
from faust_assigner.app.ledger.writer import LedgerWriter
from faust_assigner.app.membership.cooperative_member import moves
from faust_assigner.app.rebalance.observers import DecisionInputs, Decisions
from faust_assigner.app.recovery import bring_up, from_snapshots
from faust_assigner.ledger.encoding import encode
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.manifest import (
    DEFAULT_DELETE_RETENTION_MS,
    Manifest,
    format_time_ms,
    snapshot_id,
)
from faust_assigner.snapshots.sst import digest_files, write_files
from faust_assigner.snapshots.storage import open_storage
from faust_assigner.wire.answer import Answer, decode_answer, read_directory
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import JoinData, decode_join
from faust_assigner.wire.runs import Runs
from tests.support.workers.simulated import simulate
from tests.unit.app.lives.told import WORKER, Told, told_logs, tps
from tests.unit.app.lives.worker import PARTITIONS, Cluster, Worker

#: Fields of the ledger that the machine or the release decides.
MACHINE = frozenset({"host", "pid", "config", "software", "cpu_ms", "state_bytes"})
Story = Callable[["Life"], Coroutine[Any, Any, None]]


class Life:
    """The workers by name; the first one leads. A life's steps are told, with the state after each."""

    def __init__(self, told: Told, folder: Path) -> None:
        self.told, self.folder, self.logs = told, folder, Cluster()
        self.workers: dict[str, Worker] = {}
        self.generation = 0
        self._states: dict[str, Mapping[str, str]] = {}
        self._took: dict[str, bool] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}

    # -- the steps

    def step(self, text: str) -> None:
        """Tell the beginning of a step."""
        self.told.say("step", text)

    async def start(self, name: str, make: type[Worker] = Worker, **settings: Any) -> Worker:
        """Start a worker; it joins with the next round."""
        self.step(f"{name} starts")
        worker = make(self.told, self.logs, name, self.folder, **settings)
        self.workers[name] = worker
        await self.on(name, worker.start())
        return worker

    async def stop(self, name: str) -> None:
        """Stop a worker, which is then no member."""
        self.step(f"{name} stops")
        await self.on(name, self.workers[name].stop())
        del self.workers[name]
        self._states.pop(name, None)

    async def hand_over(self, name: str) -> None:
        """Stop a worker as SIGTERM does; the group's answer lets it hand over, if it asks for a round."""
        self.step(f"{name} is stopped")
        worker = self.workers[name]
        worker.client._coordinator.stops = True
        stopping = asyncio.create_task(self.on(name, worker.stop()))
        while not (stopping.done() or worker.client._coordinator._rejoin_needed_fut.done()):
            await asyncio.sleep(0.1)
        if not stopping.done():
            members = sorted(self.workers)
            self.step(f"round of {' '.join(members)}")
            await self._round(members, eager=False)
        await stopping
        del self.workers[name]
        self._states.pop(name, None)

    async def on(self, name: str, steps: Coroutine[Any, Any, Any]) -> Any:
        """Run ``steps`` as code of this worker."""

        async def work() -> Any:
            WORKER.set(name)
            return await steps

        return await asyncio.create_task(work())

    async def kill(self, name: str) -> None:
        """End a worker without a step of its own: its last calls are neither told nor have an effect."""
        self.step(f"{name} is killed")
        worker = self.workers.pop(name)
        self._states.pop(name, None)
        self._took.pop(name, None)
        self.told.muted.add(name)
        files, kept = self.folder / name, self.folder / "killed"
        shutil.copytree(files, kept)
        worker.logs = worker.client.logs = copy.deepcopy(self.logs, {id(self.logs.producers): {}})
        await self.on(name, worker.stop())
        shutil.rmtree(files)
        kept.rename(files)
        self.told.muted.discard(name)

    async def commit(self, name: str) -> None:
        """Commit on a worker, as its timer does."""
        self.step(f"{name} commits")
        await self.on(name, self.workers[name].app.consumer.commit())
        self.tell_states()

    async def beats(self, seconds: float, *, without: str = "") -> None:
        """Let the members' heartbeats be answered for ``seconds``, except those of the worker ``without``."""
        for _ in range(round(seconds)):
            await asyncio.sleep(1.0)
            for name, worker in self.workers.items():
                if name != without:
                    worker.beat()

    async def silence(self, name: str) -> None:
        """Make the coordinator silent for a worker; it stands still."""
        self.step(f"the coordinator is silent for {name}")
        self._took.pop(name)
        await self.on(name, self.workers[name].listener.stand_still())

    def snapshot(self, tp: TP, folder: str) -> None:
        """Take a snapshot of a changelog as it is."""
        self.step(f"a snapshot of {tps([tp])} is taken")
        rows = {one.key: one.value for one in self.logs.records[tp] if one.key is not None}
        items = sorted((key, value) for key, value in rows.items() if value is not None)
        made = Path(tempfile.mkdtemp(prefix="sst-", dir=self.folder))
        files, catalog = write_files(items, made), Catalog(open_storage(folder))
        end = self.logs.ends[tp]
        names = catalog.upload(*tp, end, files)
        sha256, size = digest_files([file.path for file in files])
        now = format_time_ms(round(time.time() * 1000))
        catalog.commit(Manifest(*tp, snapshot_id(end), end, len(items), size, sha256, now, names))

    def orders(self, partition: int, *keys: str, at: int = 1) -> None:
        """Write an order with the value ``at`` for each key."""
        self.step(f"orders-{partition} gets {' '.join(keys)}" + f" ({at})" * (at != 1))
        for key in keys:
            self.logs.append(TP("orders", partition), f'"{key}"'.encode(), b"%d" % at)

    async def sleep(self, seconds: float) -> None:
        """Sleep a little longer than ``seconds``, so that no timer of a worker is due at the end."""
        await asyncio.sleep(seconds + 0.00137)

    async def rest(self, seconds: float = 1.0, flowing: Iterable[str] | None = None) -> None:
        """Let the group work for ``seconds``, and until all workers are at rest; tell the states."""
        await self.sleep(seconds)
        for _ in range(100):
            if all(self.workers[name].at_rest for name in flowing or self.workers):
                break
            await asyncio.sleep(0.1)
        self.tell_states()

    async def requested(self, seconds: float) -> None:
        """Wait for up to ``seconds`` for a worker that requests a round, and run the round."""
        for _ in range(round(seconds / 0.1)):
            await asyncio.sleep(0.1)
            if any(w.client._coordinator._rejoin_needed_fut.done() for w in self.workers.values()):
                await self.round()
                await self.rest()
                return
        self.step(f"no round is requested within {seconds:g} s")

    async def watch(self) -> None:
        """Tell each worker's status document, and whether it may answer for each table partition."""
        self.step("an operator looks")
        for name, worker in sorted(self.workers.items()):
            for line in await self.on(name, worker.watched()):
                WORKER.set(name)
                self.told.say("status", line)
        WORKER.set("-")

    def tell_states(self) -> None:
        """Tell the changes of each worker's state, and of the group's."""
        for name, worker in sorted(self.workers.items()):
            WORKER.set(name)
            state = worker.state()
            last = self._states.get(name, {})
            for key in sorted(state.keys() | last.keys()):
                if state.get(key, "none") != last.get(key, "none"):
                    self.told.say("state", f"{key.replace(' ', '_')}: {state.get(key, 'none')}")
            self._states[name] = state
        WORKER.set("-")
        group = " ".join(f"{tps([tp])}@{o}" for tp, o in sorted(self.logs.committed.items()))
        self.told.say("state", f"group's_offsets: {group or 'none'}")

    # -- rounds

    async def round(self, names: Iterable[str] | None = None, *, eager: bool = False) -> None:
        """Run a round of all workers; a second round follows where the leader requests one."""
        members = sorted(self.workers if names is None else names)
        self.step(f"round of {' '.join(members)}{' (eager)' * eager}")
        for _ in range(4):
            if not await self._round(members, eager=eager):
                return
            self.step("second round")

    async def _round(self, members: list[str], *, eager: bool) -> bool:
        self.generation += 1
        metadata = {}
        for name in members:
            metadata[name] = await self.on(name, self._join(name, eager=eager))
        answers = await self.on(members[0], self._lead(members[0], metadata))
        follows = False
        for name in members:
            follows |= await self.on(name, self._take(name, answers[name], eager=eager))
        return follows

    async def _join(self, name: str, *, eager: bool) -> Any:
        worker = self.workers[name]
        assignor, client = worker.app.assignor, worker.client
        assignor.cooperative = not eager
        assignor.stops_nobody = not eager
        holds = not eager and self._took.get(name, False) and worker.listener.is_flowing()
        if holds:
            worker.listener.round_started()
        else:
            await self.told_of(name)
            if client.positions:
                await worker.listener.prepare_full_revocation()
            await client.listener.on_partitions_revoked(set(client.positions))
            client.positions = {}
        assignor.holds = holds
        client._coordinator.generation = self.generation
        client._coordinator._rejoin_needed_fut = asyncio.get_running_loop().create_future()
        metadata = assignor.metadata(sorted(client.topics))
        data = decode_join(metadata.user_data, metadata.subscription)
        self.told.say("joins", f"{len(metadata.user_data)} bytes: {of(data)}")
        return metadata

    async def _lead(self, name: str, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        assignor = self.workers[name].app.assignor
        cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(PARTITIONS)))
        answers = assignor.assign(cluster, metadata)
        assignor.decisions.join()
        return {
            member: ConsumerProtocolMemberAssignment.decode(answer.encode())
            for member, answer in answers.items()
        }

    async def _take(self, name: str, assignment: Any, *, eager: bool) -> bool:
        """Do what the coordinator does with an answer."""
        worker = self.workers[name]
        assignor, client = worker.app.assignor, worker.client
        self.told.say("answer", of(decode_answer(assignment.user_data)))
        answered = frozenset(TP(*tp) for tp in assignment.partitions())
        follows = bool(assignor.is_followed(assignment))
        if eager or not assignor.holds:
            if not eager and follows:
                assignor.on_assignment(assignment)
                return True
            assignor.on_assignment(assignment)
            self._took[name] = not eager
            client.positions = {tp: self.logs.committed.get(tp, 0) for tp in answered}
            client.assigned.set()
            await client.listener.on_partitions_assigned(set(answered))
            return follows
        own = frozenset(client.positions)
        restarted = assignor.partitions_to_restart(assignment)
        found = moves(own, answered, restarted, follows=follows)
        if found.revoked:
            await self.told_of(name)
            await worker.listener.revoke(found.revoked)
        client.positions = {
            tp: client.positions[tp]
            if tp in own - found.gained
            else self.logs.committed.get(tp, self.logs.begins.get(tp, 0))
            for tp in sorted(found.assigned)
        }
        assignor.on_assignment(assignment)
        if assignor.leaves:
            worker.listener.note_hand_over(not any(assignor.assigned_actives()))
            return follows
        roles = assignor.assigned_actives() - found.withheld, assignor.assigned_standbys()
        before, generation = self._telling.get(name), self.generation

        async def tell() -> None:
            if before is not None:
                await before
            await worker.listener.assigned(
                found.assigned, found.revoked, found.gained, roles, generation
            )

        self._telling[name] = asyncio.create_task(tell())
        return follows

    async def told_of(self, name: str) -> None:
        """Wait until the app of this worker has handled the last answer."""
        if name in self._telling:
            await self._telling[name]


def tell_at_once(decisions: Decisions, inputs: DecisionInputs, plan: Any) -> None:
    """Call the observers at once, in place of their thread."""
    for observer in decisions._observers:
        observer(inputs, plan)


def of_row(line: bytes) -> str:
    """Return a ledger row as text, without the fields of the machine."""
    row = json.loads(line)
    return " ".join(
        f"{name}={value}" for name, value in row.items() if value and name not in MACHINE
    )


def of(data: JoinData | Answer) -> str:
    """Return all fields of ``data`` with a value, as text."""
    found = []
    for name, value in vars(data).items():
        shown = read_directory(value) if name == "directory" and value else value
        if shown not in ({}, (), frozenset(), None, "", b"", False):
            found.append(f"{name}={plain(shown)}")
    return " ".join(found)


def plain(value: Any) -> Any:
    """Return ``value`` as text, sets in order."""
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {plain(value[k])}" for k in sorted(value, key=str)) + "}"
    if isinstance(value, Runs):
        return ",".join(map(str, value.numbers()))
    if isinstance(value, Directory):
        owners = {t: ",".join(map(str, owner)) for t, owner in value.owners.items()}
        return f"{' '.join(value.urls)} {plain(owners)} {plain(value.standbys)}"
    if isinstance(value, float):
        return f"{value:g}"
    return value


def told(story: Story) -> str:
    """Return the transcript of a life."""
    folder, logs = Path(tempfile.mkdtemp(prefix="life-")), list[Cluster]()

    async def replay(connection: Any, work: Any, *, isolation_level: str, **_: Any) -> None:
        """Read the logs in batches of three records, in place of a client of its own."""
        futures.wait(work._snapshots.values(), 60.0)
        while found := work.begin():
            tp, extent = TP(*found[0]), found[1]
            records = [r for r in logs[0].records[tp] if extent.start <= r.offset < extent.end]
            while True:
                batch, records = records[:3], records[3:]
                work.write(found[0], batch, batch[-1].offset + 1 if records else extent.end)
                if not records:
                    break
            work.finish(found[0])

    async def extents(connection: Any, tps: Any) -> Any:
        """Return the ends of the logs, in place of a request."""
        return {tp: Extent(logs[0].begins.get(TP(*tp), 0), logs[0].ends[TP(*tp)]) for tp in tps}

    async def changelogs(connection: Any, topics: Any, only: Any) -> Any:
        """Return the changelogs' extents and the default retention, in place of requests."""
        found = await extents(connection, only)
        return {
            topic: Changelog(
                topic,
                {tp.partition: extent for tp, extent in found.items() if tp.topic == topic},
                DEFAULT_DELETE_RETENTION_MS,
            )
            for topic in topics
        }

    def scrub(line: str) -> str:
        line = line.replace(str(folder), "DATA").replace(__version__, "VERSION")
        line = re.sub(r"bytes=\{[^}]*\}", "bytes={}", re.sub(r"0x[0-9a-f]+", "0x", line))
        return re.sub(r"(\.\d\d\d)\d+", r"\1", line)

    tellers = list[Told]()

    def put(writer: LedgerWriter, work: Any) -> None:
        """Tell the rows at once, in place of the ledger's thread."""
        for table, row in work():
            tellers[0].say("ledger", f"{table}: {of_row(encode(table, row))}")

    async def live() -> str:
        told = Told(asyncio.get_running_loop().time, scrub)
        life = Life(told, folder)
        tellers.append(told)
        logs.append(life.logs)
        with told_logs(told):
            try:
                await story(life)
            finally:
                for name in sorted(life.workers):
                    await life.stop(name)
        return told.text()

    try:
        with (
            patch.object(bring_up, "replay", replay),
            patch.object(bring_up, "extents_of", extents),
            patch.object(bring_up, "PARALLEL_RESTORES", 1),
            patch.object(from_snapshots, "changelogs", changelogs),
            patch.object(Decisions, "tell", tell_at_once),
            patch.object(LedgerWriter, "put", put),
        ):
            return simulate(live)
    finally:
        shutil.rmtree(folder)
