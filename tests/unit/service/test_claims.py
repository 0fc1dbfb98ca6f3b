"""The limits of a registration, each tested at its edge."""

from __future__ import annotations

import math
from typing import Any

import pytest

from faust_assigner.service.errors import MAX_CLAIMS, BadRequest, TooManyClaims
from faust_assigner.service.keys import MAX_PARTITIONS
from faust_assigner.service.records import Consumer
from faust_assigner.service.serving.claims import check_claims

LAST = MAX_PARTITIONS - 1

ACCEPTED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "small capacity": {"capacity": 1e-18},
    "large capacity": {"capacity": 1e18},
    "weights": {"weights": {"t": {0: 0.0, LAST: 1e18}}},
    "no weight of a topic": {"weights": {"t": {}}},
    "rack": {"rack": "é" * 256},
    "no numbers of a topic": {"holds": {"t": ()}, "former": {"t": ()}},
    "last partition": {"holds": {"t": (LAST, 0)}, "former": {"t": (0, LAST)}},
    "bound topics": {"co_partitioned": (("t",) * 499, ("t",) * 499)},
    "as many claims as may be": {
        "topics": ("t",) * 3,
        "weights": {"t": dict.fromkeys(range(7), 1.0), "u": {0: 1.0, 1: 1.0}},
        "holds": {"t": (1, 2), "u": (3,)},
        "former": {"t": (4,), "u": tuple(range(MAX_CLAIMS - 3 - 9 - 3 - 1))},
    },
}


@pytest.mark.parametrize("claims", ACCEPTED.values(), ids=ACCEPTED)
def test_a_registration_at_its_limits_is_accepted(claims: dict[str, Any]) -> None:
    """The limit itself is allowed."""
    check_claims(Consumer(name="c", **claims))


REFUSED: dict[str, dict[str, Any]] = {
    "capacity 0": {"capacity": 0.0},
    "capacity below the least": {"capacity": 0.9e-18},
    "negative capacity": {"capacity": -1.0},
    "capacity above the most": {"capacity": 1.1e18},
    "infinite capacity": {"capacity": math.inf},
    "capacity that is no number": {"capacity": math.nan},
    "negative weight": {"weights": {"t": {0: 1.0}, "u": {0: 1.0, 1: -0.1}}},
    "infinite weight": {"weights": {"t": {0: 1.0, 1: math.inf}}},
    "weight that is no number": {"weights": {"t": {0: math.nan}}},
    "weight above the most": {"weights": {"t": {0: 1.1e18}}},
    "long rack": {"rack": "r" * 257},
    "rack with a control character": {"rack": "r\n"},
    "bound topics": {"co_partitioned": (("t",) * 499, ("t",) * 500)},
    "empty sets of bound topics": {"co_partitioned": ((),) * 1_001},
    "topic": {"topics": ("t", "a b")},
    "bound topic": {"co_partitioned": (("t",), ("t", "a b"))},
    "topic of a replica": {"holds": {"t": (), "a b": ()}},
    "former topic": {"former": {"t": (), "..": ()}},
    "topic of a weight": {"weights": {"t": {}, "": {}}},
    "negative partition of a weight": {"weights": {"t": {}, "u": {0: 1.0, -1: 1.0}}},
    "partition of a weight": {"weights": {"t": {MAX_PARTITIONS: 1.0}}},
    "negative replica": {"holds": {"t": (1,), "u": (0, -1)}},
    "replica": {"holds": {"t": (MAX_PARTITIONS, 0)}},
    "negative former partition": {"former": {"t": (-1,)}},
    "former partition": {"former": {"t": (0,), "u": (MAX_PARTITIONS,)}},
}


@pytest.mark.parametrize("claims", REFUSED.values(), ids=REFUSED)
def test_a_registration_beyond_a_limit_is_refused(claims: dict[str, Any]) -> None:
    """The error is BadRequest, not TooManyClaims."""
    with pytest.raises(BadRequest) as refused:
        check_claims(Consumer(name="c", **claims))
    assert not isinstance(refused.value, TooManyClaims)


@pytest.mark.parametrize("more", ["topics", "weights", "holds", "former"])
def test_all_claims_count_together(more: str) -> None:
    """Each kind alone is below the limit, but the sum exceeds it by one."""
    claims: dict[str, Any] = {
        "topics": ("t",) * 10,
        "weights": {"t": dict.fromkeys(range(20), 1.0)},
        "holds": {"t": tuple(range(30))},
        "former": {"t": tuple(range(MAX_CLAIMS - 60))},
    }
    check_claims(Consumer(name="c", **claims))
    claims[more] = (
        ("t",) * 11
        if more == "topics"
        else {**claims[more], "u": {0: 1.0} if more == "weights" else (0,)}
    )
    with pytest.raises(TooManyClaims, match=f"c sends {MAX_CLAIMS + 1} claims"):
        check_claims(Consumer(name="c", **claims))
