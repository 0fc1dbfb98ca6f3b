"""The parts of a node from its settings: limits, users, rights, timers, chores and memory."""

from __future__ import annotations

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from faust_assigner.broker import housekeeping, limits
from faust_assigner.broker.connection_settings import STANDARD_AUTHORIZER
from faust_assigner.broker.node import TRANSACTION, Node, timer_ms, wall_ms
from faust_assigner.broker.security.acls import ALLOW, DESCRIBE, GROUP, LITERAL, READ, TOPIC, Acl
from faust_assigner.broker.security.credentials import MECHANISMS
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.entries import KINDS
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.coordinator.classic import GroupLimits
from tests.support.waiting import until
from tests.unit.broker.test_topics import catalogue


def node(folder: Path | None = None, **settings: Any) -> Node:
    """Return a broker without its sockets."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Node(Settings.parse(given), folder, clock=lambda: 1_000)


def test_the_limits_of_classic_groups_are_the_settings_each_in_its_place() -> None:
    """The values are four different settings and the broker's limit of pending members."""
    found = node(
        group_min_session_timeout_ms=11,
        group_max_session_timeout_ms=22,
        group_initial_rebalance_delay_ms=33,
        group_max_size=44,
        message_max_bytes=55,
        transaction_max_timeout_ms=66,
    )
    assert found.groups._limits == GroupLimits(11, 22, 33, 44)
    assert found.groups._saver.max_record_bytes == 55
    assert found.transactions._limits.max_timeout_ms == 66
    found.close()


def test_groups_and_transactions_have_a_clock_and_a_timer() -> None:
    """The timers are monotonic; a step of the wall clock must not move them."""
    found = Node(Settings.parse({}))
    for part in (found.groups, found.transactions):
        assert (part._clock, part._timer) == (wall_ms, timer_ms)
    assert found.group_timers._clock is timer_ms
    found.close()


def test_all_users_of_the_file_can_log_in_and_keep_their_passwords(tmp_path: Path) -> None:
    """A second start changes no credential of a user with an unchanged password."""
    users = tmp_path / "users"
    users.write_text("alice=one\nbob=two\n")
    before = None
    for _ in range(2):
        found = node(tmp_path / "data", sasl_users_file=str(users))
        known = {name: found.credentials.get(*name) for name in found.credentials}
        assert set(known) == {(user, m) for user in ("alice", "bob") for m in MECHANISMS}
        assert found.credentials.is_password("bob", "two")
        assert before in (None, known)
        before = known
        found.close()


@pytest.mark.parametrize("is_open", [False, True])
def test_an_authorizer_has_the_super_users_and_the_default_of_the_settings(is_open: bool) -> None:
    """A resource without a rule is open or closed; without the setting no authorizer exists."""
    found = node(
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:root;User:CN=a,O=b",
        allow_everyone_if_no_acl_found=is_open,
    )
    assert found.authorizer is not None
    may = [
        found.authorizer.may(user, "h", READ, TOPIC, "t")
        for user in ("User:root", "User:CN=a,O=b", "User:x")
    ]
    assert may == [True, True, is_open]
    found.close()
    plain = node()
    assert plain.authorizer is None
    plain.close()


def test_an_alarm_of_a_transaction_is_not_one_of_the_group_of_its_name() -> None:
    """Both have the name "x"."""
    found = node()
    rung: list[tuple[str, str]] = []
    found.groups.tick = lambda name: rung.append(("group", name))  # type: ignore[method-assign]
    found.transactions.tick = lambda name: rung.append(("tx", name))  # type: ignore[method-assign]
    found._fire((TRANSACTION, "x"))
    found._fire("x")
    assert rung == [("tx", "x"), ("group", "x")]
    found.close()


def test_groups_are_told_soon_of_a_changed_topic_and_of_changed_rights() -> None:
    """Only rules of topics count, once for several changes; before the start no group is notified."""
    found = node(authorizer_class_name=STANDARD_AUTHORIZER)
    assert found.authorizer is not None
    acls = found.authorizer.acls
    rule = Acl(TOPIC, "t", LITERAL, "User:a", "*", DESCRIBE, ALLOW)
    acls.add([rule])
    found.catalogue.create("t", 1, {})
    assert found._topic_notifier.update is None
    tasks: list[Any] = []

    class Loop:
        """A loop that only notes its tasks."""

        def create_task(self, work: Any) -> Any:
            work.close()
            tasks.append(work)
            return tasks[-1]

    notifier = found._topic_notifier
    notifier.start(cast(Any, Loop()), found.line, lambda: ())
    changes = (
        (lambda: acls.add([rule._replace(resource_type=GROUP)]), 0),
        (lambda: acls.add([rule._replace(name="u")]), 1),
        (lambda: acls.remove([rule]), 0),
        (lambda: found.catalogue.create("v", 1, {}), 1),
        (lambda: found.catalogue.create("w", 1, {}), 0),
    )
    for number, (change, told) in enumerate(changes):
        if told:
            notifier.update = None
        before = len(tasks)
        change()
        assert len(tasks) - before == told, number
    notifier.update = None
    found.close()


