"""The kept lists: what each test of a suite is expected to do on our broker and on Apache Kafka.

One line a test, ``WORD NAME`` or ``WORD NAME: REASON``; the words and the brokers a test passes on:

    pass    both
    ours    Kafka alone: a reason is owed, the feature that is missing here
    both    neither: a reason is owed, what the test wants that no single node has
    kafka   ours alone: a reason is owed
    either  now and then, on both: a reason is owed, what in the test is left to the moment
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("expected")
PASSES_ON: Mapping[str, frozenset[str]] = {
    "pass": frozenset({"ours", "kafka"}),
    "ours": frozenset({"kafka"}),
    "both": frozenset(),
    "kafka": frozenset({"ours"}),
    "either": frozenset(),
}


@dataclass(frozen=True)
class Expectation:
    """What one test does: ``word`` of the table above, and why when it is not ``pass``."""

    word: str
    reason: str = ""


def parse(lines: Iterable[str]) -> dict[str, Expectation]:
    """Name -> expectation. ValueError for an unknown word, a name twice, or a reason that is owed."""
    found: dict[str, Expectation] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.strip().partition(" ")
        name, _, reason = rest.strip().partition(": ")
        if word not in PASSES_ON or name in found or (word != "pass" and not reason):
            raise ValueError(f"unknown word, second time, or no reason: {line!r}")
        found[name] = Expectation(word, reason)
    return found


def read(suite: str, protocol: str) -> dict[str, Expectation]:
    """The list of one suite in one protocol; empty when none is kept yet."""
    path = FOLDER / f"{suite}-{protocol}.txt"
    return parse(path.read_text().splitlines()) if path.exists() else {}


def differences(
    expected: Mapping[str, Expectation],
    outcomes: Mapping[str, str],
    broker: str,
) -> list[str]:
    """What the list says otherwise than a run (name -> passed, failed, skipped); sorted by name.

    A test that was not run and one that no list knows are differences too.
    """
    found = []
    for name in sorted({*expected, *outcomes}):
        outcome, wanted = outcomes.get(name, "not run"), expected.get(name)
        if wanted is None:
            found.append(f"{name}: {outcome}, and on no list")
        elif outcome == "not run" or (
            wanted.word != "either" and (outcome == "passed") != (broker in PASSES_ON[wanted.word])
        ):
            found.append(f"{name}: {outcome}, expected {wanted.word} {wanted.reason}".rstrip())
    return found
