"""Random planner inputs: equal and mixed subscriptions; fresh, random and churned claims."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from faust_assigner import Member, plan


@dataclass(frozen=True)
class Instance:
    """Arguments of :func:`plan`, and their regime."""

    members: list[Member]
    partitions: dict[str, int]
    changelogs: frozenset[str]
    regime: str


def instance(
    rng: Random, *, most_members: int = 20, most_groups: int = 12, most_partitions: int = 24
) -> Instance:
    """Return a random instance; the regime is subscriptions x capacities x claims."""
    mixed = rng.random() < 0.6
    capacities = [1] if rng.random() < 0.75 else [1, 1, 2, 3, 4]
    claims = rng.choice(["fresh", "random", "churned"])
    topics = [f"t{t}" for t in range(rng.randint(1, most_groups))]
    # Different counts keep topics in separate groups, even with equal subscriptions.
    counts = rng.sample(range(1, most_partitions + 1), min(len(topics), most_partitions))
    partitions = dict(zip(topics, counts, strict=False))
    changelogs = frozenset(t for t in partitions if rng.random() < 0.3)
    members = [
        Member(f"m{m:02d}", _wanted(rng, list(partitions), mixed), capacity=rng.choice(capacities))
        for m in range(rng.randint(2, most_members))
    ]
    if claims == "random":
        members = _with_random_claims(rng, members, partitions)
    elif claims == "churned":
        members = _churned(rng, members, partitions, changelogs, mixed)
    return Instance(members, partitions, changelogs, f"{'mixed' if mixed else 'equal'} {claims}")


def _wanted(rng: Random, topics: list[str], mixed: bool) -> list[str]:
    return [t for t in topics if rng.random() < 0.6] if mixed else topics


def _with_random_claims(
    rng: Random, members: list[Member], partitions: dict[str, int]
) -> list[Member]:
    claims: list[dict[str, list[int]]] = [{} for _ in members]
    favourites = rng.sample(range(len(members)), rng.randint(1, len(members)))
    for topic, count in partitions.items():
        for p in range(count):
            if rng.random() < 0.85:
                claims[rng.choice(favourites)].setdefault(topic, []).append(p)
    return [replace(m, actives=c) for m, c in zip(members, claims, strict=True)]


def carried(members: list[Member], answer: object, generation: int = -1) -> list[Member]:
    """Return ``members`` with their partitions in ``answer`` as claims."""
    known = set(answer.member_ids)  # type: ignore[attr-defined]
    return [
        replace(
            m,
            actives=answer.actives(m.member_id),
            standbys=answer.standbys(m.member_id),  # type: ignore[attr-defined]
            generation=generation,
        )
        if m.member_id in known
        else m
        for m in members
    ]


def _churned(
    rng: Random,
    members: list[Member],
    partitions: dict[str, int],
    changelogs: frozenset[str],
    mixed: bool,
) -> list[Member]:
    """Return members after a few planned rounds of joins, leaves and changed subscriptions."""
    extra = 0
    for _ in range(rng.randint(1, 3)):
        members = carried(members, plan(members, partitions, changelogs=changelogs))
        event = rng.random()
        if event < 0.4 and len(members) > 2:
            members = rng.sample(members, rng.randint(2, len(members)))
        elif event < 0.8:
            extra += 1
            members = [*members, Member(f"n{extra:02d}", _wanted(rng, list(partitions), mixed))]
        else:
            at = rng.randrange(len(members))
            members[at] = replace(members[at], topics=_wanted(rng, list(partitions), mixed))
    return members


def wide_instance(rng: Random) -> Instance:
    """Return ten to 24 groups on 17 to 21 members: digits of the terms overflow here if narrow."""
    topics = [f"t{t:02d}" for t in range(rng.randint(10, 24))]
    partitions = dict(zip(topics, rng.sample(range(1, 60), len(topics)), strict=True))
    mixed = rng.random() < 0.7
    capacities = [1] if rng.random() < 0.6 else [1, 1, 2, 3, 4]
    members = [
        Member(f"m{m:02d}", _wanted(rng, topics, mixed), capacity=rng.choice(capacities))
        for m in range(rng.randint(17, 21))
    ]
    if rng.random() < 0.5:
        return Instance(
            _with_random_claims(rng, members, partitions), partitions, frozenset(), "wide random"
        )
    churned = _churned(rng, members, partitions, frozenset(), mixed)
    return Instance(churned, partitions, frozenset(), "wide churned")
