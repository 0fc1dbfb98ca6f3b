"""Who answers a request for a key: the owner, a copy that is fresh enough, or nobody. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

U = TypeVar("U")

#: So many copies of other workers are asked: each may take a while, and whoever asked waits.
MOST_COPIES = 2


@dataclass(frozen=True)
class Here:
    """What this worker knows of a key's partition.

    ``is_owner``: it owns it, has restored it, and can be sure that nobody else owns it by now. A copy of it
    lacks ``lag`` records, as far as is known, and nothing that was written more than ``age_s`` ago; None
    where there is no copy, or one that was never seen to catch up.
    """

    is_owner: bool = False
    lag: int | None = None
    age_s: float | None = None

    def is_fresh(self, bound_s: float) -> bool:
        """Whether a copy is here that lacks nothing older than ``bound_s``; a bound of 0 allows none."""
        return bound_s > 0 and self.age_s is not None and self.age_s <= bound_s


@dataclass(frozen=True)
class Asked:
    """The request: ``changes_nothing`` for GET and HEAD, ``is_forwarded`` by another worker."""

    changes_nothing: bool = True
    is_forwarded: bool = False


class Who(Enum):
    """Who is to answer."""

    OWNER_HERE = "this worker, as the owner"
    COPY_HERE = "this worker, from its copy"
    OTHER = "another worker"


@dataclass(frozen=True)
class Step(Generic[U]):
    """One try; ``at`` is the URL of another worker."""

    who: Who
    at: U | None = None


def steps(
    here: Here, asked: Asked, bound_s: float, *, own: U, owner: U | None, copies: Sequence[U] = ()
) -> tuple[Step[U], ...]:
    """Whom to try, in this order, the answer of the first that has one; none means 503.

    ``own`` is this worker's URL, ``owner`` that of the worker known to own the partition, ``copies`` those of
    workers known to have one. Where this worker owns it nobody else is asked as the owner: they know no more.
    A request that was forwarded goes no further, so that no two workers send it to each other, and one that
    may change something goes to no copy.
    """
    if here.is_owner:
        return (Step(Who.OWNER_HERE),)
    found: list[Step[U]] = []
    if not asked.is_forwarded and owner is not None and owner != own:
        found.append(Step(Who.OTHER, owner))
    if not asked.changes_nothing or bound_s <= 0:
        return tuple(found)
    if here.is_fresh(bound_s):
        found.append(Step(Who.COPY_HERE))
    if not asked.is_forwarded:
        found.extend(Step(Who.OTHER, url) for url in _others(copies, {own, owner}))
    return tuple(found)


def _others(copies: Sequence[U], but: Collection[U | None]) -> list[U]:
    return [url for url in dict.fromkeys(copies) if url not in but][:MOST_COPIES]
