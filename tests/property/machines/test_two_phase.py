"""In any history no task has two processing owners, and follow-up rounds end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.warmup import WarmupPolicy
from tests.support.coordination.two_phase_group import ALL, Group
from tests.support.examples import examples

NAMES = st.sampled_from("abcde")
#: The events before a round, and the workers that miss the answer.
EVENTS = st.lists(
    st.tuples(st.sampled_from(["join", "stock", "die", "give up"]), NAMES), max_size=3
)
ROUNDS = st.lists(st.tuples(EVENTS, st.sets(NAMES, max_size=2)), min_size=1, max_size=6)


def happen(group: Group, what: str, name: str) -> None:
    """Apply an event if possible; the last member does not die."""
    if what in ("join", "stock") and name not in group.workers:
        group.join(name, is_stock=what == "stock")
    elif what == "die" and name in group.workers and len(group.workers) > 1:
        del group.workers[name]
    elif what == "give up" and name in group.workers:
        group.give_up(name)


@settings(max_examples=examples(150, 20), deadline=None)
@given(ROUNDS, st.integers(0, 2))
def test_no_task_is_given_while_another_processes_it(
    rounds: list[tuple[list[tuple[str, str]], set[str]]], replicas: int
) -> None:
    """Workers join, die, lose memberships and miss answers; the leader is stateless."""
    group = Group(replicas=replicas)
    group.join("a")
    for events, misses in rounds:
        for what, name in events:
            happen(group, what, name)
        group.play(misses)
        for name in group.workers:
            others = {
                task for other, tasks in group.before.items() if other != name for task in tasks
            }
            assert not (group.given(name) - group.before[name]) & others
        assert all(len(owners) == 1 for owners in group.owners.values())
        assert not any(
            group.workers[name].processed & copies for name, copies in group.copies.items()
        )
    # No more churn: the first round reads the missed changes, a second hands over.
    for _ in range(3):
        group.play()
        if not group.follows:
            break
    assert not group.follows
    assert group.owners.keys() == ALL
    # Tasks left off target by a death return after their copy is complete; then no task moves.
    for _ in range(6):
        settled = {name: worker.processed for name, worker in group.workers.items()}
        group.play()
        if {name: worker.processed for name, worker in group.workers.items()} == settled:
            return
    raise AssertionError("the group does not come to rest")


@settings(max_examples=examples(100, 40), deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_joins_take_two_rounds(members: int, joiners: int, replicas: int) -> None:
    """The first round revokes and the second assigns; no third round follows."""
    group = Group(replicas=replicas)
    for number in range(members):
        group.join(f"old-{number}")
    group.play()
    for number in range(joiners):
        group.join(f"new-{number}")
    group.play()
    target = {name: worker.processed | group.given(name) for name, worker in group.workers.items()}
    promised = group.last.promised if group.last is not None else {}
    for name, topics in promised.items():
        target[name] |= {(topic, p) for topic, numbers in topics.items() for p in numbers}
    if group.follows:
        group.play()
    assert not group.follows
    assert {name: worker.processed for name, worker in group.workers.items()} == target


@settings(max_examples=examples(250, 40), deadline=None)
@given(st.lists(st.tuples(EVENTS, st.booleans()), min_size=1, max_size=5), st.integers(1, 2), NAMES)
def test_no_group_rests_off_target(
    rounds: list[tuple[list[tuple[str, str]], bool]], replicas: int, first: str
) -> None:
    """Rounds follow while a worker waits for a copy; afterwards the loads are even."""
    group = Group(replicas=replicas, warmups=WarmupPolicy(acceptable_from_nothing=100), records=500)
    group.join(first)
    group.settle()
    for events, is_calm in rounds:
        for what, name in events:
            happen(group, "join" if what == "stock" else what, name)
        while group.play().follows and is_calm:
            pass
        group.catch_up()
    group.wait()
    loads = [
        sum(topic == "orders" for topic, _ in worker.processed) for worker in group.workers.values()
    ]
    assert max(loads) - min(loads) <= 1, loads
    assert group.owners.keys() == ALL
