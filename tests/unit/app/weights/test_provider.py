"""The assignor's weights: in memory and in time, without waits; and the score in shadow mode."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from yarl import URL

from faust_assigner import Member, plan
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.weights import follower as follower_module
from faust_assigner.app.weights import provider as provider_module
from faust_assigner.app.weights.provider import (
    Mode,
    WeightSettings,
    WeightsProvider,
    configured,
    connection_of,
    install,
)
from faust_assigner.app.weights.sources import FileSource, Found, NoWeights, TopicSource
from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.weights.publish import write_file
from faust_assigner.weights.document import WeightRow, encode
from faust_assigner.weights.limits import Limits
from faust_assigner.weights.trial import TrialScore
from tests.support.waiting import PATIENCE_S, wait_until

NOW = dt.datetime.now(dt.UTC)


def document(version: int, *weights: float, group_id: str = "shop", at: dt.datetime = NOW) -> bytes:
    """Return a document with weights of orders/0, orders/1, ..."""
    rows = [
        WeightRow(
            group_id, "2026-11-21", version, at, "orders", number, weight, 1.0, 1.0, 1.0, 1, 1.0, 3
        )
        for number, weight in enumerate(weights)
    ]
    return encode(rows, version=version, computed_at=at)


@pytest.fixture
def provider_of() -> Iterator[Callable[..., WeightsProvider]]:
    """A factory of providers that poll every 10 ms and are closed at the end."""
    made = []

    def make(path: Path, mode: Mode = Mode.ON, **more: Any) -> WeightsProvider:
        made.append(
            WeightsProvider(
                "shop", WeightSettings(FileSource(str(path)), mode, poll_s=0.01), **more
            )
        )
        made[-1].start()
        return made[-1]

    yield make
    for provider in made:
        provider.close()


def test_a_new_file_is_in_force_at_the_next_decision(
    tmp_path: Path, provider_of: Callable[..., WeightsProvider]
) -> None:
    """The file is replaced atomically; its version shows the change."""
    path = tmp_path / "weights.json"
    write_file(path, document(1, 0.5, 1.0, 2.0))
    provider = provider_of(path)
    assert provider.wait(PATIENCE_S)
    first = provider()
    assert first is not None
    assert (first.version, first["orders", 2]) == (1, 2.0)

    write_file(path, document(2, 1.0, 1.0, 3.0))
    wait_until(lambda: provider.current.version == 2)
    second = provider()
    assert second is not None
    assert second["orders", 2] == 3.0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, "missing"),
        (b"{", "invalid"),
        (document(1, 1.0, group_id="bank"), "unnamed"),
        (document(1, 1.0, at=NOW - dt.timedelta(days=30)), "stale"),
    ],
)
def test_without_usable_weights_everything_weighs_one_and_the_reason_is_said_once(
    tmp_path: Path,
    provider_of: Callable[..., WeightsProvider],
    caplog: pytest.LogCaptureFixture,
    data: bytes | None,
    code: str,
) -> None:
    """The provider polls many times and logs once."""
    path = tmp_path / "weights.json"
    if data is not None:
        path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        provider = provider_of(path)
        assert provider.wait(PATIENCE_S)
        time.sleep(0.1)
    assert (provider(), provider.current.code) == (None, code)
    said = [record for record in caplog.records if "every partition weighs 1.0" in record.message]
    assert len(said) == 1


def test_weights_grow_stale_while_nobody_writes(
    tmp_path: Path, provider_of: Callable[..., WeightsProvider]
) -> None:
    """Only the clock changed, the file did not."""
    clock = [NOW]
    path = tmp_path / "weights.json"
    path.write_bytes(document(1, 1.0, 2.0))
    provider = provider_of(path, clock=lambda: clock[0])
    wait_until(lambda: provider() is not None)
    clock[0] += dt.timedelta(days=8)
    wait_until(lambda: provider.current.code == "stale")
    assert provider() is None


def test_a_broken_file_takes_the_weights_out_of_force_and_a_good_one_brings_them_back(
    tmp_path: Path, provider_of: Callable[..., WeightsProvider]
) -> None:
    """After an invalid document all weights are 1.0; the last good version does not count."""
    path = tmp_path / "weights.json"
    path.write_bytes(document(1, 1.0, 2.0))
    provider = provider_of(path)
    wait_until(lambda: provider() is not None)
    path.write_bytes(b"{ broken")
    wait_until(lambda: provider.current.code == "invalid")
    os.unlink(path)
    wait_until(lambda: provider.current.code == "missing")
    path.write_bytes(document(3, 1.0, 2.0))
    wait_until(lambda: provider.current.version == 3)


class _Stuck:
    """A source that never answers."""

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        await asyncio.sleep(10 * PATIENCE_S)
        yield None


def test_a_decision_never_waits_for_the_source() -> None:
    """A hanging source does not delay the rebalance: all weights are 1.0 at once."""
    provider = WeightsProvider("shop", WeightSettings(_Stuck()))
    began = time.monotonic()
    assert all(provider() is None for _ in range(1_000))
    assert time.monotonic() - began < PATIENCE_S
    assert provider.current.code == "loading"
    provider.close()


class _Failing:
    """A source that raises an unexpected error twice and then recovers."""

    def __init__(self, failure: BaseException) -> None:
        self.failure, self.failures = failure, 0

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        self.failures += 1
        if self.failures < 3:
            raise self.failure
        yield document(4, 1.0, 2.0)
        await asyncio.sleep(30.0)


@pytest.mark.parametrize("failure", [RuntimeError("broker is away"), asyncio.CancelledError()])
def test_the_thread_outlives_a_source_that_fails(failure: BaseException) -> None:
    """The failure counts as missing weights; aiokafka's cancelled tasks count as failures."""
    provider = WeightsProvider("shop", WeightSettings(_Failing(failure), poll_s=0.01))
    provider.start()
    wait_until(lambda: provider.current.version == 4)
    provider.close()


