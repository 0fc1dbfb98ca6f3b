"""The checks of a broker's starts, as a story: the write audit, the log's state, errors and log lines.

``python -m tests.unit.broker.storage.test_audited`` writes the transcript of today, to be read before
it is kept.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import write_audit as audit_module
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.storage.write_audit import WriteAudit
from tests.support.clients.raw_client import batch
from tests.unit.broker.storage.bench import state

FILE: Final = Path(__file__).with_name("audited.txt")
CHECK, ACCEPT = {"log.recovery.check.batches": "true"}, {"log.recovery.accept.loss": "true"}


class Broker(logging.Handler):
    """A broker without sockets over a folder, and the lines of its lives."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.folder = folder
        self.node: Node | None = None
        self.names: dict[bytes, str] = {}

    def note(self, line: str) -> None:
        """Add a line, without the folder's name."""
        self.lines.append(f"  {line}".replace(str(self.folder), "FOLDER"))

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line of the log."""
        self.note(f"log {record.levelname} {record.getMessage()}")

    def start(self, title: str, **settings: str) -> None:
        """Start, and note the audit before the start, the error, or the state of all logs."""
        self.lines.append(f"-- {title}")
        self.audit("before")
        try:
            self.node = Node(Settings.parse(settings), self.folder)
        except StoreFailed as error:
            self.note(f"{type(error).__name__}: {str(error).splitlines()[0]}")
            return
        self.state()

    def state(self) -> None:
        """Note the state of all logs, and the audit."""
        assert self.node is not None
        for topic in self.node.catalogue:
            for log in topic.partitions:
                self.names[log.place] = f"{topic.name}-{log.number}"
                for line in state(log)[: 2 + len(log.index)]:
                    self.note(f"{topic.name}-{log.number} {line}")
                self.note(f"{topic.name}-{log.number} flushed to {log.flushed_to}")
        self.audit("now")

    def audit(self, when: str) -> None:
        """Note the audit's file as a start would read it."""
        if not WriteAudit.has_data_in(self.folder):
            self.note(f"audit {when}: none")
            return
        read = WriteAudit(self.folder)
        ends = {self.names.get(place, "?"): end for place, end in read.ends.items()}
        self.note(
            f"audit {when}: {read.writes} writes, {read.synced} synced, same boot "
            f"{read.same_boot}, ends {ends}"
        )
        read.close()

    def log(self, partition: int = 0, topic: str = "t") -> PartitionLog:
        """Return a log."""
        assert self.node is not None
        found = self.node.catalogue.partition(topic, partition)
        assert found is not None
        return found

    def append(self, count: int, partition: int = 0, topic: str = "t") -> None:
        """Append batches of one record."""
        for _ in range(count):
            data = batch()
            self.log(partition, topic).append(parse_batch(data), data, 1_000)

    def stop(self) -> None:
        """Close the store."""
        assert self.node is not None
        self.node.close()
        self.node = None

    def damage(self, *keys: bytes) -> None:
        """Remove keys from the store behind the broker's back."""
        store = RocksStore(self.folder)
        store.write((), keys)
        store.close()

    def edit(self, change: Callable[[WriteAudit], object]) -> None:
        """Change the audit's file."""
        audit = WriteAudit(self.folder)
        change(audit)
        audit.close()


def _played(broker: Broker, boot: Callable[[int], None]) -> None:
    broker.start("a new folder")
    assert broker.node is not None
    broker.node.catalogue.create("t", 2, {})
    broker.append(4)
    broker.append(1, 1)
    store: Any = broker.node.store
    store.note_flushed(store.flush())
    broker.append(1, 1)
    broker.state()
    place, key = broker.log().place, broker.log().batch_key(2)
    broker.stop()
    broker.start("a second life")
    broker.stop()
    broker.start("a third life without a write")
    broker.stop()
    broker.damage(key)
    broker.start(
        "a batch is missing, and is not looked for", **{"log.recovery.check.batches": "false"}
    )
    broker.stop()
    broker.start("it is looked for", **CHECK)
    broker.start("its loss is accepted", **CHECK, **ACCEPT)
    broker.stop()
    broker.start("the next life", **CHECK)
    broker.stop()
    broker.edit(lambda audit: audit.note_end(place, 9))
    broker.start("an end is missing after a kill")
    boot(2)
    broker.start("the end is missing after a power loss")
    broker.stop()
    broker.edit(lambda audit: audit.note((audit.writes or 0) + 5))
    broker.start("five writes are missing")
    boot(3)
    broker.start("five writes that were not synced are missing after a power loss")
    broker.stop()
    broker.edit(lambda audit: audit.note_synced((audit.writes or 0) + 3))
    broker.edit(lambda audit: audit.note_end(place, 6))
    boot(4)
    broker.start("three synced writes are missing after a power loss")
    broker.start("their loss is accepted", **ACCEPT)
    assert broker.node is not None
    broker.lines.append("-- a topic is deleted, and one takes its place in the audit")
    topic = next(iter(broker.node.catalogue))
    broker.node.catalogue.delete(topic)
    broker.node.catalogue.create("u", 1, {})
    broker.append(2, 0, "u")
    broker.state()
    broker.stop()
    for file in broker.folder.iterdir():
        if file.name != audit_module.NAME:
            file.unlink() if file.is_file() else shutil.rmtree(file)
    broker.start("the store is gone, its audit is there")


def told() -> str:
    """Return the transcript."""
    logger = logging.getLogger("faust_assigner.broker")
    level, propagated = logger.level, logger.propagate
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        broker = Broker(Path(folder) / "data")

        def boot(number: int) -> None:
            patch.setattr(audit_module, "boot_id", lambda: uuid.UUID(int=number).bytes)

        boot(1)
        logger.addHandler(broker)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            _played(broker, boot)
        finally:
            logger.removeHandler(broker)
            logger.setLevel(level)
            logger.propagate = propagated
            if broker.node is not None:
                broker.stop()
    return "\n".join(broker.lines) + "\n"


def test_the_starts_of_a_broker_have_the_lines_of_their_transcript() -> None:
    """The file beside this test has the transcript as text."""
    assert told() == FILE.read_text()


if __name__ == "__main__":
    FILE.write_text(told())
