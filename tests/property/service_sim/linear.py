"""C9: each answer fits the state of the hand-off at some moment between request and response."""

from __future__ import annotations

from tests.property.service_sim.book import must
from tests.property.service_sim.promises import Promises
from tests.support.assigning.rules import Said, fits


def check_history(promises: Promises, said: list[Said]) -> None:
    """Raise Violation for the first answer that fits no state."""
    for answer in said:
        moments = promises.history.get(answer.at, [])
        must(fits(moments, answer), "C9 an answer fits the history", answer, moments)
