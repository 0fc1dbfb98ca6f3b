"""Questions about the view: which consumers own or release partitions, are missing, or wait."""

from __future__ import annotations

from collections.abc import Sequence

from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.records import Consumer
from faust_assigner.service.view import View


def has_more(view: View, name: str) -> bool:
    """Return whether the consumer's registered process owns a partition or is in a hand-off."""
    mine = view.incarnation(name)
    return any(
        view.assignments[at].value.incarnation == mine for at in view.owned.get(name, ())
    ) or any(
        (name, mine) in (h.old_process, h.new_process)
        for h in (view.handoffs[at].value for at in view.moving.get(name, ()))
    )


def leaving(view: View, name: str) -> set[TopicPartition]:
    """Return the partitions that the registered process was asked to release in strict mode."""
    mine = view.incarnation(name)
    return {
        at
        for at in view.moving.get(name, ())
        if (handoff := view.handoffs[at].value).old_owner == name
        and handoff.old_incarnation == mine
        and handoff.strict
        and handoff.phase is Phase.READY
    }


def awaited(view: View) -> set[str]:
    """Return the consumers that own partitions, are not registered and have not deregistered."""
    return view.owned.keys() - view.consumers.keys() - view.departed.keys()


def is_idle(view: View) -> bool:
    """Whether no registered process owns a partition. Cost: one step for each consumer."""
    return not any(
        (name, entry.value.incarnation) in view.granted for name, entry in view.consumers.items()
    )


def unowned(view: View) -> int:
    """Count the partitions without a registered owner."""
    everything = sum(entry.value.partition_count for entry in view.topics.values())
    processes = ((name, entry.value.incarnation) for name, entry in view.consumers.items())
    return max(0, everything - sum(view.granted[process] for process in processes))


def waits_in_vain(view: View, name: str, ready: Sequence[Consumer]) -> bool:
    """Whether a draining consumer owns partitions that no ``ready`` consumer can take."""
    mine = view.incarnation(name)
    topics = {
        at.topic
        for at in view.owned.get(name, ())
        if view.assignments[at].value.incarnation == mine
    }
    return bool(topics) and not any(taker.wants(topic) for topic in topics for taker in ready)
