"""The compared arms: the workers of a run and their settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faust_assigner.testing.kafka import KafkaUnavailable
from tests.support.workers.fleet import Fleet, Worker

#: A shorter interval of follow-up rounds than the default: warm partitions move sooner.
FOLLOW_UP_S = 3.0
COMMIT_S = 1.0
SOURCES = Path(__file__).with_name("java")


@dataclass(frozen=True)
class Arm:
    """A column of the tables."""

    name: str
    assignor: str = "ours"
    settings: Mapping[str, Any] = field(default_factory=dict)
    java: bool = False

    @property
    def has_static_members(self) -> bool:
        """Whether the arm supports static members: Kafka Streams' group protocol refuses them."""
        return not self.java

    @property
    def ours(self) -> bool:
        """Whether losses of this arm are our failures."""
        return self.assignor == "ours" and not self.java


#: In order of play: a short budget leaves out the last arms.
ARMS = {
    arm.name: arm
    for arm in (
        Arm(
            "cooperative",
            settings={
                "faust_assigner_cooperative": True,
                "faust_assigner_follow_up_s": FOLLOW_UP_S,
            },
        ),
        Arm("streams", java=True),
        Arm(
            "eager",
            settings={
                "faust_assigner_cooperative": False,
                "faust_assigner_follow_up_s": FOLLOW_UP_S,
            },
        ),
        Arm("stock", "stock"),
    )
}

#: Broker settings that Kafka Streams' group protocol needs; other arms ignore them.
BROKER_SETTINGS = {
    "group.streams.min.session.timeout.ms": "10000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
}


@contextmanager
def streams_classes() -> Iterator[str]:
    """Build the Kafka Streams worker with Maven in a temporary folder; yield its class path.

    Cost: 6 s; a minute for the first build on a machine.
    """
    folder = Path(tempfile.mkdtemp(prefix="faust-assigner-streams-"))
    try:
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
        built = subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(folder / "pom.xml"),
                "compile",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={folder / 'jars'}",
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if built.returncode != 0:
            raise KafkaUnavailable(
                f"the Kafka Streams worker was not built:\n{built.stdout[-2000:]}"
            )
        yield f"{folder / 'target' / 'classes'}:{folder / 'jars'}/*"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class StreamsFleet(Fleet):
    """The same group as Kafka Streams instances with one thread each."""

    classes: str = ""

    def configure(self) -> None:
        """Set the group's configuration at the broker, as required by this protocol."""
        done = subprocess.run(
            [*self._java(), "configure"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ
            | {
                "FLEET_APP_ID": self.app_id,
                "FLEET_BOOTSTRAP": self.bootstrap,
                "FLEET_REPLICAS": str(self.replicas),
                "FLEET_SESSION_S": str(self.session_s),
            },
        )
        if done.returncode != 0:
            raise KafkaUnavailable(f"the group was not configured: {done.stderr[-2000:]}")

    def _java(self) -> list[str]:
        return [
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            self.classes,
            "StreamsWorker",
        ]

    def launch(
        self, name: str, module: str, environment: Mapping[str, str], *, level: str
    ) -> subprocess.Popen[bytes]:
        """Start a Java process instead of a Faust worker."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                self._java(),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment | {"FLEET_COMMIT_MS": str(int(COMMIT_S * 1000))},
            )


def on_disk(worker: Worker) -> frozenset[int]:
    """Return the partitions with files of a worker, in Faust's or in Kafka Streams' layout."""
    tasks = worker.folder.glob("data/*/0_*/rocksdb")
    return worker.on_disk | {int(path.parent.name.removeprefix("0_")) for path in tasks}


def fleet_of(
    arm: Arm,
    app_id: str,
    bootstrap: str,
    partitions: int,
    folder: Path,
    *,
    static: bool,
    classes: str,
) -> Fleet:
    """Return a run's fleet without started workers."""
    if not arm.java:
        return Fleet(
            app_id,
            bootstrap,
            partitions,
            folder,
            arm.assignor,
            static=static,
            settings=arm.settings,
        )
    fleet = StreamsFleet(app_id, bootstrap, partitions, folder, static=static, classes=classes)
    fleet.configure()
    return fleet