class _Away:
    """A source that fails fifty times; ``asked`` has the time of each attempt."""

    def __init__(self) -> None:
        self.asked = list[float]()

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        self.asked.append(time.monotonic())
        if len(self.asked) <= 50:
            raise RuntimeError("broker is away")
        await asyncio.sleep(30.0)
        yield None


def test_a_source_that_fails_is_asked_again_after_a_pause() -> None:
    """Else its thread would occupy a processor that the streams need."""
    source = _Away()
    provider = WeightsProvider("shop", WeightSettings(source, poll_s=0.05))
    provider.start()
    wait_until(lambda: len(source.asked) >= 4)
    provider.close()
    pauses = [later - at for at, later in itertools.pairwise(source.asked)]
    assert min(pauses) >= 0.04


def test_the_thread_ends_with_its_provider(tmp_path: Path) -> None:
    """A deleted app leaves no thread behind."""
    provider = WeightsProvider(
        "shop", WeightSettings(FileSource(str(tmp_path / "none")), poll_s=0.01)
    )
    provider.start()
    assert provider.wait(PATIENCE_S)
    assert provider._follower is not None
    thread = provider._follower._thread
    del provider
    gc.collect()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


class _Hostile:
    """A source whose close fails as in a stopping aiokafka consumer."""

    def __init__(self) -> None:
        self.closed = 0

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        try:
            while True:
                yield document(4, 1.0, 2.0)
                await asyncio.sleep(poll_s)
        finally:
            self.closed += 1
            raise asyncio.CancelledError("of a task of its own")


def test_closing_ends_the_thread_whatever_the_source_does(caplog: pytest.LogCaptureFixture) -> None:
    """The source is not restarted, and its thread raises no unhandled error."""
    raised: list[object] = []
    before, threading.excepthook = threading.excepthook, raised.append
    try:
        source = _Hostile()
        provider = WeightsProvider("shop", WeightSettings(source, poll_s=0.01))
        provider.start()
        wait_until(lambda: provider.current.version == 4)
        provider.close()
        assert provider._follower is not None
        assert not provider._follower.runs
        assert (source.closed, raised) == (1, [])
        provider.start()
        assert not provider._follower.runs
    finally:
        threading.excepthook = before


def connections_of_this_process(port: int) -> int:
    """Return the number of this process's sockets connected to ``port``, in any state."""
    ours = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            ours.add(os.readlink(path))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(row[2].rpartition(":")[2], 16) == port and f"socket:[{row[9]}]" in ours for row in rows
    )


