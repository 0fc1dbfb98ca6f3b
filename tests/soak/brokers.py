"""The broker under a soak, embedded or Kafka: frozen, killed if permitted, running at the end."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from faust_assigner.testing.broker import BrokerProcess
from faust_assigner.testing.kafka import KafkaServer, kafka_server

#: The wait of an empty group for more members.
DELAY = {"group.initial.rebalance.delay.ms": "500"}


class Broker(Protocol):
    """The operations of a soak on a broker."""

    bootstrap: str
    #: Whether rounds of the soak kill the broker; journals kill any broker.
    dies: bool

    def signal(self, number: signal.Signals) -> None:
        """Send the signal to the broker's process."""

    def end(self, number: signal.Signals) -> None:
        """End the broker with the signal."""

    def ensure(self) -> None:
        """Let the broker run, from any state."""

    def words(self) -> str:
        """Return the broker's log."""

    def keep(self, folder: Path) -> None:
        """Keep the broker's data in ``folder`` after its end."""


class Embedded:
    """The embedded broker process, with its data in ``folder`` and a fixed port."""

    dies = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.lives = (
            folder / "broker",
            [BrokerProcess(folder / "broker", *self._settings())],
        )
        self.bootstrap = self.lives[0].bootstrap

    @staticmethod
    def _settings() -> list[str]:
        return [f"{name}={value}" for name, value in DELAY.items()]

    @property
    def _process(self) -> BrokerProcess:
        return self.lives[-1]

    def signal(self, number: signal.Signals) -> None:
        """Do nothing if the broker has ended."""
        self._process.process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """End the broker; raise TimeoutExpired if it ignores a SIGTERM for 20 s."""
        if number == signal.SIGKILL:
            self._process.kill()
        else:
            self._process.stop(number)

    def ensure(self) -> None:
        """Restart an ended broker with its data; raise BrokerUnavailable if the start fails."""
        self.signal(signal.SIGCONT)
        if self._process.process.poll() is not None:
            self.lives.append(
                BrokerProcess(self.folder, *self._settings(), port=self.lives[0].port)
            )

    def words(self) -> str:
        """Return the log of all its lives."""
        return "\n--- the next life\n".join(life.errors() for life in self.lives)

    def keep(self, folder: Path) -> None:
        """Do nothing: the data stays."""

    def close(self) -> None:
        """Kill the broker at the end."""
        if self._process.process.poll() is None:
            self._process.kill()


class Kafka:
    """A real Apache Kafka with a fixed port and its data over all lives."""

    dies = False

    def __init__(self, server: KafkaServer) -> None:
        self.server, self.bootstrap = server, server.bootstrap

    def signal(self, number: signal.Signals) -> None:
        """Send the signal to the Java process."""
        self.server.process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """End Kafka; kill it after 30 s."""
        self.server.end(number)

    def ensure(self) -> None:
        """Unfreeze or restart Kafka; raise KafkaUnavailable if the start fails."""
        self.signal(signal.SIGCONT)
        if self.server.process.poll() is not None:
            self.server.start_again()

    def words(self) -> str:
        """Return the end of the log."""
        return self.server.log_tail(100_000)

    def keep(self, folder: Path) -> None:
        """Copy the logs of the partitions: a hanging transaction shows only there."""
        shutil.copytree(self.server.data, folder / "kafka", ignore_dangling_symlinks=True)


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[Broker]:
    """Run ``embedded`` or ``kafka`` until the block ends, with data below ``folder`` or its own."""
    if name == "embedded":
        broker = Embedded(folder)
        try:
            yield broker
        finally:
            broker.close()
    else:
        with kafka_server(DELAY) as server:
            kafka = Kafka(server)
            try:
                yield kafka
            finally:
                kafka.signal(signal.SIGCONT)
