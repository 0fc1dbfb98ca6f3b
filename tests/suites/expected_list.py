"""The kept lists: the expected outcome of each test on our broker and on Apache Kafka.

Each line is ``WORD NAME`` or ``WORD NAME: REASON``. The word names the brokers with a passing test:

    pass    both
    ours    Kafka alone; the reason names the feature missing here
    both    neither; the reason names the need that no single node meets
    kafka   ours alone; a reason is required
    either  sometimes, on both; the reason names the timing dependence
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
    """The expectation of a test: a word of the table above, and a reason unless ``pass``."""

    word: str
    reason: str = ""


def parse(lines: Iterable[str]) -> dict[str, Expectation]:
    """Return name -> expectation. ValueError for an unknown word, a repeat or a missing reason."""
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
    """Return the list of a suite in a protocol; empty if there is no list yet."""
    path = FOLDER / f"{suite}-{protocol}.txt"
    return parse(path.read_text().splitlines()) if path.exists() else {}


def differences(
    expected: Mapping[str, Expectation], outcomes: Mapping[str, str], broker: str
) -> list[str]:
    """Return the differences between the list and a run (name -> passed, failed, skipped), by name.

    Tests not run and tests missing in the list are differences too.
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
