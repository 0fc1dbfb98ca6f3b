"""Weights for the assignor: read on a separate thread and kept in memory, so that no round waits.

The settings are ``WEIGHTS*`` of :mod:`faust_assigner.settings.table`. A rebalance uses the weights
in memory at this moment. If the weights are not loaded yet, missing, stale or invalid, every
partition weighs 1.0, and the reason is logged once.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from os.path import expanduser
from typing import TYPE_CHECKING, Any, TypeAlias

from mode import Service, get_logger

from faust_assigner.app.membership.watchdog import must_run
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.settings import read
from faust_assigner.app.weights.follower import CLOSE_S, Follower
from faust_assigner.app.weights.sources import FileSource, Found, Source, TopicSource
from faust_assigner.errors import ConfigError
from faust_assigner.planner import Plan
from faust_assigner.settings import table
from faust_assigner.weights.document import (
    MAX_AGE_S,
    WeightsDocument,
    WeightSet,
    WeightsRefused,
    decode,
    neutral,
)
from faust_assigner.weights.limits import DEFAULT_LIMITS, Limits
from faust_assigner.weights.trial import TrialScore, score

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)

#: Seconds between two checks of a file, and the longest wait for a topic's records between two
#: checks.
POLL_S = 2.0

Clock: TypeAlias = Callable[[], dt.datetime]


class Mode(Enum):
    """The use of the weights: used, only scored on each decision (shadow), or ignored."""

    ON = "on"
    SHADOW = "shadow"
    OFF = "off"


class PartitionWeights(dict[tuple[str, int], float]):
    """(topic, partition) -> weight, with the ``version`` that a decision's record names."""

    def __init__(self, found: WeightSet) -> None:
        super().__init__(found.weights)
        self.version = found.version


@dataclass(frozen=True)
class WeightSettings:
    """The source of the weights and their use."""

    source: Source
    mode: Mode = Mode.ON
    max_age_s: float = MAX_AGE_S
    limits: Limits = DEFAULT_LIMITS
    poll_s: float = POLL_S


class WeightsProvider:
    """Callable that returns the weights for the next decision from memory, or None.

    ``current`` is the last result of reading, with the version or the reason. ``last_trial`` is the
    last score in mode ``shadow``. ``close()`` ends the thread and waits for its end.
    """

    def __init__(
        self, group_id: str, wanted: WeightSettings, *, clock: Clock | None = None
    ) -> None:
        self.group_id, self.wanted = group_id, wanted
        self.current: WeightSet = neutral("loading", f"not yet read from {wanted.source}")
        self.last_trial: TrialScore | None = None
        self._clock = clock or (lambda: dt.datetime.now(dt.UTC))
        self._document: WeightsDocument | None = None
        self._said: tuple[int | None, str | None] = (None, "loading")
        self._closed = False
        self._first_look = threading.Event()
        self._follower: Follower | None = None

    def __call__(self) -> PartitionWeights | None:
        """Return the current weights; None means that every partition weighs 1.0. Never waits."""
        self.start()
        found = self.current
        return PartitionWeights(found) if found.in_force and self.wanted.mode is Mode.ON else None

    def start(self) -> None:
        """Start the reading thread, or restart it if it has ended; return at once.

        Does nothing after :meth:`close`.
        """
        if self._closed or self.wanted.mode is Mode.OFF or (self._follower and self._follower.runs):
            return
        if self._follower is not None:
            logger.error(
                "The thread that reads weights from %s has ended; it is started again",
                self.wanted.source,
            )
        self._follower = Follower(weakref.ref(self), self.wanted.source, self.wanted.poll_s)
        weakref.finalize(self, self._follower.close)
        self._follower.start()

    def wait(self, timeout_s: float) -> bool:
        """Return whether the source was read within ``timeout_s``; for tests and tools."""
        return self._first_look.wait(timeout_s)

    def close(self) -> None:
        """Stop reading and wait for the thread; the last weights stay in force until stale."""
        self._closed = True
        if self._follower is not None and not self._follower.close(2 * CLOSE_S):
            logger.error(
                "The thread that reads weights from %s did not end within %g s; the worker stops without it",
                self.wanted.source,
                2 * CLOSE_S,
            )

    def take(self, found: Found) -> None:
        """Take a new document, the reason for its absence, or None if neither has changed."""
        if isinstance(found, bytes):
            try:
                self._document = decode(found)
            except WeightsRefused as refused:
                self._document, found = None, refused
        elif found is not None:
            self._document = None
        if self._document is not None:
            self.current = self._document.for_group(
                self.group_id,
                now=self._clock(),
                max_age_s=self.wanted.max_age_s,
                limits=self.wanted.limits,
            )
        elif isinstance(found, WeightsRefused):
            self.current = neutral("invalid", str(found))
        elif found is not None:
            self.current = neutral("missing", str(found))
        self._log_changes()
        self._first_look.set()

    def observe(self, inputs: DecisionInputs, made: Plan) -> None:
        """Score the weights on a decision that was made without weights; runs on the observers' thread."""
        if self.wanted.mode is not Mode.SHADOW or not self.current.in_force:
            return
        self.last_trial = found = score(
            inputs.members,
            inputs.partitions,
            self.current.weights,
            replicas=inputs.replicas,
            changelogs=inputs.changelogs,
            weightless=inputs.weightless,
            previous_ids=inputs.previous_ids,
        )
        logger.info(
            "Weights version %s in shadow, generation %s: the heaviest member would carry %.2f of the mean "
            "instead of %.2f, with %d tasks moved instead of %d",
            self.current.version,
            inputs.generation,
            found.weighted,
            found.counted,
            found.weighted_moves,
            found.counted_moves,
        )

    def _log_changes(self) -> None:
        """Log each version and each kind of problem once, when it begins."""
        now = (self.current.version, self.current.code)
        if now == self._said:
            return
        self._said = now
        if self.current.reason is None:
            logger.info(
                "Partition weights version %s from %s, %d partitions, mode %s",
                self.current.version,
                self.wanted.source,
                len(self.current.weights),
                self.wanted.mode.value,
            )
        else:
            logger.warning(
                "Partition weights from %s are not used; every partition weighs 1.0: %s",
                self.wanted.source,
                self.current.reason,
            )


