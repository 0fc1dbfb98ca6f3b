"""Checks the group before the event: all members answer, no rebalance is in progress, and settings agree."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from faust_assigner.clients.group_views import as_ranges
from faust_assigner.deploy.read import Seen
from faust_assigner.deploy.report import FAILED, OK, UNKNOWN, Check
from faust_assigner.settings import table
from faust_assigner.status.members import join_sorted
from faust_assigner.status.report import ANSWERED, MemberReport

_PLANNED_WITH = {
    "table_standby_replicas",
    table.WARMUPS.name,
    table.FOLLOW_UP_S.name,
    table.ACCEPTABLE_RECOVERY_LAG.name,
    table.ACCEPTABLE_FROM_NOTHING.name,
    table.MAX_WARMUPS.name,
    table.MAX_GROUP_WARMUPS.name,
    table.WEIGHTS.name,
    table.WEIGHTS_MODE.name,
    table.WEIGHTS_MAX_AGE_S.name,
    table.WEIGHTS_CLAMP.name,
}


def complete(seen: Seen, wanted: int | None) -> Iterator[Check]:
    """Check that the group has the ``wanted`` number of members, if one is given."""
    found = seen.status.totals.members
    if wanted is not None:
        yield Check(
            name=f"{wanted} members",
            state=OK if found == wanted else FAILED,
            text=f"{found} are there",
        )


def at_rest(seen: Seen, gone: Collection[str]) -> Iterator[Check]:
    """Check that the members answer, and that no round, restore or warm-up is in progress.

    ``gone``: the members that the event stops.
    """
    status = seen.status
    staying = [member for member in status.members if member.name not in gone]
    silent = [m.name for m in staying if m.answer != ANSWERED]
    yield Check(
        name="workers answer",
        state=UNKNOWN if silent else OK,
        text=f"no answer from {join_sorted(silent)}"
        if silent
        else f"{len(staying)} of {len(staying)}",
    )
    yield _check_round(seen)
    busy = [
        f"{m.name} ({m.restore_remaining_records:,} records)"
        for m in staying
        if m.restore_remaining_records
    ]
    warming = [f"{m.name} warms up {_partitions(m)}" for m in staying if m.warmups]
    unready = [
        f"{m.name}: {(*m.not_live, *m.not_ready)[0]}" for m in staying if m.not_ready or m.not_live
    ]
    found = [f"restoring: {join_sorted(busy)}"] * bool(busy) + [join_sorted(warming)] * bool(
        warming
    )
    found += [f"not ready: {join_sorted(unready)}"] * bool(unready)
    yield Check(
        name="nothing is restoring",
        state=FAILED if found else UNKNOWN if len(silent) == len(staying) else OK,
        text="; ".join(found) or "no table, copy or warm-up",
    )


def _partitions(member: MemberReport) -> str:
    places = [(topic, n) for topic, numbers in member.warmups.items() for n in numbers]
    return ", ".join(as_ranges(places))


def _check_round(seen: Seen) -> Check:
    status = seen.status
    leaving = [member.name for member in status.members if member.is_leaving]
    second = [
        view.name
        for view in seen.views
        if view.member.given is not None and view.member.given.among
    ]
    if not status.members:
        state, text = FAILED, "the group has no members"
    elif not status.is_settled:
        state, text = FAILED, f"a rebalance is in progress ({status.state})"
    elif second:
        state, text = FAILED, "the second of two rounds is about to begin"
    elif leaving:
        state, text = FAILED, f"another worker stops now: {join_sorted(leaving)}"
    else:
        state, text = OK, "the group is stable"
    return Check(name="no round is under way", state=state, text=text)


def problems(seen: Seen) -> Iterator[str]:
    """Yield a sentence for each reason why the prediction may be wrong."""
    yield from seen.status.problems
    place = seen.settings.get(table.WEIGHTS.name)
    if place and seen.settings.get(table.WEIGHTS_MODE.name) == "on":
        yield (
            f"Workers weigh partitions by {place}, which is not read here: the later moves may "
            "differ from the shown moves"
        )
    differing = {difference.name for difference in seen.status.differences}
    if used := sorted(differing & _PLANNED_WITH):
        yield f"Workers differ in {join_sorted(used)}: a different leader would plan differently"
