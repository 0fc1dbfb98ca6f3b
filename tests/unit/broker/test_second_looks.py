"""State after a first failure, deletion or answer: the next access must find it correct."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.groups.configs import GroupConfigs
from faust_assigner.broker.groups.meter import FENCING, Spread
from faust_assigner.broker.groups.timers import GroupTimers
from faust_assigner.broker.node import Node
from faust_assigner.broker.rate_limited_log import RateLimitedLog
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import records
from faust_assigner.broker.storage import rocks_store as room
from faust_assigner.broker.storage.claims import claims_transaction
from faust_assigner.broker.storage.records import BadBatch, RecordRules, parse_batch
from faust_assigner.broker.storage.recovery import StoreDamaged, examine
from faust_assigner.broker.storage.rocks_store import RecentBatches, RocksStore
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.topic_configs import check_configs
from faust_assigner.broker.topics import Catalogue
from faust_assigner.coordinator.errors import Code
from tests.support.clients.raw_client import batch, one_record

SESSION = "consumer.session.timeout.ms"


# -- the store -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "rocks"])
def test_a_deletion_in_the_same_write_counts_after_a_put(kind: str, tmp_path: Path) -> None:
    """Both kinds of store behave the same."""
    store = MemoryStore() if kind == "memory" else RocksStore(tmp_path)
    store.write([(b"k", b"v")], [b"k"])
    assert store.get(b"k") is None
    store.close()


def test_one_large_batch_makes_as_many_small_ones_go_as_it_needs() -> None:
    """The limit holds after every put."""
    recent = RecentBatches(10)
    for key in (b"1", b"2", b"3"):
        recent.put(key, b"xxx")
    recent.put(b"4", b"x" * 9)
    assert [recent.get(key) for key in (b"1", b"2", b"3")] == [None] * 3
    assert recent.get(b"4") == b"x" * 9
    recent.put(b"5", b"x" * 11)
    assert recent.get(b"5") is None


def test_a_store_whose_write_failed_is_opened_again_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB refuses every write after a failure until it is opened again; one open is enough."""
    store = RocksStore(tmp_path)
    opened: list[None] = []
    open_ = store._open
    monkeypatch.setattr(store, "_open", lambda at: (opened.append(None), open_(at))[1])
    guarded = room._call_db

    def failing(*_: Any) -> None:
        raise StoreFailed("i/o error")

    monkeypatch.setattr(room, "_call_db", failing)
    with pytest.raises(StoreFailed):
        store.write([(b"a", b"1")])
    monkeypatch.setattr(room, "_call_db", guarded)
    for key in (b"b", b"c"):
        store.write([(key, b"2")])
    assert (len(opened), store.get(b"a"), store.get(b"c")) == (1, None, b"2")
    store.close()


def test_a_rewritten_batch_is_read_from_memory_as_it_is_now(tmp_path: Path) -> None:
    """Only a cached batch is replaced in memory: no reader waits for old batches."""
    store = RocksStore(tmp_path)
    store.write([(b"b1", b"old")])
    store.write([(b"b1", b"new"), (b"b2", b"cold")], is_rewrite=True)
    assert (store.cached([b"b1"]), store.cached([b"b2"])) == ([b"new"], None)
    assert store.get_many([b"b1", b"b2"]) == [b"new", b"cold"]
    store.close()


def test_missing_writes_alone_end_a_start(tmp_path: Path) -> None:
    """If every partition is complete, the lost writes were offsets or groups."""
    store = RocksStore(tmp_path)
    topics = Catalogue(store, Settings.parse({}), lambda: None)  # type: ignore[arg-type,return-value]
    store.lost_writes = 3
    with pytest.raises(StoreDamaged, match="3 acknowledged writes are missing"):
        examine(store, topics, Settings.parse({}))
    examine(store, topics, Settings.parse({"log.recovery.accept.loss": "true"}))
    store.close()


def test_a_node_asks_for_a_loss_before_it_makes_a_new_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the creation the empty store would look valid."""

    def refuse(*_: object) -> None:
        raise StoreDamaged("all is lost")

    monkeypatch.setattr("faust_assigner.broker.storage.recovery._refuse_empty_after_loss", refuse)
    with pytest.raises(StoreDamaged, match="all is lost"):
        Node(Settings.parse({}), tmp_path)
    store = RocksStore(tmp_path)  # the failed start has closed it
    assert store.get(b"cluster") is None
    store.close()


# -- records ---------------------------------------------------------------------------------


def test_an_error_names_so_many_records_and_counts_them_all() -> None:
    """An answer with a million reasons would be larger than the request."""
    count = records.NAMED_RECORDS + 1
    body = b"".join(one_record(offset_delta=n) for n in range(count))
    data = batch(body, count=count)
    with pytest.raises(BadBatch, match=f"^{count} records are refused") as refused:
        records.check_records(data, parse_batch(data), RecordRules(1_000, keys=True))
    assert [number for number, _ in refused.value.records] == list(range(records.NAMED_RECORDS))


def test_a_batch_that_loses_its_records_is_not_compressed() -> None:
    """Consumers do not decompress an empty body."""
    data = batch(gzip.compress(one_record()), attributes=1)
    emptied = records.with_records(data, parse_batch(data), b"", 0, 5)
    header = records.read_header(emptied)
    assert (header.codec, header.count, header.max_timestamp, len(emptied)) == (0, 0, 5, 61)


def test_a_time_that_no_record_reaches_is_found_at_the_batch_as_a_whole() -> None:
    """The greatest time in the header may be later than every record's time."""
    data = batch(timestamp=1_000, max_timestamp=9_000)
    assert records.find_timestamp(data, 5_000) == (0, 9_000)