@pytest.mark.parametrize("answers", [True, False], ids=["a broker", "a listener that says nothing"])
def test_closing_leaves_no_socket_and_no_attempt(embedded_broker: Any, answers: bool) -> None:
    """A consumer that reconnects after its worker's end would disturb the port's next user."""
    with contextlib.ExitStack() as stack:
        if answers:
            port = int(embedded_broker.bootstrap.rpartition(":")[2])
        else:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = listener.getsockname()[1]
        source = TopicSource("weights", "shop", {"bootstrap_servers": f"127.0.0.1:{port}"})
        provider = WeightsProvider("shop", WeightSettings(source, poll_s=0.05))
        provider.start()
        wait_until(lambda: connections_of_this_process(port) > 0)
        provider.close()
        # close() gives up after five seconds, within which a busy machine may not end the thread
        follower = provider._follower
        assert follower is not None
        wait_until(lambda: not follower.runs, "the end of the thread")
        wait_until(lambda: connections_of_this_process(port) == 0)
        time.sleep(0.2)
        assert connections_of_this_process(port) == 0


async def test_the_thread_ends_with_its_app(tmp_path: Path) -> None:
    """The provider is a service of the app; the app's stop closes it, started or not."""
    app = app_of(faust_assigner_weights=str(tmp_path / "w.json"))
    provider = install(app)
    assert provider is not None
    assert provider.wait(PATIENCE_S)
    await app._stop_children()
    follower = provider._follower
    assert follower is not None
    wait_until(lambda: not follower.runs, "the end of the thread")


def decision() -> tuple[DecisionInputs, Any]:
    """Return a decision: two members, four partitions, the two heavy partitions on member a."""
    members = (
        Member("a", ["orders"], actives={"orders": [0, 1]}, generation=1),
        Member("b", ["orders"], actives={"orders": [2, 3]}, generation=1),
    )
    inputs = DecisionInputs("shop", 2, members, {"orders": 4}, 0, frozenset())
    return inputs, plan(members, {"orders": 4})


def test_in_shadow_nothing_is_used_and_every_decision_is_scored(
    tmp_path: Path, provider_of: Callable[..., WeightsProvider]
) -> None:
    """The assignor gets None; the score has the load of the heaviest member."""
    path = tmp_path / "weights.json"
    path.write_bytes(document(1, 4.0, 4.0, 1.0, 1.0))
    provider = provider_of(path, Mode.SHADOW)
    wait_until(lambda: provider.current.in_force)
    assert provider() is None
    provider.observe(*decision())
    found = provider.last_trial
    assert found is not None
    assert (found.members, found.tasks, found.counted_moves) == (2, 4, 0)
    # medians 2.5: 1.6, 1.6, 0.4, 0.4
    assert found.before == found.counted == pytest.approx(3.2 / 2.0)


