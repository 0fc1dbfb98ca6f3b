"""How long a stopping worker waits for its hand-over, and when it requests none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.membership.cooperative_member import CooperativeMember
from faust_assigner.app.membership.coordinator import CooperativeCoordinator
from faust_assigner.app.membership.leave import hand_over, install, is_to_retire, stop
from faust_assigner.wire.join import COOPERATIVE, EAGER
from tests.support.waiting import PATIENCE_S


class Coordinator(CooperativeCoordinator):
    """Count the requested rounds."""

    def __init__(self, assignor: Any, instance_id: str | None, chosen: str) -> None:
        self._group_instance_id, self.asked = instance_id, 0
        self.membership = CooperativeMember(None, None, assignor, None, None, chosen=chosen)  # type: ignore[arg-type]

    def request_rejoin(self) -> None:
        """Count the request."""
        self.asked += 1


class Stopped:
    """A stopping worker; ``answer()`` is the group's answer to its round."""

    def __init__(
        self,
        *,
        instance_id: str | None = None,
        chosen: str = COOPERATIVE,
        folder: Path = Path("nowhere"),
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.actives: set[Any] = {"some"}
        self.acts: list[str] = []
        self.assignor = SimpleNamespace(leaves=False, assigned_actives=lambda: self.actives)
        self.coordinator = Coordinator(self.assignor, instance_id, chosen)
        client = SimpleNamespace(_coordinator=self.coordinator)
        thread = SimpleNamespace(should_stop=False, _consumer=client, call_thread=self._call)
        self.consumer = SimpleNamespace(
            left=asyncio.Event(), _thread=thread, leave_group=self._leave
        )
        self.app = SimpleNamespace(
            _consumer=self.consumer,
            crash_reason=None,
            assignor=self.assignor,
            tables=SimpleNamespace(recovery=SimpleNamespace(is_flowing=True)),
            _default_options=("shop", settings or {}),
            conf=SimpleNamespace(
                consumer_group_instance_id=instance_id,
                appdir=folder,
                getenv=lambda name: None,
                env={},
            ),
        )

    async def _call(self, function: Any, *args: Any) -> Any:
        return await function(*args)

    async def _leave(self) -> None:
        static = self.coordinator._group_instance_id is not None
        # aiokafka sends no LeaveGroup for a static member
        self.acts.append("close" if static else "leave")

    async def stop_consumer(self) -> None:
        """Note Faust's stop."""
        self.acts.append("stop")

    def answer(self, *actives: str) -> None:
        """Answer the round: all partitions but ``actives`` are reassigned."""
        self.actives = set(actives)
        self.consumer.left.set()


async def test_it_leaves_once_everything_was_given_away() -> None:
    """Before the answer the worker continues, with its leave flag set."""
    it = Stopped()
    leaving = asyncio.ensure_future(hand_over(it.app, 30.0))
    await asyncio.sleep(0.01)
    assert (it.coordinator.asked, it.assignor.leaves, it.acts) == (1, True, [])
    it.answer()
    assert await leaving
    assert (it.assignor.leaves, it.acts) == (False, ["leave"])


async def test_it_stops_all_the_same_when_nobody_answers(caplog: pytest.LogCaptureFixture) -> None:
    """The wait ends after its limit, with a log line."""
    it = Stopped()
    assert not await hand_over(it.app, 0.05)
    assert (it.assignor.leaves, it.acts) == (False, [])
    assert ["Hand-over timed out after" in record.message for record in caplog.records] == [True]


async def test_it_stops_all_the_same_when_the_thread_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All of the thread's calls may wait for a silent broker; the request is part of the limit."""
    it = Stopped()
    it.consumer._thread.call_thread = lambda *_: asyncio.sleep(3600)
    async with asyncio.timeout(PATIENCE_S):
        assert not await hand_over(it.app, 0.01)
    assert ["Hand-over timed out after" in record.message for record in caplog.records] == [True]


async def test_it_stops_all_the_same_when_asking_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust's own stop follows any error."""
    it = Stopped()
    monkeypatch.setattr(it.coordinator, "request_rejoin", None)
    async with asyncio.timeout(PATIENCE_S):
        await stop(it.app, it.stop_consumer)
    assert it.acts == ["stop"]


async def test_steps_after_a_last_commit_that_failed_are_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else the consumer's thread would remain a member that processes no partitions."""
    it = Stopped()
    it.consumer._thread.should_stop = True

    async def fail() -> None:
        raise KeyError("a transaction that has gone")

    await stop(it.app, fail)
    assert [
        "Could not commit the last processed records" in caplog.text,
        "has gone" in caplog.text,
    ] == [True, True]


async def test_a_round_that_nobody_answered_is_over_before_faust_stops() -> None:
    """Faust mistakes a fetcher stopped during a rebalance for a crash."""
    it = Stopped()
    it.consumer.rounds = SimpleNamespace(end=lambda: it.acts.append("round ends"))
    it.app._default_options = {"": {}}
    it.consumer._thread.should_stop = True
    await stop(it.app, it.stop_consumer)
    assert it.acts == ["round ends", "stop"]


async def test_what_is_not_given_away_goes_as_stock_lets_it_go() -> None:
    """No other member subscribes to the topic, so the worker does not wait."""
    it = Stopped()
    leaving = asyncio.ensure_future(hand_over(it.app, 30.0))
    await asyncio.sleep(0.01)
    it.answer("some")
    assert not await leaving
    assert it.acts == []


@pytest.mark.parametrize("it", [{"instance_id": "one"}, {"chosen": EAGER}], ids=["static", "eager"])
async def test_who_is_expected_back_or_would_stop_everybody_asks_for_no_round(
    it: dict[str, Any],
) -> None:
    """The group keeps a static member's partitions; an eager round stops the whole group."""
    stopped = Stopped(**it)
    assert not await hand_over(stopped.app, 30.0)
    assert (stopped.coordinator.asked, stopped.assignor.leaves) == (0, False)


async def test_no_time_is_no_hand_over() -> None:
    """A limit of 0 disables the hand-over."""
    it = Stopped()
    assert not await hand_over(it.app, 0.0)
    assert it.coordinator.asked == 0


async def answered(it: Stopped) -> None:
    """Stop the worker and answer its round, if it requested a round."""
    stopping = asyncio.ensure_future(stop(it.app, it.stop_consumer))
    await asyncio.sleep(0.01)
    it.answer()
    async with asyncio.timeout(PATIENCE_S):
        await stopping


@pytest.mark.parametrize("named", [False, True], ids=["default", "setting"])
async def test_a_static_member_that_retires_hands_over_and_leaves(
    tmp_path: Path, named: bool
) -> None:
    """The operator's file requests the hand-over; the worker removes the file."""
    file = tmp_path / ("scale-in" if named else "retire")
    file.touch()
    settings = {"faust_assigner_retire_file": str(file)} if named else {}
    it = Stopped(instance_id="one", folder=tmp_path, settings=settings)
    await answered(it)
    assert (it.coordinator.asked, it.acts) == (1, ["leave", "stop"])
    assert not file.exists()


async def test_a_static_member_without_that_file_is_expected_back(tmp_path: Path) -> None:
    """The worker requests no round, and its consumer sends no LeaveGroup."""
    it = Stopped(instance_id="one", folder=tmp_path)
    await answered(it)
    assert (it.coordinator.asked, it.acts) == (0, ["stop"])
    assert it.coordinator._group_instance_id == "one"


async def test_a_folder_of_that_name_retires_nobody(tmp_path: Path) -> None:
    """Only a file counts as the operator's request."""
    it = Stopped(instance_id="one", folder=tmp_path)
    (tmp_path / "retire").mkdir()
    await answered(it)
    assert (it.coordinator.asked, it.acts) == (0, ["stop"])


@pytest.mark.parametrize("trouble", ["eager", "nobody answers"])
async def test_a_static_member_that_retires_leaves_all_the_same(
    tmp_path: Path, trouble: str
) -> None:
    """Without a hand-over its consumer still sends LeaveGroup at its stop."""
    (tmp_path / "retire").touch()
    it = Stopped(
        instance_id="one",
        folder=tmp_path,
        chosen=EAGER if trouble == "eager" else COOPERATIVE,
        settings={"faust_assigner_leave_s": 0.01},
    )
    async with asyncio.timeout(PATIENCE_S):
        await stop(it.app, it.stop_consumer)
    assert it.acts == ["stop"]
    assert it.coordinator._group_instance_id is None


async def test_the_file_says_nothing_to_a_dynamic_member(tmp_path: Path) -> None:
    """A dynamic member leaves in any case and keeps the file."""
    (tmp_path / "retire").touch()
    it = Stopped(folder=tmp_path)
    await answered(it)
    assert (it.acts, (tmp_path / "retire").exists()) == (["leave", "stop"], True)


@pytest.mark.parametrize("reason", ["recovering", "crashed", "thread", "lost", "gave up", "apart"])
async def test_a_worker_that_has_nothing_to_hand_over_asks_for_no_round(reason: str) -> None:
    """The group reassigns its partitions when the worker exits."""
    it = Stopped()
    member = it.coordinator.membership
    if reason == "recovering":
        it.app.tables.recovery.is_flowing = False
    elif reason == "crashed":
        it.app.crash_reason = RuntimeError("a bug")
    elif reason == "thread":
        it.consumer._thread.should_stop = True
    elif reason == "apart":
        it.app._consumer = None
    else:
        member.lost, member.gave_up = reason == "lost", reason == "gave up"
    assert not await hand_over(it.app, 30.0)
    assert (it.coordinator.asked, it.assignor.leaves) == (0, False)


async def test_an_app_hands_over_once_however_often_this_is_installed() -> None:
    """The hand-over precedes Faust's own stop, which runs once."""
    it = Stopped()
    it.app._stop_consumer = it.stop_consumer
    for _ in range(2):
        install(it.app)
    stopping = asyncio.ensure_future(it.app._stop_consumer())
    await asyncio.sleep(0.01)
    it.answer()
    await asyncio.wait_for(stopping, PATIENCE_S)
    assert (it.coordinator.asked, it.acts) == (1, ["leave", "stop"])


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_file_that_cannot_be_removed_retires_its_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, is_there: bool
) -> None:
    """The operator's request counts; the log reports the remaining file."""
    file = tmp_path / "retire"
    if is_there:
        file.touch()

    def unlink(path: Path) -> None:
        raise PermissionError(f"{path} is read-only")

    monkeypatch.setattr(Path, "unlink", unlink)
    it = Stopped(instance_id="one", folder=tmp_path)
    assert is_to_retire(it.app) is is_there
    assert "Could not remove the file" in caplog.text
    assert ("Static member one leaves the group" in caplog.text) is False or is_there


async def test_a_member_that_is_told_of_no_answer_is_no_cooperative_one() -> None:
    """A consumer without the cooperative rounds has no ``left`` event."""
    it = Stopped()
    it.consumer.left = "no event"
    assert not await hand_over(it.app, 30.0)
    assert it.coordinator.asked == 0
    it = Stopped()
    it.consumer._thread._consumer._coordinator = SimpleNamespace(_group_instance_id=None)
    assert not await hand_over(it.app, 30.0)
    assert it.assignor.leaves is False


async def test_a_member_that_could_not_leave_goes_on_with_its_stop() -> None:
    """Its leave flag is cleared, so a later round may assign partitions again."""
    it = Stopped()

    async def fail() -> None:
        raise ConnectionError("silent")

    it.consumer.leave_group = fail
    stopping = asyncio.ensure_future(stop(it.app, it.stop_consumer))
    await asyncio.sleep(0.01)
    assert it.assignor.leaves
    it.answer()
    await asyncio.wait_for(stopping, PATIENCE_S)
    assert (it.assignor.leaves, it.acts) == (False, ["stop"])