@pytest.mark.parametrize(("length", "error"), [(13, "corrupt_message"), (14, "")])
def test_a_batch_has_at_least_the_fields_of_the_oldest_format(length: int, error: str) -> None:
    """A shorter length is damage; the shortest valid length has an unsupported format."""
    data = b"\0" * 8 + length.to_bytes(4, "big") + b"\0" * 40
    with pytest.raises(BadBatch) as refused:
        records.cut_batch(data)
    assert (refused.value.error.name == "corrupt_message") is bool(error)


@pytest.mark.parametrize(("magic", "claims"), [(2, True), (1, False)])
def test_only_a_batch_of_this_format_claims_a_transaction(magic: int, claims: bool) -> None:
    """Different formats have different bytes there and are refused for their own reason."""
    assert claims_transaction(batch(attributes=0x10, magic=magic)) is claims


@pytest.mark.parametrize(("least", "most", "is_valid"), [(5, 5, True), (6, 5, False)])
def test_the_least_lag_of_compaction_is_at_most_the_greatest(
    least: int, most: int, is_valid: bool
) -> None:
    """Equal lags are allowed, as in Kafka."""
    configs = {"min.compaction.lag.ms": str(least), "max.compaction.lag.ms": str(most)}
    assert (check_configs(configs) is None) is is_valid


# -- groups ----------------------------------------------------------------------------------


def test_configs_of_a_group_that_were_deleted_are_gone_for_good() -> None:
    """They are deleted in memory and after a restart."""
    store = MemoryStore()
    settings = Settings.parse({})
    configs = GroupConfigs(store, settings)
    usual = configs.number("g", SESSION)
    configs.configure("g", {SESSION: "50000"}, validate_only=False)
    assert (configs.number("g", SESSION), list(GroupConfigs(store, settings))) == (50_000, ["g"])
    configs.configure("g", {}, validate_only=True)
    assert configs.number("g", SESSION) == 50_000
    configs.configure("g", {}, validate_only=False)
    assert (configs.number("g", SESSION), list(configs)) == (usual, [])
    assert list(GroupConfigs(store, settings)) == []


def test_a_value_at_a_bound_of_a_histogram_belongs_below_it() -> None:
    """Prometheus' buckets include their bound, and each bucket includes its predecessors."""
    spread = Spread((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 3.0):
        spread.add(value)
    assert spread.cumulative() == [("1.0", 1.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert spread.total == 7.5


def test_every_error_for_an_outdated_member_counts_as_fencing() -> None:
    """A new error of this kind must be added to the metrics."""
    assert {code.name for code in FENCING} == {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "UNRELEASED_INSTANCE_ID",
        "FENCED_MEMBER_EPOCH",
        "STALE_MEMBER_EPOCH",
    }
    assert Code.REBALANCE_IN_PROGRESS not in FENCING


async def test_closed_timers_ring_no_more() -> None:
    """Neither set alarms nor alarms with waiting frames fire."""
    ticks: list[Any] = []
    waiting: list[Any] = []
    timers = GroupTimers(lambda: 0, ticks.append)
    timers.serve_first = waiting.append
    timers.start(asyncio.get_running_loop())
    timers.set("due", 0)
    while not waiting:
        await asyncio.sleep(0)
    timers.set("later", 5)
    (_, handle), *_ = timers._armed.values()
    timers.close()
    waiting[0]()
    assert (ticks, handle.cancelled()) == ([], True)


async def test_an_answer_begun_before_a_change_does_not_replace_one_made_after_it() -> None:
    """The slow answer reaches only its own client."""
    node = Node(Settings.parse({}))
    slow: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def fresh() -> bytes:
        return b"new"

    async def never() -> bytes:
        return b"made again"

    first = asyncio.ensure_future(node.metadata_cache.get("key", lambda: slow))
    await asyncio.sleep(0)
    node.catalogue.create("t", 1, {})
    assert await node.metadata_cache.get("key", fresh) == b"new"
    slow.set_result(b"old")
    assert await first == b"old"
    assert await node.metadata_cache.get("key", never) == b"new"
    node.close()


async def test_a_stopped_broker_has_no_node() -> None:
    """A second stop has no effect."""
    broker = EmbeddedBroker()
    await broker.start()
    assert broker.node.catalogue is not None
    for _ in range(2):
        await broker.stop()
        with pytest.raises(RuntimeError, match="not running"):
            _ = broker.node


def test_lines_about_peers_come_again_after_a_minute_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each kind has its own limit, and the count starts anew."""
    log = RateLimitedLog()
    with caplog.at_level("INFO"):
        for kind, now in [("a", 0.0)] * 12 + [("b", 0.0)] + [("a", 60.0)] + [("a", 60.1)]:
            log.log(kind, now, "line %s %s", kind, now)
    told = [record.getMessage() for record in caplog.records]
    assert told.count("line a 0.0") == 10
    assert (told.count("line b 0.0"), told.count("line a 60.0"), told.count("line a 60.1")) == (
        1,
        0,
        1,
    )
    assert sum("3 " in line for line in told) == 1, told
