"""deploy-check's prediction of an event equals the leader's round after the event."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.deploy.fleet import Fleet
from faust_assigner.status.evidence import Place
from tests.support.examples import examples
from tests.support.status import LOG, MadeGroup
from tests.unit.deploy.looks import POLICY, look, whole


def placed(made: MadeGroup, role: str) -> dict[str, set[Place]]:
    """Return each member's partitions in the group's last answers, by the member's name."""
    found: dict[str, set[Place]] = {}
    for name in made.claims:
        claims = getattr(made.answer_of(name), role)
        found[f"w{name.removeprefix('m')}"] = {(t, n) for t, runs in claims.items() for n in runs}
    return found


def planned(fleet: Fleet, role: str) -> dict[str, set[Place]]:
    """Return each member's predicted partitions."""
    return {
        name: {(t, n) for t, runs in getattr(worker.data, role).items() for n in runs}
        for name, worker in fleet.workers.items()
    }


@st.composite
def groups(draw: st.DrawFn) -> tuple[MadeGroup, str]:
    """Draw a group after a few events, with racks and capacities, and the member that will stop."""
    partitions = draw(st.integers(1, 9))
    made = MadeGroup(
        topics={"orders": partitions, LOG: partitions, "news": draw(st.integers(1, 5))},
        replicas=draw(st.integers(0, 2)),
        end=draw(st.sampled_from([0, 90, 1000])),
    )
    names = [f"m{n}" for n in range(draw(st.integers(2, 5)))]
    for name in names:
        rack = draw(st.sampled_from([None, "a", "b"]))
        made.join(name, holds=True, rack_id=rack, capacity=draw(st.sampled_from([1.0, 2.0])))
        if draw(st.booleans()):
            whole(made)
    if made.last is None or set(made.metadata) != set(names) or draw(st.booleans()):
        whole(made)  # else the last member's warm-ups are still running
    return made, draw(st.sampled_from(names))


@settings(max_examples=examples(30, 8), deadline=None)
@given(groups())
def test_the_moves_said_before_a_stop_are_those_that_the_leader_makes(
    case: tuple[MadeGroup, str],
) -> None:
    """Owners, copies, and the leader's counts of moved and cold tasks equal the prediction."""
    made, gone = case
    seen = look(made, settings=_settings(made))
    assert seen.fleet is not None
    was = placed(made, "actives")[f"w{gone[1:]}"]
    predicted, moved = seen.fleet.without([f"w{gone[1:]}"]).at_rest()
    leader = next(name for name in sorted(made.claims) if name != gone)
    made.leave(gone).round(leader=leader, warmups=POLICY)
    assert made.last is not None
    first = made.last.outcome
    while made.last.follows:
        made.round(leader=leader, warmups=POLICY)
    for role in ("actives", "standbys"):
        assert planned(predicted, role) == placed(made, role)
    assert {m.topics[0] for m in moved if m.was == f"w{gone[1:]}"} <= {t for t, _ in was}
    if made.replicas and made.end:
        assert first.cold == sum(m.is_cold for m in moved)


def _settings(made: MadeGroup) -> dict[str, str]:
    return {
        "table_standby_replicas": str(made.replicas),
        "broker_session_timeout": "60",
        "FAUST_ASSIGNER_WARMUPS": "1",
        "FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG": str(POLICY.acceptable_recovery_lag),
        "FAUST_ASSIGNER_ACCEPTABLE_FROM_NOTHING": str(POLICY.acceptable_from_nothing),
    }
