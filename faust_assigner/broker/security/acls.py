"""Access control lists (ACLs): the rules that a broker stores, and the filters that select them.

The numbers are the numbers of Kafka's protocol. A rule belongs to a resource pattern: a literal name, a
prefix of names, or ``*`` for all names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from faust_assigner.broker.limits import MAX_ACLS
from faust_assigner.broker.storage.store import Store

PREFIX: Final = b"l"  # the first byte of a stored rule's key; the rule follows as JSON
ANY: Final = 1  # in filters: any type, pattern, operation or permission
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
MATCH, LITERAL, PREFIXED = 2, 3, 4  # pattern types; MATCH occurs in filters only
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)
LAST_OPERATION: Final = 15
DENY, ALLOW = 2, 3
WILDCARD: Final = "*"
THE_CLUSTER: Final = "kafka-cluster"  # the name of the only resource of type CLUSTER


class Acl(NamedTuple):
    """One rule: a principal on a host may, or may not, perform an operation on the resources of a pattern."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def problem(self) -> str | None:
        """Return the reason why the rule is invalid, or None."""
        if not TOPIC <= self.resource_type <= USER:
            return f"unknown resource type {self.resource_type}"
        if self.pattern_type not in (LITERAL, PREFIXED):
            return f"pattern type {self.pattern_type} is neither literal nor prefixed"
        if not self.name:
            return "the resource name is empty"
        if self.resource_type == CLUSTER and self.name != THE_CLUSTER:
            return f"the only resource of type CLUSTER is {THE_CLUSTER!r}, not {self.name!r}"
        if not ALL <= self.operation <= LAST_OPERATION:
            return f"unknown operation {self.operation}"
        if self.permission not in (DENY, ALLOW):
            return f"permission {self.permission} is neither allow nor deny"
        if not all(self.principal.partition(":")):
            return f"the principal {self.principal!r} is not TYPE:NAME"
        return None if self.host else "the host is empty"


class AclFilter(NamedTuple):
    """A filter of rules. None and ANY select all values; MATCH selects all rules that apply to a name."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def problem(self) -> str | None:
        """Return the reason why the filter is invalid, or None."""
        fields = (
            ("resource type", self.resource_type, USER),
            ("pattern type", self.pattern_type, PREFIXED),
            ("operation", self.operation, LAST_OPERATION),
            ("permission", self.permission, ALLOW),
        )
        for label, value, last in fields:
            if not ANY <= value <= last:
                return f"unknown {label} {value}"
        return None

    def selects(self, acl: Acl) -> bool:
        """Whether the filter selects a rule."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.pattern_type in (ANY, MATCH, acl.pattern_type)
            and (self.name is None or self._names(acl, self.name))
        )

    def _names(self, acl: Acl, name: str) -> bool:
        if self.pattern_type != MATCH:
            return name == acl.name
        if acl.pattern_type == PREFIXED:
            return name.startswith(acl.name)
        return acl.name in (name, WILDCARD)


class Acls:
    """All rules of one broker, restored from the store and written to it.

    A lookup costs O(distinct lengths of prefixes + found rules).
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._all: dict[Acl, None] = {}
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        self._lengths: Counter[tuple[int, int]] = Counter()  # (type, prefix length) -> prefixes
        #: Called after a change of the rules for topics.
        self.on_topic_change: Callable[[], None] = lambda: None
        for key, _ in store.scan(PREFIX):
            self._keep(Acl(*json.loads(key[len(PREFIX) :])))

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def for_resource(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Return the rules of a resource: literal, ``*``, and each prefix of the name."""
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for kind, length in self._lengths:
            if kind == resource_type and length <= len(name):
                yield from self._prefixed.get((resource_type, name[:length]), ())

    def has_room(self, more: int) -> bool:
        """Whether ``more`` rules can be added (MAX_ACLS)."""
        return len(self._all) + more <= MAX_ACLS

    def add(self, acls: Iterable[Acl]) -> None:
        """Store rules, all or nothing; an existing rule stays as it is. Raises StoreFailed."""
        fresh = [acl for acl in dict.fromkeys(acls) if acl not in self._all]
        self._store.write([(_store_key(acl), b"") for acl in fresh])
        for acl in fresh:
            self._keep(acl)
        self._notify_topic_change(fresh)

    def remove(self, acls: Iterable[Acl]) -> None:
        """Delete rules, all or nothing. Raises StoreFailed."""
        gone = [acl for acl in dict.fromkeys(acls) if acl in self._all]
        self._store.write((), [_store_key(acl) for acl in gone])
        for acl in gone:
            del self._all[acl]
            index, place = self._index(acl), (acl.resource_type, acl.name)
            index[place].remove(acl)
            if not index[place]:
                del index[place]
                self._count(acl, -1)
        self._notify_topic_change(gone)

    def _notify_topic_change(self, changed: Iterable[Acl]) -> None:
        if any(acl.resource_type == TOPIC for acl in changed):
            self.on_topic_change()

    def _keep(self, acl: Acl) -> None:
        self._all[acl] = None
        found = self._index(acl).setdefault((acl.resource_type, acl.name), [])
        if not found:
            self._count(acl, 1)
        found.append(acl)

    def _count(self, acl: Acl, more: int) -> None:
        """Update the lengths of prefixes: ``more`` is 1 for a new prefix, -1 for a removed prefix."""
        if acl.pattern_type == PREFIXED:
            place = (acl.resource_type, len(acl.name))
            self._lengths[place] += more
            if not self._lengths[place]:
                del self._lengths[place]

    def _index(self, acl: Acl) -> dict[tuple[int, str], list[Acl]]:
        return self._prefixed if acl.pattern_type == PREFIXED else self._literal


def _store_key(acl: Acl) -> bytes:
    return PREFIX + json.dumps(acl).encode()