async def test_each_chore_has_the_interval_of_its_own_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chores are compaction and two retentions; a stop cancels all of them."""
    found = node(
        log_cleaner_backoff_ms=11_000,
        log_retention_check_interval_ms=22_000,
        offsets_retention_check_interval_ms=33_000,
    )
    chores: list[tuple[int, object]] = []

    async def repeat(line: Any, interval_ms: int, chore: Any) -> None:
        chores.append((interval_ms, chore()))
        await asyncio.sleep(3_600)

    async def run(backoff_ms: int) -> None:
        chores.append((backoff_ms, "compaction"))
        await asyncio.sleep(3_600)

    monkeypatch.setattr(housekeeping, "repeat", repeat)
    for name in ("retain", "expire"):
        monkeypatch.setattr(housekeeping, name, lambda node, name=name: name)
    found.compaction.run = run  # type: ignore[method-assign]
    found.start(asyncio.get_running_loop())
    await asyncio.sleep(0)
    assert chores == [(11_000, "compaction"), (22_000, "retain"), (33_000, "expire")]
    tasks = list(found._chores)
    found.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.cancelled() for task in tasks] == [True] * 3


@pytest.mark.parametrize(
    ("unsent", "room"),
    [
        (0, limits.MAX_UNSENT_BYTES // 4),
        (limits.MAX_UNSENT_BYTES // 2, limits.MAX_UNSENT_BYTES // 8),
        (limits.MAX_UNSENT_BYTES - 4 * limits.SMALLEST_ANSWER_BYTES, limits.SMALLEST_ANSWER_BYTES),
        (limits.MAX_UNSENT_BYTES, limits.SMALLEST_ANSWER_BYTES),
        (2 * limits.MAX_UNSENT_BYTES, limits.SMALLEST_ANSWER_BYTES),
    ],
)
def test_an_answer_has_a_quarter_of_the_bytes_that_are_left(unsent: int, room: int) -> None:
    """The minimum is the smallest answer; otherwise a slow reader would stop all readers."""
    found = node()
    found.unsent_bytes = unsent
    assert found.room_for_answer() == room
    found.close()


def test_the_ids_of_producers_go_on_behind_the_block_of_the_last_life(tmp_path: Path) -> None:
    """The former run used a single id of its block, or all ids."""
    given = []
    for count in (1, 1_000, 3, 1_001):
        found = node(tmp_path)
        ids = [found.new_producer_id() for _ in range(count)]
        assert ids == list(range(ids[0], ids[0] + count))
        given.append((ids[0], ids[-1]))
        found.close()
    assert given == [(0, 0), (1_000, 1_999), (2_000, 2_002), (3_000, 4_000)]


def test_an_old_deletion_is_completed_by_a_start_and_forgotten() -> None:
    """An earlier release began the deletion; keys of a second topic stay."""
    store = MemoryStore()
    gone, stays = uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes
    store.write([(kind + one + b"key", b"v") for kind in KINDS for one in (gone, stays)])
    store.write([(b"d" + gone, b"")])
    catalogue(store)
    assert sorted(key for key, _ in store.scan(b"")) == sorted(
        kind + stays + b"key" for kind in KINDS
    )


def test_a_client_that_has_gone_away_costs_the_flush_of_no_other_one(tmp_path: Path) -> None:
    """The wait for the disk runs in a thread, and its result is noted on the loop."""

    async def story() -> list[Any]:
        found = node(tmp_path)
        store: Any = found.store
        steps: list[Any] = []
        loop_thread = asyncio.get_running_loop()

        def flush() -> int:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                steps.append("in a thread")
            return 17

        store.flush = flush
        store.note_flushed = lambda writes: steps.append(
            (writes, asyncio.get_running_loop() is loop_thread)
        )
        first, second = (asyncio.ensure_future(found.flushing.flushed()) for _ in "ab")
        await asyncio.sleep(0)
        first.cancel()
        await second
        found.close()
        return [first.cancelled(), *steps]

    assert asyncio.run(story()) == [True, "in a thread", (17, True)]


async def test_a_node_works_in_threads_from_its_start_to_its_close(tmp_path: Path) -> None:
    """Before the start and after the close it neither frees disk space nor tells groups of topics."""
    found = node(tmp_path / "data", offsets_topic_num_partitions=1)
    loop, reclaimed = asyncio.get_running_loop(), []
    store = found.store
    store.is_low = True  # type: ignore[attr-defined]
    store.reclaim = lambda: reclaimed.append("once")  # type: ignore[attr-defined]
    before, threads = set(asyncio.all_tasks()), {one.name for one in threading.enumerate()}
    found.space.freed()
    assert (found.space.reclaiming, reclaimed) == (None, [])
    found.start(loop)
    chores = asyncio.all_tasks() - before
    assert len(chores) == 3
    found.space.freed()
    assert found.space.reclaiming is not None
    await found.space.reclaiming
    assert reclaimed == ["once"]
    assert await asyncio.gather(*(found.aside(lambda n=n: n) for n in range(9))) == list(range(9))  # type: ignore[misc]
    assert await found.crunch(lambda: "crunched") == "crunched"
    found.catalogue.create("t", 1, {})
    update = found._topic_notifier.update
    assert update is not None
    found.close()
    await asyncio.wait({update, *chores})
    assert all(task.cancelled() for task in (update, *chores))

    def ours() -> list[str]:
        named = {thread.name for thread in threading.enumerate()} - threads
        return [name for name in named if name.startswith("broker-")]

    await until(lambda: not ours())  # close() does not wait for the thread of targets
    found.space.freed()
    assert found.space.reclaiming is None
    for pool in (found.aside, found.crunch):
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool(int)


def test_records_have_the_wall_clock_and_timers_a_clock_that_is_never_set() -> None:
    """A test's clock replaces both."""
    usual, fixed = Node(Settings()), node()
    assert (usual.clock, usual.timer) == (wall_ms, timer_ms)
    assert (fixed.clock(), fixed.timer()) == (1_000, 1_000)
    usual.close()
    fixed.close()
