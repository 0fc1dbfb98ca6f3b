"""A worker's answers to Kubernetes: ready during normal work or restores, else the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.consumer.set_aside import SetAside
from faust_assigner.app.membership.watchdog import RepairedTables
from faust_assigner.app.metrics.install import install
from faust_assigner.app.metrics.probes import STALLED_S, live_problems
from faust_assigner.app.metrics.sensor import MetricsSensor
from faust_assigner.app.metrics.stalled import RECORD_S
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.wire.worker_status import REASONS
from tests.support.assigned import give
from tests.support.faust_group import make_app
from tests.unit.app.metrics.test_metrics import Clock

ORDERS, LOG = TP("orders", 3), TP("shop-totals-changelog", 3)


class Bench:
    """A worker that owns one task, and a clock."""

    def __init__(self) -> None:
        self.app: Any = make_app(
            "http://w",
            assignor="faust_assigner:PartitionAssignor",
            tables=("totals",),
            broker="kafka://127.0.0.1:1",
        )
        self.app.finalize()
        self.clock = Clock()
        self.sensor = MetricsSensor(self.app, clock=self.clock)
        self.recovery = SimpleNamespace(
            in_recovery=False, is_taking_on=False, is_flowing=True, active_offsets={}
        )
        self.app.tables._recovery = self.recovery
        self.fetcher = SimpleNamespace(aside=SetAside(), refused=SetAside())
        self.consumer = SimpleNamespace(
            _paused_partitions=set(),
            _unacked_messages=[],
            leaving=frozenset(),
            between_generations=False,
            fetcher=self.fetcher,
            is_surely_member=lambda: True,
        )
        self.app._consumer = self.consumer
        self.own()

    def own(self) -> None:
        """Give the worker an assignment."""
        assignor = self.app.assignor
        assignor._memory = Memory(generation=4)
        give(self.app, actives={ORDERS, LOG})

    def reasons(self, after_s: float = 0.0) -> list[str]:
        """Return the reasons of unreadiness ``after_s`` from now, after a first check now."""
        self.sensor.not_ready()
        self.clock.now += after_s
        return self.sensor.not_ready()

    def standing(self) -> list[tuple[Any, str]]:
        """Return the partitions that stand still, with their reasons."""
        return [(one.tp, one.reason) for one in self.sensor._still.state_at(self.clock.now)]


class State:
    """A stub of aiokafka's partition state."""

    position = 7


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A worker in normal work."""
    made = Bench()
    monkeypatch.setattr(type(made.app.tables), "recovery", made.recovery)
    yield made
    made.app._consumer = None


async def test_a_worker_that_works_is_ready(bench: Bench) -> None:
    """A worker without partitions is ready too: it is idle by assignment."""
    assert bench.reasons() == []
    give(bench.app, actives=())
    assert bench.reasons(600) == []


async def test_before_the_first_assignment_it_is_not_ready(bench: Bench) -> None:
    """The group has not answered yet."""
    bench.app.assignor._memory = Memory(generation=-1)
    assert bench.reasons() == ["the group has not given this worker an assignment yet"]


async def test_a_worker_that_stops_is_not_ready(bench: Bench) -> None:
    """Requests then go to other workers during the hand-over."""
    bench.app.assignor.leaves = True
    assert bench.reasons() == ["the worker stops and hands its partitions over"]


async def test_a_restore_that_makes_progress_is_as_it_should_be(bench: Bench) -> None:
    """Its duration does not matter; a restore without progress is reported after a while."""
    bench.recovery.is_taking_on = True
    bench.consumer._paused_partitions.add(ORDERS)
    for offset in range(5):
        bench.recovery.active_offsets[LOG] = offset
        assert bench.reasons(STALLED_S - 1) == []
    (reason,) = bench.reasons(STALLED_S)
    assert "1 partition stands still: the restore of their tables has made no progress" in reason
    assert bench.standing() == [(ORDERS, "restoring")]


async def test_a_new_assignment_begins_the_time_without_progress_anew(bench: Bench) -> None:
    """The worker then restores other tables."""
    bench.recovery.is_taking_on = True
    bench.consumer._paused_partitions.add(ORDERS)
    assert bench.reasons(STALLED_S - 1) == []
    bench.app.assignor._memory = Memory(generation=5)
    give(bench.app, actives={ORDERS, LOG})
    assert bench.reasons(STALLED_S - 1) == []
    assert bench.reasons(1) != []


@pytest.mark.parametrize("name", ["client_only", "producer_only"])
async def test_a_process_that_takes_no_partitions_is_ready_without_an_assignment(
    bench: Bench, name: str
) -> None:
    """Faust's agents and streams do not run there."""
    bench.app.assignor._memory = Memory(generation=-1)
    setattr(bench.app, name, True)
    assert bench.reasons() == []


def silent(bench: Bench) -> None:
    """Let the group answer no heartbeat."""
    bench.consumer.is_surely_member = lambda: False


def unreadable(bench: Bench) -> None:
    """Let its records be corrupt."""
    bench.fetcher.aside.unreadable(ORDERS, STATE, ValueError("corrupt"), 0.0)


