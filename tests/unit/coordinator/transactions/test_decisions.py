"""Each decision of the transaction coordinator with every field, for every state and event.

``python -m tests.unit.coordinator.transactions.test_decisions`` writes the decisions of today, to be read
before they are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from faust_assigner.coordinator.transactions import State, Transaction, TransactionLimits, step
from faust_assigner.coordinator.transactions.events import (
    AddAndWriteOffsets,
    AddAndWriteRecords,
    AddGroup,
    AddPartitions,
    EndAndBump,
    EndTransaction,
    Event,
    InitProducer,
    TransactionTimedOut,
    WriteOffsets,
    WriteRecords,
)
from faust_assigner.coordinator.transactions.state import LAST_EPOCH
from tests.support.coordination.transcript import shown

FILE: Final = Path(__file__).with_name("decisions.txt")
P, Q, R = (b"p", 0), (b"q", 3), (b"r", 5)
#: All its numbers are different.
FULL: Final = Transaction(
    "t", 70, 40, 1_000, State.ONGOING, 38, 60, frozenset({P, Q}), frozenset({"g", "h"}), 5_000,
    5_050, True,
)  # fmt: skip
LAST: Final = replace(FULL, epoch=LAST_EPOCH, last_epoch=LAST_EPOCH - 1)
NOW: Final = 5_900


def knowns() -> Iterator[tuple[str, Transaction | None]]:
    """Yield the values before an event: none, each state, and each state with the last epoch."""
    yield "none", None
    for name, full in (("", FULL), (" last", LAST)):
        for state in State:
            bare = replace(full, partitions=frozenset(), groups=frozenset())
            yield (
                f"{state.value}{name}",
                (full if state is State.ONGOING else replace(bare, state=state)),
            )


def events(known: Transaction | None) -> Iterator[Event]:
    """Yield each event of this producer, of earlier producers, and of an unknown producer."""
    epoch = 40 if known is None else known.epoch
    for expected in (
        None, (70, epoch), (70, epoch - 1), (70, epoch - 2), (70, epoch + 1), (60, epoch),
        (60, LAST_EPOCH), (60, LAST_EPOCH - 1), (50, LAST_EPOCH), (70, 0), (0, 0),
    ):  # fmt: skip
        yield InitProducer(2_000, 90, expected)
    yield AddPartitions(70, epoch, frozenset({Q, R}))
    yield AddPartitions(70, epoch, frozenset({P}))
    yield AddGroup(70, epoch, "i")
    yield AddGroup(70, epoch, "g")
    for place in (P, R):
        yield WriteRecords(70, epoch, place)
        yield AddAndWriteRecords(70, epoch, place)
    for group in ("h", "i"):
        yield WriteOffsets(70, epoch, group)
        yield AddAndWriteOffsets(70, epoch, group)
    for commits in (True, False):
        yield EndTransaction(70, epoch, commits)
        for producer_id, said in ((70, epoch), (70, epoch - 1), (60, LAST_EPOCH), (60, epoch)):
            yield EndAndBump(producer_id, said, commits, 90)
    yield TransactionTimedOut()


def decisions() -> str:
    """Return each decision as text."""
    limits, lines = TransactionLimits(max_timeout_ms=2_000), list[str]()
    for name, known in knowns():
        lines.append(f"== {name}: {shown(known)}")
        for event in events(known):
            lines += [shown(event), f"    {shown(step('t', known, event, NOW, limits))}"]
    for now_ms in (5_999, 6_000):
        lines += [
            f"at {now_ms}",
            f"    {shown(step('t', FULL, TransactionTimedOut(), now_ms, limits))}",
        ]
    for timeout_ms in (0, 1, 2_000, 2_001):
        asked = InitProducer(timeout_ms, 90)
        lines += [shown(asked), f"    {shown(step('t', None, asked, NOW, limits))}"]
    return "\n".join(lines) + "\n"


def test_every_state_decides_on_every_event_as_its_file_has_it() -> None:
    """The file beside this test has the answer, the new value and the marker of each decision."""
    assert decisions() == FILE.read_text(encoding="utf-8")


if __name__ == "__main__":
    FILE.write_text(decisions(), encoding="utf-8")
