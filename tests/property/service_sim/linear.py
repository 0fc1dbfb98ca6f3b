"""C9: every answer a consumer got fits the state of the hand-off at some moment between asking and hearing.

A hand-off is one key, and each of its revisions has its moment. So a history is linearizable if each answer
can be laid into its own interval: accepted where the table accepts it or had it said, refused elsewhere.
"""

from __future__ import annotations

from faust_assigner.service.handoff import Handoff, Happening, step
from faust_assigner.service.handoff import state_of as where
from faust_assigner.service.records import Assigned
from faust_assigner.service.serving.acks import SAID
from faust_assigner.service.view import Entry
from tests.property.service_sim.book import must
from tests.property.service_sim.consumer import Said
from tests.property.service_sim.promises import Promises

State = tuple[float, "Entry[Handoff] | None", "Assigned | None"]


def check_history(promises: Promises, said: list[Said]) -> None:
    """Raise Violation for the first answer that fits nowhere."""
    for answer in said:
        states = promises.history.get(answer.at, [])
        before = [state for state in states if state[0] <= answer.sent][-1:]
        during = [state for state in states if answer.sent < state[0] <= answer.answered]
        seen = (before or [(0.0, None, None)]) + during
        # Where there is no hand-off the owner is read after it: the two may be of different moments.
        fits = any(_refused(answer, h, o) == answer.refused for _, h, _ in seen for _, _, o in seen)
        must(fits, "C9 an answer fits the history", answer, seen)


def _refused(answer: Said, entry: Entry[Handoff] | None, owner: Assigned | None) -> bool:
    """What the model says of this answer in this state."""
    if entry is None:
        owns = owner is not None and owner.owner == answer.name
        return owner is None or owns != (answer.happening is Happening.WARM)
    if answer.handoff_id != entry.kv.create_revision:
        return True
    handoff = entry.value
    right = handoff.old_owner if answer.happening is Happening.LET_GO else handoff.new_owner
    if answer.name != right:
        return True
    state = where(handoff)
    says = step(state, answer.happening, strict=handoff.strict)
    return state not in SAID[answer.happening] and says is None
