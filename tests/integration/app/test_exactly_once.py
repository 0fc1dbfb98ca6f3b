"""Workers with ``processing_guarantee="exactly_once"`` on both brokers, through deaths and departures."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.api import metadata
from faust_assigner.broker.api.call import Call, Values
from faust_assigner.testing.broker import broker_process

ROOT = Path(__file__).resolve().parents[3]
WORKER = "tests.support.workers.transactional"


KAFKA_MARKS = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(params=["ours", pytest.param("kafka", marks=KAFKA_MARKS)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the embedded broker in a process of its own, and of a real Kafka."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").bootstrap
        return
    with broker_process() as broker:
        yield broker.bootstrap


def once_each(name: str, ours: str, kafka: str) -> pytest.MarkDecorator:
    """Play a story with one value of ``name`` on each broker.

    No story needs all four pairs: the brokers differ in their answers, the values in the worker.
    """
    pairs = [("ours", ours), pytest.param("kafka", kafka, marks=KAFKA_MARKS)]
    return pytest.mark.parametrize(("bootstrap", name), pairs, indirect=["bootstrap"])


class Group:
    """Workers of one app, the numbers sent to them, and the outputs that committed readers see."""

    def __init__(
        self, bootstrap: str, folder: Path, agent: str = "one", *, used_partitions: int = 4
    ) -> None:
        self.app_id, self.bootstrap, self.folder = (
            f"exactly-{uuid.uuid4().hex[:6]}",
            bootstrap,
            folder,
        )
        self.agent, self.used_partitions = agent, used_partitions
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        names = ("numbers", "others", "passed-on")
        topics = [NewTopic(f"{self.app_id}-{name}", 4, 1) for name in names]
        admin = AdminClient({"bootstrap.servers": bootstrap})  # pending futures die with the client
        for made in admin.create_topics(topics).values():
            made.result(30)
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{self.app_id}-reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.reader.subscribe([f"{self.app_id}-passed-on"])
        self.sent, self.seen = 0, list[int]()

    def start(self, name: str, *, beside: Group | None = None, **options: str) -> None:
        """Start a worker with the files of its earlier run; ``beside`` runs in the same process."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "EXACTLY_APP_ID": self.app_id,
            "EXACTLY_BOOTSTRAP": self.bootstrap,
            "EXACTLY_NAME": name,
            "EXACTLY_DATA": str(folder / "data"),
            "EXACTLY_WORK_S": "0.02",
            "EXACTLY_COMMIT_S": "1.0",
            "EXACTLY_AGENT": self.agent,
            "EXACTLY_BESIDE": beside.app_id if beside else "",
        }
        environment |= {f"EXACTLY_{option.upper()}": value for option, value in options.items()}
        with (folder / "log").open("ab") as log:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", WORKER, "worker", "-l", "info", "--without-web"],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def send(self, count: int) -> None:
        """Send ``count`` numbers, each a different one."""
        for number in range(self.sent, self.sent + count):
            key = b'"k%d"' % (number % 20)
            self.producer.produce(
                f"{self.app_id}-numbers", b"%d" % number, key, number % self.used_partitions
            )
        assert self.producer.flush(30) == 0
        self.sent += count

    def send_on(self, seconds: float) -> None:
        """Send a few numbers at a time for ``seconds``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send(4)
            self.read(0.1)

    def send_both(self, seconds: float) -> None:
        """Send even numbers to one agent's topic and odd ones to the other's, for ``seconds``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number in range(self.sent, self.sent + 8):
                topic = f"{self.app_id}-{('numbers', 'others')[number % 2]}"
                self.producer.produce(topic, b"%d" % number, b'"k%d"' % number, number // 2 % 4)
            self.sent += 8
            self.read(0.1)
        assert self.producer.flush(30) == 0

    def wait_for(self, count: int, timeout_s: float = 60.0) -> None:
        """Read until ``count`` numbers came out or the time is over."""
        deadline = time.monotonic() + timeout_s
        while len(self.seen) < count and time.monotonic() < deadline:
            self.read(0.1)

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Read until ``is_so()`` is true or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not is_so() and time.monotonic() < deadline:
            self.read(0.1)

    def send_both_until_ready(self, *names: str, timeout_s: float = 240.0) -> None:
        """Send to both until these workers have started; a SIGTERM before that ends a process."""
        deadline = time.monotonic() + timeout_s
        while not all(self.is_ready(name) for name in names):
            assert time.monotonic() < deadline, f"not ready: {names}"
            self.send_both(0.5)

    def is_ready(self, name: str) -> bool:
        """Return whether the worker's current process has logged that it is ready."""
        said = (self.folder / name / "log").read_text(errors="replace")
        return f"[{self.workers[name].pid}] [INFO] [^Worker]: Ready" in said

    def fence(self, name: str) -> None:
        """Fence each producer of the worker, as the next owner of its partitions does."""
        said = (self.folder / name / "log").read_text(errors="replace")
        for transactional_id in set(re.findall(r"transactional id (\S+)", said)):
            settings = {"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id}
            Producer(settings).init_transactions(20)

    def pass_on(self, count: int) -> None:
        """Send ``count`` numbers and wait until they come out."""
        self.send(count)
        self.wait_for(self.sent)

    def in_the_middle(self, count: int = 400) -> None:
        """Send ``count`` numbers; return when a part came out and the rest is still in work."""
        before = self.sent
        self.send(count)
        self.wait_for(before + count // 8)
        assert before < len(self.seen) < self.sent, "nobody was in the middle of work"

    def read(self, seconds: float) -> None:
        """Read the records that committed readers see."""
        for message in self.reader.consume(500, timeout=seconds):
            if message.error() is None:
                self.seen.append(int(message.value()))

    def stop(self) -> None:
        """Stop the reader and all workers."""
        self.reader.close()
        for process in self.workers.values():
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_number_is_passed_on_once_through_a_death_and_a_departure(
    bootstrap: str, tmp_path: Path
) -> None:
    """SIGKILL during a worker's work, its return with its files, then SIGTERM of the other."""
    group = Group(bootstrap, tmp_path)
    try:
        group.start("one")
        group.start("two")
        group.send(200)
        group.wait_for(group.sent)
        group.in_the_middle()
        group.workers["two"].kill()
        group.start("two")
        group.wait_for(group.sent)
        group.in_the_middle()
        group.workers["one"].terminate()
        group.wait_for(group.sent)
        group.read(2.0)
        assert sorted(group.seen) == list(range(group.sent))
        assert group.workers["two"].poll() is None
    finally:
        group.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(120)
def test_a_broker_that_refuses_transactions_is_named_before_any_record_is_processed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka does the same if its access rules omit the transactional id."""
    answer = metadata._coordinator

    def refuse(call: Call, key: str, key_type: int) -> Values:
        if key_type == metadata.GROUP_KEY:
            return answer(call, key, key_type)
        error = ErrorCode.transactional_id_authorization_failed
        return {"key": key, "error_code": error, "node_id": -1, "host": "", "port": -1}

    monkeypatch.setattr(metadata, "_coordinator", refuse)
    with EmbeddedBroker() as broker:
        group = Group(broker.bootstrap, tmp_path)
        try:
            group.send(20)
            group.start("one")
            assert group.workers["one"].wait(60) != 0
            log = (tmp_path / "one" / "log").read_text(errors="replace")
            assert "The broker refuses transactions" in log
            assert "Worker ready" not in log
            assert "KeyError" not in log
        finally:
            group.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
@once_each("member", ours="dynamic", kafka="static")
def test_a_worker_frozen_for_longer_than_its_session_comes_back_by_itself(
    bootstrap: str, tmp_path: Path, member: str
) -> None:
    """The other worker has fenced the frozen worker's producers by using its transactional ids."""
    group = Group(bootstrap, tmp_path)
    try:
        for name in ("one", "two"):
            group.start(name, member=member)
        group.pass_on(200)
        group.in_the_middle(600)
        frozen = group.workers["one"]
        frozen.send_signal(signal.SIGSTOP)
        group.read(12.0)
        group.send(200)
        frozen.send_signal(signal.SIGCONT)
        group.send_on(8.0)
        group.wait_for(group.sent)
        group.workers["two"].terminate()
        group.workers["two"].wait(40)
        group.pass_on(50)
        group.read(2.0)
        assert sorted(group.seen) == list(range(group.sent))
        assert frozen.poll() is None
    finally:
        group.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("bootstrap", ["ours"], indirect=True)
def test_an_agent_that_fails_behind_a_group_by_skips_this_record_only(
    bootstrap: str, tmp_path: Path, guarantee: str
) -> None:
    """In stock Faust the agent reads nothing more after its first error, and the topic stands still."""
    group = Group(bootstrap, tmp_path, "regroup")
    try:
        group.send(100)
        group.start("one", member="dynamic", guarantee=guarantee, failing="60")
        group.wait_for(99)
        group.send(100)
        group.wait_for(199)
        group.workers["one"].terminate()
        assert group.workers["one"].wait(20) == 0
        assert sorted(group.seen) == [number for number in range(group.sent) if number != 60]
    finally:
        group.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bootstrap", ["ours"], indirect=True)
def test_a_repartitioned_topic_is_read_on_after_each_fence_of_its_producer(
    bootstrap: str, tmp_path: Path
) -> None:
    """A refused send ends neither the agent nor the task that reads the source for ``group_by``."""
    group = Group(bootstrap, tmp_path, "regroup")
    try:
        group.start("one", member="dynamic")
        group.pass_on(100)
        for _ in range(4):
            group.send(600)
            group.fence("one")
            group.send_on(1.0)
            group.wait_for(group.sent)
        assert sorted(group.seen) == list(range(group.sent))
        log = (tmp_path / "one" / "log").read_text(errors="replace")
        assert log.count("was fenced") >= 4
        group.workers["one"].terminate()
        assert group.workers["one"].wait(20) == 0
    finally:
        group.stop()


@pytest.mark.timeout(300)
@pytest.mark.slow
@once_each("agent", ours="take", kafka="take_events")
def test_each_number_of_a_batch_is_passed_on_once_through_two_deaths(
    bootstrap: str, tmp_path: Path, agent: str
) -> None:
    """SIGKILL when all is passed on and not committed, and again during the batches."""
    group = Group(bootstrap, tmp_path, agent)
    try:
        group.start("one")
        group.pass_on(200)
        group.workers["one"].kill()
        group.start("one")
        group.pass_on(100)
        group.in_the_middle(2000)
        group.workers["one"].kill()
        group.start("one")
        group.pass_on(100)
        group.read(2.0)
        assert sorted(group.seen) == list(range(group.sent))
    finally:
        group.stop()


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_row_holds_nothing_of_a_transaction_that_was_aborted(
    bootstrap: str, tmp_path: Path
) -> None:
    """SIGKILL before the first commit of a run, twice; the files keep uncommitted changes.

    A row counts each of 20 keys, and each count is passed on. A number counted twice in the row is
    missing from the output.
    """
    group = Group(bootstrap, tmp_path, "tally")
    eager = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{group.app_id}-eager",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        group.start("one")
        group.pass_on(200)
        group.workers["one"].kill()
        group.send(1200)
        eager.subscribe([f"{group.app_id}-passed-on"])
        seen = 0
        for least in (200, 100):
            group.start("one")
            least += seen
            while seen <= least:
                seen += len(eager.consume(500, timeout=0.1))
            group.workers["one"].kill()
        group.start("one")
        group.wait_for(group.sent, 180.0)
        group.read(2.0)
        assert sorted(group.seen) == sorted(list(range(1, group.sent // 20 + 1)) * 20)
    finally:
        eager.close()
        group.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_committed_readers_see_what_agents_sent_that_work_on_afterwards(
    bootstrap: str, tmp_path: Path
) -> None:
    """With four records always in progress, a commit still happens while they flow.

    The records flow for 25 seconds; after 30 seconds the worker commits as stock does.
    """
    group = Group(bootstrap, tmp_path, "slow", used_partitions=1)
    try:
        group.start("one")
        group.pass_on(4)
        first_seen = None
        for tick in range(50):
            group.send(8)
            group.read(0.5)
            if len(group.seen) > 4 and first_seen is None:
                first_seen = tick
        assert first_seen is not None
        group.workers["one"].kill()
        group.start("one")
        group.wait_for(group.sent)
        group.read(2.0)
        assert sorted(group.seen) == list(range(group.sent))
    finally:
        group.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rebalance_of_one_app_aborts_nothing_of_another_in_its_process(
    bootstrap: str, tmp_path: Path
) -> None:
    """The other app's group changes five times while numbers pass through both apps."""
    group, other = (Group(bootstrap, tmp_path / "one"), Group(bootstrap, tmp_path / "other"))
    try:
        group.start("both", beside=other)
        group.pass_on(20)
        other.pass_on(20)
        for round_ in range(5):
            if round_ % 2:
                other.workers["guest"].terminate()
            else:
                other.start("guest")
            for _ in range(12):
                group.send(6)
                other.send(6)
                group.read(0.5)
        group.wait_for(group.sent)
        other.wait_for(other.sent)
        group.read(2.0)
        other.read(2.0)
        assert sorted(group.seen) == list(range(group.sent))
        assert sorted(other.seen) == list(range(other.sent))
    finally:
        other.stop()
        group.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(1200)
@once_each("deploy", ours="removes", kafka="adds")
def test_a_rolling_deploy_that_changes_the_agents_loses_and_repeats_nothing(
    bootstrap: str, tmp_path: Path, deploy: str
) -> None:
    """The agent gains a topic with as many partitions: groups of topics merge, or one splits.

    The transactional ids of partitions change with their groups, while workers keep these
    partitions.
    """
    group = Group(bootstrap, tmp_path)
    both, one_agent = ({"others": on, "member": "dynamic", "work_s": "0"} for on in ("1", ""))
    before, after = (one_agent, both) if deploy == "adds" else (both, one_agent)
    names = ("one", "two", "three")
    try:
        for name in names:
            group.start(name, **before)
        group.send_both_until_ready(*names)
        group.send_both(5.0)
        for name in names:
            group.workers[name].terminate()
            assert group.workers[name].wait(120) == 0
            group.start(name, **after)
            group.send_both_until_ready(name)
            group.send_both(3.0)
        assert all(worker.poll() is None for worker in group.workers.values())
        wanted = set(range(0, group.sent, 2 if deploy == "removes" else 1))
        group.wait_until(lambda: wanted <= set(group.seen))
        group.read(2.0)
        assert len(group.seen) == len(set(group.seen))
        assert wanted <= set(group.seen)
    finally:
        group.stop()
