"""The acts of a storm: each asks the broker, and changes the model if the answer has no error."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import random
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.housekeeping import expire, retain
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.coordinator.transactions import State
from tests.property.broker_sim.host import RETENTION_MINUTES, Host
from tests.property.broker_sim.members import NEW, Members
from tests.property.broker_sim.model import (
    CONFIGS,
    Log,
    Model,
    Offset,
    Place,
    Producer,
    Topic,
    Written,
)
from tests.property.lives import Violation, must
from tests.support.clients.raw_client import batch, keyed_record

(
    PRODUCE,
    COMMIT,
    CREATE,
    DELETE,
    DELETE_RECORDS,
    INIT,
    ADD_PARTITIONS,
    ADD_OFFSETS,
    END,
    TXN_COMMIT,
) = 0, 8, 19, 20, 21, 22, 24, 25, 26, 28
DESCRIBE_CONFIGS, REPLACE_CONFIGS = 32, 33
GROW, DELETE_GROUPS, CONFIGURE, DELETE_OFFSETS = 37, 42, 44, 47
GROUP: Final = 32  # a resource type
BY_DEFAULT, BY_GROUP = 5, 8  # the sources of a config
TOPICS, GROUPS = ("t", "u", "c"), ("g", "h", "k", "m")
TRANSACTIONAL: Final = 0x10
NO_TIME: Final = -1
MINUTE: Final = 60_000
SHORT_RETENTION: Final = 5 * MINUTE
COMPACT: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
#: Errors that a full disk explains.
OF_DISK: Final = {
    ErrorCode.kafka_storage_error,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_load_in_progress,
}


def ms(value: int) -> datetime.timedelta:
    """Return a time in ms as kio has it."""
    return datetime.timedelta(milliseconds=value)


class World:
    """A broker and its model in one storm."""

    def __init__(self, seed: int, folder: Path | None) -> None:
        self.draw = random.Random(seed)
        self.host, self.model = Host(folder), Model()
        self.producers = [
            Producer(""),
            Producer(""),
            Producer("a"),
            Producer("b"),
            Producer("c", second_version=True),
            Producer("d", second_version=True),
        ]
        self.members = Members(self.host, self.draw, self.ask, self.model)
        self.story: list[str] = []
        self.checks = 0
        self._value = 0
        self._acts: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (5, self.produce_plainly),
            (20, self.produce),
            (4, self.begin),
            (6, self.end),
            (5, self.commit),
            (8, self.commit_in_transaction),
            (3, self.create_topic),
            (1, self.delete_topic),
            (1, self.grow_topic),
            (1, self.configure_topic),
            (9, self.configure_group),
            (3, self.delete_records),
            (1, self.delete_offsets),
            (1, self.delete_group),
            (2, self.pass_time),
            (2, self.keep_house),
            (4, self.compact),
            (4, self.members.act),
        ]

    # -- steps -------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Create the topics, and begin the producers."""
        for name in TOPICS:
            await self._create_topic(name)
        for producer in self.producers:
            await self._begin(producer)

    async def step(self) -> None:
        """Do a random act, perhaps with a refused write or the end of the broker's life."""
        fault = self.draw.random()
        act = self.draw.choices([a for _, a in self._acts], [w for w, _ in self._acts])[0]
        self.tell(act.__name__)
        if fault < 0.2:
            after, dies = self.draw.choice((0, 0, 0, 1, 1, 2)), fault < 0.05
            self.host.refuse(after, for_ever=dies)
            self.tell(f"  write {after} is refused{', as all later ones' if dies else ''}")
            await act()
            if dies:
                await self.restart()
            self.host.accept_writes()
            self.learn_transactions()
        else:
            await act()
            if fault > 0.95:
                await self.restart()
        await self.check_logs(self.draw.choice((False, True)), one=True)

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(line)

    async def ask(self, key: int, version: int, **values: Any) -> Any:
        """Send a request."""
        answer = await self.host.ask(key, version, **values)
        self.tell(f"  {key} v{version} {_short(values)} -> {_short(answer)}")
        return answer

    def ok(self, error: ErrorCode, *expected: ErrorCode) -> bool:
        """Return whether there is no error; any error but ``expected`` needs a full disk."""
        error = ErrorCode(error)
        if error is ErrorCode.none:
            return True
        is_disk = self.host.has_refused and error in OF_DISK
        must(is_disk or error in expected, "a valid request is accepted", error)
        return False

    def a_log(self) -> tuple[Topic, int, Log, Place] | None:
        """Draw a partition."""
        if not self.model.topics:
            return None
        topic = self.draw.choice(list(self.model.topics.values()))
        number = self.draw.randrange(len(topic.logs))
        return topic, number, topic.logs[number], (topic.topic_id, number)

    # -- records -----------------------------------------------------------------------------------

    def _batch(self, log: Log, producer: Producer | None, sequence: int) -> tuple[bytes, Any, int]:
        count = self.draw.randint(1, 3)
        records: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(count):
            self._value += 1
            key = b"k%d" % self.draw.randrange(4) if log.is_compacted else None
            value = None if key and self.draw.random() < 0.2 else b"%d" % self._value
            records.append((key, value))
        stamp = self.draw.choice((*[self.host.now] * 6, self.host.now - SHORT_RETENTION, NO_TIME))
        data = batch(
            b"".join(keyed_record(*pair, offset_delta=n) for n, pair in enumerate(records)),
            count=count,
            timestamp=stamp,
            attributes=TRANSACTIONAL if producer is not None and producer.name else 0,
            producer_id=producer.producer_id if producer is not None else -1,
            epoch=producer.epoch if producer is not None else -1,
            sequence=sequence,
        )
        return data, records, self.host.now if stamp == NO_TIME else stamp

    async def _produce(
        self, topic: Topic, number: int, data: bytes, name: str | None, version: int
    ) -> Any:
        answer = await self.ask(
            PRODUCE,
            version,
            transactional_id=name,
            acks=-1,
            timeout=ms(1_000),
            topic_data=[
                {"name": topic.name, "partition_data": [{"index": number, "records": data}]}
            ],
        )
        return answer.responses[0].partition_responses[0]

    async def produce_plainly(self) -> None:
        """Write a batch without a producer id."""
        found = self.a_log()
        if found is None:
            return
        topic, number, log, _ = found
        data, records, stamp = self._batch(log, None, -1)
        got = await self._produce(topic, number, data, None, 11)
        if self.ok(got.error_code):
            must(got.base_offset == log.end, "an offset follows the last one", got, log.end)
            log.add(Written(log.end, records, stamp))

    async def produce(self) -> None:
        """Write a batch with a producer id, or repeat the producer's last batch."""
        found = self.a_log()
        ready = [one for one in self.producers if one.is_ready]
        if found is None or not ready:
            return
        topic, number, log, place = found
        producer = self.draw.choice(ready)
        if place in producer.latest and self.draw.random() < 0.2:
            await self._repeat(producer, topic, number, log, place)
            return
        if producer.name and not producer.second_version and place not in producer.places:
            await self._add_partition(producer, topic, number, place)
            if place not in producer.places:
                return
        sequence = producer.sequences.get(place, 0)
        data, records, stamp = self._batch(log, producer, sequence)
        version = 12 if producer.second_version else 11
        got = await self._produce(topic, number, data, producer.name or None, version)
        if not self.ok(got.error_code):
            return
        must(got.base_offset == log.end, "an offset follows the last one", got, log.end)
        producer.sequences[place] = sequence + len(records)
        producer.latest[place] = data, log.end
        if producer.name:
            self._opened(producer)
            producer.places.add(place)
        state = "open" if producer.name else "plain"
        log.add(Written(log.end, records, stamp, state, producer.name))

    async def _repeat(
        self, producer: Producer, topic: Topic, number: int, log: Log, place: Place
    ) -> None:
        data, base = producer.latest[place]
        if base < log.start or (producer.name and place not in producer.places):
            return
        version = 12 if producer.second_version else 11
        got = await self._produce(topic, number, data, producer.name or None, version)
        if self.ok(got.error_code):
            must(got.base_offset == base, "a repeated batch has its first offset", got, base)

    def _opened(self, producer: Producer) -> None:
        if producer.started is None:
            producer.started = self.host.now

    async def _add_partition(
        self, producer: Producer, topic: Topic, number: int, place: Place
    ) -> None:
        answer = await self.ask(
            ADD_PARTITIONS,
            3,
            v3_and_below_transactional_id=producer.name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[{"name": topic.name, "partitions": [number]}],
        )
        got = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        if self.ok(got.partition_error_code):
            self._opened(producer)
            producer.places.add(place)

    # -- transactions ------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Get a producer id or the next epoch; this aborts the open transaction."""
        producer = self.draw.choice(self.producers)
        if not producer.is_ready or self.draw.random() < 0.3:
            await self._begin(producer)

    async def _begin(self, producer: Producer) -> None:
        timeout = self.draw.choice((MINUTE, 14 * MINUTE))
        answer = await self.ask(
            INIT,
            4,
            transactional_id=producer.name or None,
            transaction_timeout=ms(timeout),
            producer_id=-1,
            producer_epoch=-1,
        )
        if not self.ok(answer.error_code):
            return
        if producer.started is not None:
            self.model.end(producer, commits=False, time=self.host.now)
        producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
        producer.timeout, producer.is_ready = timeout, True
        producer.sequences, producer.latest = {}, {}

    async def end(self) -> None:
        """Commit or abort."""
        opened = [one for one in self.producers if one.started is not None and one.is_ready]
        if not opened:
            return
        producer, commits = self.draw.choice(opened), self.draw.random() < 0.6
        answer = await self.ask(
            END,
            5 if producer.second_version else 3,
            transactional_id=producer.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )
        if not self.ok(answer.error_code):
            return
        self.model.end(producer, commits=commits, time=self.host.now)
        if producer.second_version:
            must(answer.producer_epoch == producer.epoch + 1, "an end raises the epoch", answer)
            producer.epoch = answer.producer_epoch
            producer.sequences, producer.latest = {}, {}

    async def commit_in_transaction(self) -> None:
        """Commit an offset in a transaction."""
        found = self.a_log()
        ready = [one for one in self.producers if one.is_ready and one.name]
        if found is None or not ready:
            return
        topic, number, _, _ = found
        producer, group = self.draw.choice(ready), self.draw.choice(GROUPS)
        owner = {
            "group_id": group,
            "transactional_id": producer.name,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
        }
        if not producer.second_version and group not in producer.groups:
            added = await self.ask(ADD_OFFSETS, 3, **owner)
            if not self.ok(added.error_code):
                return
            self._opened(producer)
            producer.groups.add(group)
        offset = self.draw.randrange(1_000)
        part = {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
        answer = await self.ask(
            TXN_COMMIT,
            5 if producer.second_version else 3,
            **owner,
            **self.members.identity(group),
            topics=[{"name": topic.name, "partitions": [part]}],
        )
        (got,) = answer.topics[0].partitions
        if self.ok(got.error_code, *self.members.refusals(group)):
            self._opened(producer)
            producer.groups.add(group)
            table = self.model.pending.setdefault(group, {}).setdefault(producer.name, {})
            table[topic.name, number] = Offset(offset, self.host.now)
        else:
            self.learn_transactions()  # the request has opened the transaction, perhaps

    def learn_transactions(self) -> None:
        """Learn which partitions a refused request has added to its transaction."""
        for producer in self.producers:
            known = self.host.node.transactions.get(producer.name)
            is_open = known is not None and known.state is State.ONGOING
            must(is_open or producer.started is None, "an open transaction stays open", known)
            if known is None or not is_open:
                continue
            producer.started = known.started_ms
            there = {(uuid.UUID(bytes=topic_id), number) for topic_id, number in known.partitions}
            must(there >= producer.places, "an added partition stays in its transaction", known)
            must(known.groups >= producer.groups, "an added group stays in its transaction", known)
            producer.places, producer.groups = there, set(known.groups)

    # -- offsets -----------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit an offset, as the group's member if it has one."""
        found = self.a_log()
        if found is None:
            return
        name, number = found[0].name, found[1]
        group, offset = self.draw.choice(GROUPS), self.draw.randrange(1_000)
        waiting = self.model.waiting()
        if waiting and self.draw.random() < 0.5:
            group, (name, number) = self.draw.choice(waiting)
        part = {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
        who = self.members.identity(group)
        answer = await self.ask(
            COMMIT,
            9,
            group_id=group,
            generation_id_or_member_epoch=who["generation_id"],
            member_id=who["member_id"],
            topics=[{"name": name, "partitions": [part]}],
        )
        (got,) = answer.topics[0].partitions
        if self.ok(got.error_code, *self.members.refusals(group)):
            self.model.commit(group, (name, number), Offset(offset, self.host.now))

    async def delete_offsets(self) -> None:
        """Delete an offset."""
        found, group = self.a_log(), self.draw.choice(GROUPS)
        if found is None:
            return
        topic, number, _, _ = found
        wanted = [{"name": topic.name, "partitions": [{"partition_index": number}]}]
        answer = await self.ask(DELETE_OFFSETS, 0, group_id=group, topics=wanted)
        if not self.ok(answer.error_code, ErrorCode.group_id_not_found):
            return
        (got,) = answer.topics[0].partitions
        if self.ok(got.error_code, ErrorCode.group_subscribed_to_topic):
            self.model.forget(group, [(topic.name, number)])

    async def delete_group(self) -> None:
        """Delete a group."""
        group = self.draw.choice(GROUPS)
        answer = await self.ask(DELETE_GROUPS, 2, groups_names=[group])
        expected = ErrorCode.group_id_not_found, ErrorCode.non_empty_group
        error = answer.results[0].error_code
        if self.ok(error, *expected):
            self.model.forget(group)
        elif error == ErrorCode.group_id_not_found:
            must(not self.model.offsets.get(group), "a group with offsets exists", group)

    async def configure_group(self) -> None:
        """Set, change or delete a config of a group, or replace all its configs."""
        group = self.draw.choice((*NEW * 4, *GROUPS))
        name = self.draw.choice(list(CONFIGS))
        value = self.draw.choice((None, *CONFIGS[name]))
        if self.draw.random() < 0.3:
            wanted = {} if value is None else {name: value}
            key, version = REPLACE_CONFIGS, 2
            changes = [{"name": n, "value": str(v)} for n, v in wanted.items()]
        else:
            wanted = dict(self.model.configs.get(group, {}))
            wanted.pop(name, None)
            if value is not None:
                wanted[name] = value
            key, version = CONFIGURE, 1
            text = None if value is None else str(value)
            changes = [{"name": name, "config_operation": int(value is None), "value": text}]
        resource = {"resource_type": GROUP, "resource_name": group, "configs": changes}
        answer = await self.ask(key, version, resources=[resource], validate_only=False)
        if self.ok(answer.responses[0].error_code):
            self.model.configs[group] = wanted
        if group in NEW:
            await self.members.beat(group)

    # -- topics ------------------------------------------------------------------------------------

    async def create_topic(self) -> None:
        """Create a topic."""
        missing = [name for name in TOPICS if name not in self.model.topics]
        if missing:
            await self._create_topic(self.draw.choice(missing))

    async def _create_topic(self, name: str) -> None:
        count = self.draw.randint(1, 2)
        configs = COMPACT if name == "c" else {"retention.ms": str(SHORT_RETENTION)}
        wanted = {
            "name": name,
            "num_partitions": count,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        answer = await self.ask(CREATE, 7, topics=[wanted], timeout=ms(1_000))
        (got,) = answer.topics
        if self.ok(got.error_code):
            logs = [Log(name == "c") for _ in range(count)]
            self.model.topics[name] = Topic(name, got.topic_id, dict(configs), logs)

    async def delete_topic(self) -> None:
        """Delete a topic; perhaps create a new topic of its name at once."""
        if not self.model.topics:
            return
        name = self.draw.choice(list(self.model.topics))
        await self._delete_topic(name)
        if name not in self.model.topics and self.draw.random() < 0.5:
            await self._create_topic(name)

    async def _delete_topic(self, name: str) -> None:
        answer = await self.ask(DELETE, 5, topic_names=[name], timeout=ms(1_000))
        if self.ok(answer.responses[0].error_code):
            self.model.delete_topic(name)

    async def grow_topic(self) -> None:
        """Add a partition."""
        small = [topic for topic in self.model.topics.values() if len(topic.logs) < 3]
        if not small:
            return
        topic = self.draw.choice(small)
        wanted = {"name": topic.name, "count": len(topic.logs) + 1, "assignments": None}
        answer = await self.ask(GROW, 3, topics=[wanted], timeout=ms(1_000))
        if self.ok(answer.results[0].error_code):
            topic.logs.append(Log(topic.logs[0].is_compacted))

    async def configure_topic(self) -> None:
        """Set a config."""
        if not self.model.topics:
            return
        topic = self.draw.choice(list(self.model.topics.values()))
        value = str(self.draw.choice((1, 2, 10)))
        change = {"name": "flush.messages", "config_operation": 0, "value": value}
        resource = {"resource_type": 2, "resource_name": topic.name, "configs": [change]}
        answer = await self.ask(CONFIGURE, 1, resources=[resource])
        if self.ok(answer.responses[0].error_code):
            topic.configs["flush.messages"] = value

    async def delete_records(self) -> None:
        """Delete the first records of a partition."""
        found = self.a_log()
        if found is None or found[2].is_compacted:
            return
        topic, number, log, _ = found
        target = self.draw.randint(log.start, log.end)
        part = {"partition_index": number, "offset": target}
        answer = await self.ask(
            DELETE_RECORDS,
            2,
            topics=[{"name": topic.name, "partitions": [part]}],
            timeout=ms(1_000),
        )
        if self.ok(answer.topics[0].partitions[0].error_code):
            log.start = target

    # -- time --------------------------------------------------------------------------------------

    async def pass_time(self) -> None:
        """Let time pass, and fire the timers of transactions and groups."""
        self.host.now += self.draw.choice((1_000, 20_000, MINUTE, 4 * MINUTE))
        for producer in self.producers:
            if producer.name:
                self.host.node.transactions.tick(producer.name)
        self.host.accept_writes()
        for producer in self.producers:
            due = producer.started is not None and (
                self.host.now >= producer.started + producer.timeout
            )
            if producer.name and due:
                self.host.node.transactions.tick(producer.name)
                self.model.end(producer, commits=False, time=self.host.now)
                producer.is_ready = False
        for group in GROUPS:
            self.host.node.groups.tick(group)

    async def keep_house(self) -> None:
        """Run retention and the expiry of offsets."""
        oldest = self.host.now - SHORT_RETENTION
        try:
            list(retain(self.host.node))
        except StoreFailed:
            must(self.host.has_refused, "retention fails with the disk only")
            self.host.accept_writes()
            list(retain(self.host.node))
        for topic in self.model.topics.values():
            for log in topic.logs:
                if not log.is_compacted:
                    log.retain(oldest)
        try:
            list(expire(self.host.node))
        except StoreFailed:
            must(self.host.has_refused, "expiry fails with the disk only")
        self._learn_expiry()

    def _learn_expiry(self) -> None:
        for group, table in self.model.offsets.items():
            there = self.host.node.groups.books.offsets(group).entries
            for key in [key for key in table if key not in there]:
                age = self.host.now - table[key].at
                must(age >= RETENTION_MINUTES * MINUTE, "an offset expires late enough", group, key)
                must(not self.model.is_pending(group, key), "no pending offset expires", group, key)
                del table[key]

    async def compact(self) -> None:
        """Compact all topics that are due."""
        try:
            await self.host.node.compaction.clean_all()
        except StoreFailed:
            must(self.host.has_refused, "compaction fails with the disk only")

    # -- checks ------------------------------------------------------------------------------------

    async def restart(self) -> None:
        """Restart the broker, and compare everything with the model."""
        is_dead = self.host.writes_left is not None and self.host.writes_left < 0
        self.restart_alike(after_death=is_dead)
        await self.check()

    def restart_alike(self, *, after_death: bool = False) -> None:
        """Restart the broker; its visible state must not change."""
        self.tell("restart")
        before = {} if after_death else self.facts()
        self.host.restart()
        after = self.facts()
        for name, facts in before.items():
            if name == "groups":  # a restart also restores a group that the loss of a write hid
                after[name] = {key: after[name].get(key) for key in facts}
            must(facts == after[name], f"a restart keeps the {name}", facts, after[name])

    async def crowd(self) -> None:
        """Do several acts at once; the model does not know their order, so it is not compared."""
        chosen = self.draw.choices([a for _, a in self._acts], [w for w, _ in self._acts], k=4)
        if self.draw.random() < 0.5:
            chosen += [self.delete_topic, *[self.commit, self.commit_in_transaction] * 3]
            self.draw.shuffle(chosen)
        once = dict.fromkeys(act for act in chosen if act in (self.compact, self.members.act))
        if self.draw.random() < 0.15:
            self.host.refuse(self.draw.randrange(3), for_ever=False)
        acts = [act for act in chosen if act not in once]
        done = await asyncio.gather(*[act() for act in (*acts, *once)], return_exceptions=True)
        self.host.accept_writes()
        for outcome in done:
            if isinstance(outcome, Exception) and not isinstance(outcome, Violation | KeyError):
                raise outcome
        known = {group.group_id for group in self.host.node.groups}
        books = self.host.node.groups.books
        lost = [one for one in books if books.has_any(one) and one not in known]
        must(not lost, "offsets belong to a group", lost)

    def facts(self) -> dict[str, Any]:
        """Return the state in memory that a restart must restore."""
        node = self.host.node
        return {
            "topics": sorted((t.name, t.topic_id, t.configs) for t in node.catalogue),
            "logs": sorted(
                (
                    t.name, n, log.start_offset, log.end_offset, log.stable_offset, log.size,
                    log.cleaned_to, log.aborted(0, 2**62), log.index.rows(0, len(log.index)),
                )
                for t in node.catalogue for n, log in enumerate(t.partitions)
            ),
            "producers": sorted(
                (t.name, n, pid, one.epoch, one.coordinator_epoch, list(one.batches))
                for t in node.catalogue
                if t.name != "c"
                for n, log in enumerate(t.partitions)
                if not log.start_offset
                for pid, one in log.producers.items()
            ),
            "transactions": sorted(node.transactions, key=lambda one: one.transactional_id),
            "offsets": {
                group: dict(node.groups.books.offsets(group).entries)
                for group in GROUPS if node.groups.books.offsets(group).entries
            },
            "pending offsets": sorted(map(str, node.groups.books.pending.keys("g"))),
            "groups": self.members.facts(),
            "configs": {group: dict(node.group_configs.explicit(group)) for group in GROUPS},
        }  # fmt: skip

    async def check(self) -> None:
        """Compare everything with the model."""
        await self.check_logs(False)
        await self.check_logs(True)
        self.members.check_limits()
        for group in GROUPS:
            await self._check_configs(group)
            book = self.host.node.groups.books
            there = {key: one.offset for key, one in book.offsets(group).entries.items()}
            told = {key: one.offset for key, one in self.model.offsets.get(group, {}).items()}
            must(
                there == told, "the committed offsets are the acknowledged ones", group, there, told
            )
            for name in self.model.topics:
                for number in range(len(self.model.topics[name].logs)):
                    waits = self.model.is_pending(group, (name, number))
                    must(
                        book.pending.is_pending(group, (name, number)) == waits,
                        "the pending offsets are those of open transactions",
                        group,
                    )

    async def _check_configs(self, group: str) -> None:
        resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": None}
        answer = await self.ask(DESCRIBE_CONFIGS, 4, resources=[resource])
        there = {one.name: (int(one.value), one.config_source) for one in answer.results[0].configs}
        own = self.model.configs.get(group, {})
        told = {
            name: (self.model.config(group, name), BY_GROUP if name in own else BY_DEFAULT)
            for name in CONFIGS
        }
        must(there == told, "a group has the configs that were accepted", group, there, told)

    async def check_logs(self, committed: bool, *, one: bool = False) -> None:
        """Compare the records of all logs, or of one, with the model."""
        topics = list(self.model.topics.values())
        must(
            {t.name: (t.topic_id, len(t.partitions), t.configs) for t in self.host.node.catalogue}
            == {t.name: (t.topic_id, len(t.logs), t.configs) for t in topics},
            "the topics are the created ones",
        )
        places = [(topic, n) for topic in topics for n in range(len(topic.logs))]
        for topic, number in [self.draw.choice(places)] if one and places else places:
            await self._check_log(topic, number, committed=committed)

    async def _check_log(self, topic: Topic, number: int, *, committed: bool) -> None:
        self.checks += 1
        log, where = topic.logs[number], f"{topic.name}-{number}, committed={committed}"
        for stamp, offset in ((-2, log.start), (-1, log.stable if committed else log.end)):
            there = await self.host.offset(topic.name, number, stamp, committed=committed)
            must(
                there == offset, "the ends of a log are the acknowledged ones", where, there, offset
            )
        there = await self.host.records(topic.name, number, self.draw, committed=committed)
        told = log.records(committed=committed)
        if not log.is_compacted:
            must(there == told, "the records are the acknowledged ones", where, there, told)
            return
        must(there == sorted(set(there)), "compacted records are in order, each once", where)
        must(set(there) <= set(told), "each record was acknowledged", where, there, told)
        kept = log.newest(committed=committed)
        must(kept <= set(there), "compaction keeps the last record of each key", where, kept, there)

    async def finish(self) -> None:
        """End all transactions, delete everything, and look for left-overs."""
        self.host.accept_writes()
        await self.restart()
        self.host.now += 20 * MINUTE
        for producer in self.producers:
            if producer.name:
                self.host.node.transactions.tick(producer.name)
        await self.members.leave()
        for name in list(self.model.topics):
            await self._delete_topic(name)
        for group in GROUPS:
            answer = await self.ask(DELETE_GROUPS, 2, groups_names=[group])
            self.ok(answer.results[0].error_code, ErrorCode.group_id_not_found)
        left = [key for key, _ in self.host.node.store.scan(b"") if key[:1] not in b"cfpk"]
        must(not left, "nothing is left of deleted topics and groups", left)
        books = self.host.node.groups.books
        must(
            not list(books) and not books.topics(), "no deleted group is remembered", books.topics()
        )


def _short(value: Any) -> str:
    """Return a value without times, keys of no interest and records."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in ("acks", "timeout", "records")}
        return " ".join(f"{k}={_short(v)}" for k, v in kept.items())
    if dataclasses.is_dataclass(value):
        named = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        kept = {k: v for k, v in named.items() if v not in ((), None, -1) and k not in IGNORED}
        return _short(kept)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return value.name if isinstance(value, ErrorCode) else repr(value)


IGNORED: Final = ("throttle_time", "current_leader", "error_message", "configs")