def test_a_decision_is_scored_with_all_that_it_was_planned_from(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without standbys or former ids the score would count different moves."""
    caplog.set_level(logging.INFO)
    scored: list[Any] = []
    told = TrialScore(
        members=2, tasks=4, before=1.5, counted=1.6, weighted=1.1, counted_moves=3, weighted_moves=5
    )

    def score(*of: Any, **how: Any) -> TrialScore:
        scored.append((of, how))
        return told

    monkeypatch.setattr(provider_module, "score", score)
    provider = WeightsProvider("shop", WeightSettings(_Stuck(), Mode.SHADOW))
    provider.take(document(6, 1.0, 2.0))
    caplog.clear()
    members = (Member("a", ["orders"]),)
    inputs = DecisionInputs(
        "shop", 9, members, {"orders": 2}, 3, frozenset({"log"}), previous_ids={"orders": 1}
    )
    provider.observe(replace(inputs, weightless=frozenset({"idle"})), decision()[1])
    assert scored == [
        (
            (members, {"orders": 2}, provider.current.weights),
            {
                "replicas": 3,
                "changelogs": {"log"},
                "weightless": {"idle"},
                "previous_ids": {"orders": 1},
            },
        )
    ]
    assert provider.last_trial is told
    assert caplog.messages == [
        "Weights version 6 in shadow, generation 9: the heaviest member would carry "
        f"{told.weighted:.2f} of the mean instead of {told.counted:.2f}, with "
        f"{told.weighted_moves} tasks moved instead of {told.counted_moves}"
    ]


@pytest.mark.parametrize(("mode", "age_s"), [(Mode.SHADOW, 3600.0), (Mode.ON, 0.0)])
def test_only_weights_in_force_are_scored_and_only_in_shadow(
    mode: Mode, age_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """A score of weights too old or already in use would mislead the reader."""
    caplog.set_level(logging.INFO)
    wanted = WeightSettings(_Stuck(), mode, max_age_s=60.0)
    provider = WeightsProvider("shop", wanted, clock=lambda: NOW + dt.timedelta(seconds=age_s))
    provider.take(document(1, 4.0, 4.0, 1.0, 1.0))
    assert provider.current.in_force == (age_s == 0.0)
    provider.observe(*decision())
    assert provider.last_trial is None
    assert "in shadow" not in caplog.text


def app_of(**settings: Any) -> Any:
    """An app that never starts."""
    return faust.App("shop", PartitionAssignor="faust_assigner:PartitionAssignor", **settings)


def test_the_environment_or_the_app_says_where_the_weights_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is a path, a topic of the app's brokers, or a topic elsewhere."""
    assert configured(app_of()) is None
    wanted = configured(
        app_of(faust_assigner_weights=str(tmp_path), faust_assigner_weights_mode="shadow")
    )
    assert wanted is not None
    assert (wanted.source, wanted.mode) == (FileSource(str(tmp_path)), Mode.SHADOW)
    limits = {"faust_assigner_weights_max_age_s": "60", "faust_assigner_weights_clamp": "0.5:2"}
    wanted = configured(app_of(faust_assigner_weights=str(tmp_path), **limits))
    assert wanted is not None
    assert (wanted.mode, wanted.max_age_s, wanted.limits) == (Mode.ON, 60.0, Limits(0.5, 2.0))
    monkeypatch.setenv("FAUST_ASSIGNER_WEIGHTS_MODE", "off")  # no broker listens there
    monkeypatch.setenv("FAUST_ASSIGNER_WEIGHTS", "topic:weights")
    brokers = "kafka://127.0.0.1:1;kafka://127.0.0.1:2"
    wanted = configured(app_of(broker=brokers))
    assert wanted is not None
    assert isinstance(wanted.source, TopicSource)
    assert wanted.source.connection["bootstrap_servers"] == ["127.0.0.1:1", "127.0.0.1:2"]
    monkeypatch.setenv("FAUST_ASSIGNER_WEIGHTS", "kafka://127.0.0.1:3/weights")
    wanted = configured(app_of())
    assert wanted is not None
    assert wanted.source.connection["bootstrap_servers"] == "127.0.0.1:3"


@pytest.mark.parametrize(
    "settings",
    [
        {"faust_assigner_weights_mode": "maybe"},
        {"faust_assigner_weights_max_age_s": "soon"},
        {"faust_assigner_weights": "kafka://nowhere"},
    ],
)
def test_an_impossible_setting_is_an_error_at_start(settings: dict[str, str]) -> None:
    """The weights do not silently become 1.0."""
    with pytest.raises(ConfigError, match="FAUST_ASSIGNER_WEIGHTS"):
        configured(app_of(**{"faust_assigner_weights": "w.json", **settings}))


def test_installing_gives_the_assignor_its_weights(tmp_path: Path) -> None:
    """The fixup installs the provider at the app's configuration, except in mode off."""
    app = app_of(faust_assigner_weights=str(tmp_path / "w.json"))
    provider = install(app)
    assert provider is not None
    assert app.assignor.weights_provider is provider
    provider.close()
    assert (
        install(app_of(faust_assigner_weights="w.json", faust_assigner_weights_mode="off")) is None
    )


def test_weights_of_an_impossible_setting_stay_off(caplog: pytest.LogCaptureFixture) -> None:
    """The app starts, and the log names the ignored setting."""
    app = app_of(faust_assigner_weights="w.json", faust_assigner_weights_mode="maybe")
    assert install(app) is None
    assert "FAUST_ASSIGNER_WEIGHTS_MODE must be one of on, shadow, off, got 'maybe'" in caplog.text


def test_the_limits_that_were_set_are_the_documents() -> None:
    """A steep load needs wide limits; the default cuts a weight to 4 times the median."""
    for limits, heaviest in ((Limits(), 4.0), (Limits(0.01, 100.0), 50.0)):
        provider = WeightsProvider("shop", WeightSettings(FileSource("nowhere"), limits=limits))
        provider.take(document(1, 1.0, 1.0, 50.0))
        assert provider.current.weights["orders", 2] == heaviest


def test_a_document_that_cannot_be_read_ends_the_one_before_for_good() -> None:
    """Polls without news do not bring the document back into force."""
    provider = WeightsProvider("shop", WeightSettings(FileSource("nowhere")))
    provider.take(document(1, 1.0, 2.0))
    assert provider.current.in_force
    provider.take(b"{")
    provider.take(None)
    assert (provider.current.in_force, provider.current.code) == (False, "invalid")


def test_each_version_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The provider polls every two seconds for as long as the worker runs."""
    provider = WeightsProvider("shop", WeightSettings(FileSource("nowhere")))
    with caplog.at_level(logging.INFO):
        provider.take(document(1, 1.0, 2.0))
        for _ in range(3):
            provider.take(None)
        provider.take(document(2, 1.0, 2.0))
        provider.take(None)
    told = [message.partition(" from")[0] for message in caplog.messages]
    assert told == ["Partition weights version 1", "Partition weights version 2"]


class Unhurried:
    """A source whose connection closes slowly, and its socket a moment later."""

    def __init__(self) -> None:
        self.begun, self.closed = threading.Event(), threading.Event()

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        """Find no document until the cancellation."""
        try:
            self.begun.set()
            await asyncio.Event().wait()
            yield None
        finally:
            await asyncio.sleep(0.05)
            asyncio.get_running_loop().call_later(0.002, self.closed.set)


def test_a_source_has_a_moment_to_close_its_socket_after_it_was_told_to() -> None:
    """The loop continues after the source's end: a transport closes in a later turn."""
    source = Unhurried()
    provider = WeightsProvider("shop", WeightSettings(source, Mode.ON, poll_s=0.01))  # type: ignore[arg-type]
    provider.start()
    assert source.begun.wait(PATIENCE_S)
    provider.close()
    follower = provider._follower
    assert follower is not None
    wait_until(lambda: not follower.runs, "the end of the thread")
    assert source.closed.is_set()


def test_the_thread_that_follows_weights_keeps_no_process_alive(
    provider_of: Callable[..., WeightsProvider], tmp_path: Path
) -> None:
    """Python waits for non-daemon threads before any code could close this thread."""
    provider = provider_of(tmp_path / "weights")
    provider.start()
    assert provider._follower is not None
    assert provider._follower._thread.daemon


def test_a_source_that_is_cancelled_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the thread would wait for the next poll or for CLOSE_S."""
    monkeypatch.setattr(follower_module, "CLOSE_S", 10 * PATIENCE_S)
    source = Unhurried()
    provider = WeightsProvider("shop", WeightSettings(source, Mode.ON, poll_s=10 * PATIENCE_S))  # type: ignore[arg-type]
    provider.start()
    assert source.begun.wait(PATIENCE_S)
    assert provider._follower is not None
    assert provider._follower.close(PATIENCE_S)


def test_a_thread_that_has_ended_is_started_again_at_the_next_decision(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The restart is logged once; a closed provider has no thread."""
    provider = WeightsProvider("shop", WeightSettings(_Stuck()))
    provider.start()
    first = provider._follower
    assert first is not None
    provider.start()
    assert provider._follower is first
    assert first.close(PATIENCE_S)
    assert provider() is None
    second = provider._follower
    assert second is not None
    assert second is not first
    assert second.runs
    assert caplog.text.count("has ended; it is started again") == 1
    provider.close()
    assert not second.runs
    provider()
    assert provider._follower is second


def test_a_provider_in_mode_off_reads_nothing() -> None:
    """The provider has neither weights nor a thread."""
    provider = WeightsProvider("shop", WeightSettings(_Stuck(), Mode.OFF))
    assert provider() is None
    assert provider._follower is None
    provider.close()


def test_each_kind_of_problem_is_logged_when_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    """A second reason of the same kind adds no line; a good version in between ends the problem."""
    source = FileSource("here")
    provider = WeightsProvider("shop", WeightSettings(source), clock=lambda: NOW)
    with caplog.at_level(logging.INFO):
        provider.take(NoWeights("gone"))
        provider.take(NoWeights("gone for another reason"))
        assert provider.current.reason == "gone for another reason"
        provider.take(b"{")
        provider.take(document(3, 1.0, 2.0))
        provider.take(NoWeights("gone again"))
        provider.take(document(3, 1.0, 2.0))
    said = [message.partition(" from here")[0] for message in caplog.messages]
    version, nothing = "Partition weights version 3", "Partition weights"
    assert said == [nothing, nothing, version, nothing, version]
    assert caplog.messages[2] == ("Partition weights version 3 from here, 2 partitions, mode on")
    assert caplog.messages[0].endswith("every partition weighs 1.0: gone")


def test_weights_are_those_of_the_providers_group_by_its_clock_and_its_age() -> None:
    """The weights become stale at the exact second of their maximum age."""
    wanted = WeightSettings(FileSource("here"), max_age_s=60.0)
    now = [NOW]
    provider = WeightsProvider("bank", wanted, clock=lambda: now[0])
    provider.take(document(2, 1.0, 2.0, group_id="bank"))
    assert provider.current.in_force
    now[0] = NOW + dt.timedelta(seconds=59)
    provider.take(None)
    assert provider.current.in_force
    now[0] = NOW + dt.timedelta(seconds=60)
    provider.take(None)
    assert (provider.current.in_force, provider.current.code) == (False, "stale")
    provider.take(document(3, 1.0, group_id="shop", at=now[0]))
    assert provider.current.code == "unnamed"


def test_an_installed_provider_observes_decisions_and_is_watched(tmp_path: Path) -> None:
    """The watchdog restarts its thread; the app waits for the thread's end."""
    app = app_of(faust_assigner_weights=str(tmp_path / "w.json"))
    provider = install(app)
    assert provider is not None
    assert app.assignor.decisions._observers[-1] == provider.observe
    assert vars(app)["_faust_assigner_must_run"]["weights"] == provider.start
    assert provider.group_id == "shop"
    for observe in app.assignor.decisions._observers:
        observe.__self__.close()
    assert install(app_of()) is None


def test_a_topic_is_read_with_the_apps_own_connection() -> None:
    """The setting may name different servers; the app's credentials are always used."""
    credentials = faust.SASLCredentials(username="u", password="p")
    for place, servers, topic in (
        ("topic:weights", ["127.0.0.1:1"], "weights"),
        ("kafka://127.0.0.1:3,127.0.0.1:4/daily", "127.0.0.1:3,127.0.0.1:4", "daily"),
    ):
        app = app_of(
            broker="kafka://127.0.0.1:1",
            broker_credentials=credentials,
            faust_assigner_weights=place,
            faust_assigner_weights_mode="off",
        )
        wanted = configured(app)
        assert wanted is not None
        source: Any = wanted.source
        assert (source.topic, source.group_id) == (topic, "shop")
        assert source.connection["bootstrap_servers"] == servers
        assert source.connection["sasl_plain_username"] == "u"
        assert source.connection["sasl_plain_password"] == "p"
        assert str(source) == f"topic {topic}"
        assert "sasl" not in repr(source)


def test_a_server_without_a_port_has_the_drivers() -> None:
    """Each server of the app is used; an app without credentials has a plain connection."""
    app = SimpleNamespace(
        transport=SimpleNamespace(url=[URL("kafka://a"), URL("kafka://b:2")], default_port=77),
        conf=SimpleNamespace(broker_credentials=None, ssl_context=None),
    )
    found = connection_of(app)
    assert found["bootstrap_servers"] == ["a:77", "b:2"]
    assert found["security_protocol"] == "PLAINTEXT"


@pytest.mark.parametrize("place", ["kafka:///topic", "kafka://host:1/", "kafka://topic"])
def test_a_place_without_a_server_or_a_topic_is_refused(place: str) -> None:
    """The error shows the setting's value."""
    with pytest.raises(ConfigError, match=place):
        configured(app_of(faust_assigner_weights=place))