def busy(bench: Bench) -> None:
    """Let an agent hold two records."""
    bench.consumer._unacked_messages = [
        SimpleNamespace(tp=ORDERS, offset=9, acked=False),
        SimpleNamespace(tp=ORDERS, offset=7, acked=False),
    ]


def refused(bench: Bench) -> None:
    """Let its broker answer with an error."""
    bench.fetcher.refused.refused(ORDERS, STATE, 0.0)


def paused(bench: Bench) -> None:
    """Pause the partition for another reason."""
    bench.consumer._paused_partitions.add(ORDERS)


def going(bench: Bench) -> None:
    """Let the partition move to another worker."""
    bench.consumer.leaving = frozenset({ORDERS})


def stopped(bench: Bench) -> None:
    """Let a rebalance stop all partitions."""
    bench.consumer.between_generations = True


STATE = State()
#: Reason -> (its cause, the seconds during which it is no fault).
BROUGHT: dict[str, tuple[Any, float]] = {
    "group": (silent, 0.0),
    "unreadable": (unreadable, 0.0),
    "record": (busy, RECORD_S),
    "refused": (refused, 10.0),
    "paused": (paused, 60.0),
    "hand_over": (going, 60.0),
    "round": (stopped, 60.0),
}


def test_each_reason_is_brought_about() -> None:
    """The reason ``restoring`` has its own test."""
    assert {*BROUGHT, "restoring"} == REASONS.keys()


@pytest.mark.parametrize("reason", list(BROUGHT))
async def test_a_standstill_is_named_once_it_takes_too_long(bench: Bench, reason: str) -> None:
    """The reason ends with its cause, and its time then restarts."""
    bring_about, patience_s = BROUGHT[reason]
    bring_about(bench)
    named = [f"1 partition stands still: {REASONS[reason]}"]
    if patience_s:
        assert bench.reasons(patience_s - 0.1) == []
        assert bench.reasons(0.2) == named
    assert bench.reasons() == named
    assert bench.standing() == [(ORDERS, reason)]


async def test_the_time_of_a_standstill_begins_anew_with_another_reason(bench: Bench) -> None:
    """59 s of a hand-over and 59 s of a round are separate waits, each within its limit."""
    going(bench)
    assert bench.reasons(59) == []
    bench.consumer.leaving = frozenset()
    stopped(bench)
    assert bench.reasons(59) == []
    assert bench.reasons(1) == [f"1 partition stands still: {REASONS['round']}"]


async def test_the_time_of_a_standstill_begins_anew_once_it_was_over(bench: Bench) -> None:
    """Two short pauses do not add up."""
    for _ in range(2):
        paused(bench)
        assert bench.reasons(59) == []
        bench.consumer._paused_partitions.clear()
        assert bench.reasons() == []


async def test_a_record_that_is_followed_by_the_next_is_no_standstill(bench: Bench) -> None:
    """Streams are slow but not stuck: the oldest record changes each time."""
    for offset in range(10):
        bench.consumer._unacked_messages = [SimpleNamespace(tp=ORDERS, offset=offset, acked=False)]
        assert bench.reasons(RECORD_S - 1) == []


async def test_what_has_ended_makes_a_worker_not_live(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog finds the problem; the worker ends soon."""
    assert live_problems(SimpleNamespace(crashed=False, tables=SimpleNamespace())) == []
    tables = SimpleNamespace(problems=lambda: [("fetcher", "the fetcher has ended")])
    app = SimpleNamespace(crashed=False, tables=tables)
    assert live_problems(app) == ["the fetcher has ended"]
    assert live_problems(SimpleNamespace(crashed=True)) == ["the app has crashed"]


def test_the_problems_of_the_watchdog_are_those_of_the_repaired_tables() -> None:
    """The probe asks the table manager by this name; Faust's own manager has no such method."""
    tables = RepairedTables.__new__(RepairedTables)
    tables.watchdog = SimpleNamespace(problems=lambda: iter([("thread", "it has ended")]))  # type: ignore[assignment]
    assert live_problems(SimpleNamespace(crashed=False, tables=tables)) == ["it has ended"]


async def test_the_pages_are_added_once_when_the_web_server_is_set_up(bench: Bench) -> None:
    """Before that, the command line may still turn the server off."""
    install(bench.app)
    assert "web" not in vars(bench.app)
    for _ in range(2):
        bench.app.on_webserver_init(bench.app.web)
    paths = [path for path in bench.app.web.views if path.startswith("/assignor")]
    assert paths[:6] == [
        "/assignor/live",
        "/assignor/ready",
        "/assignor/status",
        "/assignor/peers",
        "/assignor/rounds",
        "/assignor/ledger",
    ]
    assert len(paths) == len(set(paths))


async def test_the_oldest_record_under_way_is_the_one_that_counts(bench: Bench) -> None:
    """With concurrency, later records come and go beside it."""
    for offset in (5, 6, 7):
        bench.consumer._unacked_messages = [record(4), record(offset)]
        bench.reasons(RECORD_S / 2)
    assert [reason for reason in bench.reasons() if "stands still" in reason]


def record(offset: int) -> Any:
    """Return a record in progress."""
    return SimpleNamespace(tp=ORDERS, offset=offset, acked=False)
