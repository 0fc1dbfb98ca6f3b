"""Specifications of sticky assignors as data: subscriptions and claims -> loads and kept claims.

The behaviours are described by KIP-54's examples and by the test suites of Kafka's and franz-go's
sticky assignors. Only load multisets and counts of kept claims are expected, never an exact map.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from faust_assigner import Member, plan


@dataclass(frozen=True)
class Spec:
    """``wants`` and ``had`` are by member; ``loads`` ascends; ``stay`` counts kept valid claims."""

    name: str
    partitions: dict[str, int]
    wants: dict[str, str]
    loads: list[int]
    had: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    stay: int = 0


SPECS = [
    Spec(
        "KIP-54 example 1 as one topic, fresh",
        {"t": 8},
        {"c0": "t", "c1": "t", "c2": "t"},
        [2, 3, 3],
    ),
    Spec(
        "KIP-54 example 1 as one topic, c1 is gone",
        {"t": 8},
        {"c0": "t", "c2": "t"},
        [4, 4],
        {"c0": {"t": [0, 3, 6]}, "c2": {"t": [2, 5]}},
        stay=5,
    ),
    Spec(
        "KIP-54 example 2, fresh",
        {"t0": 1, "t1": 2, "t2": 3},
        {"c0": "t0", "c1": "t0 t1", "c2": "t0 t1 t2"},
        [1, 2, 3],
    ),
    Spec(
        "KIP-54 example 2, c0 is gone",
        {"t0": 1, "t1": 2, "t2": 3},
        {"c1": "t0 t1", "c2": "t0 t1 t2"},
        [3, 3],
        {"c1": {"t1": [0, 1]}, "c2": {"t2": [0, 1, 2]}},
        stay=5,
    ),
    Spec(
        "more members than partitions",
        {"t": 2},
        {"a": "t", "b": "t", "c": "t", "d": "t"},
        [0, 0, 1, 1],
    ),
    Spec(
        "one of more members than partitions leaves",
        {"t": 2},
        {"b": "t", "c": "t", "d": "t"},
        [0, 1, 1],
        {"b": {"t": [0]}},
        stay=1,
    ),
    Spec(
        "a member per partition leaves one over",
        {"t": 5},
        {"a": "t", "b": "t"},
        [2, 3],
        {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}},
        stay=4,
    ),
    Spec(
        "a second member joins",
        {"t": 3},
        {"a": "t", "b": "t"},
        [1, 2],
        {"a": {"t": [0, 1, 2]}},
        stay=2,
    ),
    Spec(
        "a topic appears",
        {"t": 3, "u": 5},
        {"a": "t u", "b": "t u"},
        [4, 4],
        {"a": {"t": [0, 2]}, "b": {"t": [1]}},
        stay=3,
    ),
    Spec(
        "a topic is deleted",
        {"t": 3},
        {"a": "t u", "b": "t u"},
        [1, 2],
        {"a": {"t": [0], "u": [1, 2]}, "b": {"t": [1, 2], "u": [0]}},
        stay=3,
    ),
    Spec(
        "a topic shrinks",
        {"t": 2},
        {"a": "t", "b": "t"},
        [1, 1],
        {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}},
        stay=1,
    ),
    Spec(
        "a topic grows",
        {"t": 6},
        {"a": "t", "b": "t"},
        [3, 3],
        {"a": {"t": [0]}, "b": {"t": [1]}},
        stay=2,
    ),
    Spec(
        "a subscription is dropped",
        {"t": 2, "u": 2},
        {"a": "t", "b": "t u"},
        [2, 2],
        {"a": {"t": [0], "u": [0]}, "b": {"t": [1], "u": [1]}},
        stay=2,
    ),
    Spec(
        "only the second member wants the big topic",
        {"t": 1, "u": 6},
        {"a": "t", "b": "t u"},
        [1, 6],
        {"b": {"t": [0], "u": [0, 1, 2, 3, 4, 5]}},
        stay=6,
    ),
    Spec(
        "count edge: one over the ceiling moves",
        {"t": 7},
        {"a": "t", "b": "t", "c": "t"},
        [2, 2, 3],
        {"a": {"t": [0, 1, 2, 3]}, "b": {"t": [4, 5]}, "c": {"t": [6]}},
        stay=6,
    ),
    Spec(
        "count edge: all at the floor, nothing moves",
        {"t": 6},
        {"a": "t", "b": "t", "c": "t"},
        [2, 2, 2],
        {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}, "c": {"t": [4, 5]}},
        stay=6,
    ),
    Spec(
        "generations: the newer claim is the one kept",
        {"t": 3},
        {"a": "t", "b": "t", "c": "t"},
        [1, 1, 1],
        {"a": {"t": [0, 1, 2]}, "b": {"t": [0]}, "c": {"t": [1]}},
        {"a": 1, "b": 2, "c": 2},
        stay=3,
    ),
    Spec(
        "generations: one contest is void, the rest stays",
        {"t": 4},
        {"a": "t", "b": "t"},
        [2, 2],
        {"a": {"t": [0, 1]}, "b": {"t": [1, 2]}},
        {"a": 2, "b": 2},
        stay=2,
    ),
    # The loads alone would let six claims stay; even topics on the wide member have priority.
    Spec(
        "group balance comes before what stays",
        {"t": 4, "u": 4},
        {"a": "t", "b": "t u", "c": "u"},
        [2, 3, 3],
        {"a": {"t": [0, 1, 2, 3]}, "c": {"u": [0, 1, 2, 3]}},
        stay=5,
    ),
    # Topics with the same count and subscribers form a group: its tasks are counted and stay whole.
    Spec(
        "co-partitioned topics are dealt as tasks",
        {"t": 4, "u": 4},
        {"a": "t u", "b": "t u"},
        [4, 4],
        {"a": {"t": [0, 1], "u": [0, 1]}, "b": {"t": [2, 3], "u": [2, 3]}},
        stay=4,
    ),
    Spec("nobody wants a topic", {"t": 2, "lonely": 9}, {"a": "t", "b": "t"}, [1, 1]),
]


@pytest.mark.parametrize("spec", SPECS, ids=[s.name for s in SPECS])
def test_spec(spec: Spec) -> None:
    """The loads equal the expected multiset, and exactly the expected claims stay."""
    members = [
        Member(
            m, wants.split(), actives=spec.had.get(m, {}), generation=spec.generations.get(m, -1)
        )
        for m, wants in spec.wants.items()
    ]
    answer = plan(members, spec.partitions)
    now = {m: answer.actives(m) for m in spec.wants}
    assert sorted(sum(map(len, mine.values())) for mine in now.values()) == spec.loads
    believed = sum(int((row >= 0).sum()) for row in answer.previous_owner)
    assert believed - answer.moves == spec.stay
    assert (
        sum(
            len(set(ps) & set(spec.had.get(m, {}).get(t, ())))
            for m, mine in now.items()
            for t, ps in mine.items()
        )
        >= spec.stay
    )