def configured(app: AppT) -> WeightSettings | None:
    """Return the app's settings for weights; None if no weights are wanted. Raises ConfigError."""
    place = read(app, table.WEIGHTS)
    if place is None:
        return None
    return WeightSettings(
        _weights_source(app, place),
        Mode(read(app, table.WEIGHTS_MODE)),
        read(app, table.WEIGHTS_MAX_AGE_S),
        Limits(*read(app, table.WEIGHTS_CLAMP)),
    )


def _weights_source(app: AppT, place: str) -> Source:
    """Return the source for ``place``: a topic if its prefix names a topic, else a file."""
    if place.startswith("topic:"):
        return TopicSource(place.removeprefix("topic:"), app.conf.id, connection_of(app))
    if place.startswith("kafka://"):
        bootstrap, _, topic = place.removeprefix("kafka://").rpartition("/")
        if not bootstrap or not topic:
            raise ConfigError(
                f"FAUST_ASSIGNER_WEIGHTS must be kafka://host:port/topic, got {place!r}"
            )
        return TopicSource(
            topic, app.conf.id, {**connection_of(app), "bootstrap_servers": bootstrap}
        )
    return FileSource(expanduser(place))


def connection_of(app: Any) -> Mapping[str, object]:
    """Return the app's own connection to its brokers: servers, TLS and SASL."""
    from faust.transport.drivers import aiokafka as driver

    transport = app.transport
    return {
        "bootstrap_servers": driver.server_list(transport.url, transport.default_port),
        **driver.credentials_to_aiokafka_auth(app.conf.broker_credentials, app.conf.ssl_context),
    }


def install(app: AppT) -> WeightsProvider | None:
    """Give the app's assignor its weights, if configured; called once the settings are known.

    In mode ``shadow`` the assignor still balances by the number of partitions; each decision is
    scored. Returns the provider. An invalid setting is logged, and every partition then weighs 1.0.
    """
    try:
        wanted = configured(app)
    except ConfigError as error:
        logger.error("The weights stay off: %s", error)
        return None
    if wanted is None or wanted.mode is Mode.OFF:
        return None
    provider = WeightsProvider(app.conf.id, wanted)
    app.assignor.weights_provider = provider
    app.assignor.decisions.connect(provider.observe)
    provider.start()
    app.add_dependency(_EndsWithTheApp(provider))
    must_run(app, "weights", provider.start)
    return provider


class _EndsWithTheApp(Service):  # type: ignore[misc]
    """Closes a provider when the app stops, after all services that may still call the provider."""

    def __init__(self, provider: WeightsProvider) -> None:
        self.provider = provider
        super().__init__()

    async def on_stop(self) -> None:
        """Wait for the provider's thread without blocking the loop."""
        await asyncio.to_thread(self.provider.close)
