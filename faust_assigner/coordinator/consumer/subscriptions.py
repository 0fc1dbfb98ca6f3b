"""The topics of a subscription: names, and regular expressions that RE2 matches against whole names.

An expression matches only the topics that its client may describe, as in Kafka.
RE2 runs in time linear in its input for any pattern, so a client's pattern costs no more than its length
allows. Patterns have at most 1 KiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import re2  # type: ignore[import-untyped]

from faust_assigner.coordinator.catalogue import Catalogue, TopicId
from faust_assigner.coordinator.records import MemberMetadata, Pattern

MAX_PATTERN_BYTES: Final = 1_024
MAX_PROGRAM_BYTES: Final = 1 << 20
#: The cache of compiled patterns: 32 MiB at most. A pattern is matched once per catalogue.
MAX_PROGRAMS: Final = 32
Key = tuple[str, frozenset[str]]  # an expression, and the topics that are hidden from its client


class BadPattern(ValueError):
    """A regular expression that RE2 refuses; the message has the reason."""


@lru_cache(maxsize=MAX_PROGRAMS)
def pattern(text: str) -> re2._Regexp:
    """Compile an expression; raises :class:`BadPattern`.

    >>> bool(pattern("order.*").fullmatch("orders")), bool(pattern("order").fullmatch("orders"))
    (True, False)
    """
    if len(text.encode()) > MAX_PATTERN_BYTES:
        raise BadPattern(f"it has more than {MAX_PATTERN_BYTES} bytes")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        return re2.compile(text, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it is unreadable"
        raise BadPattern(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


class Topics:
    """The topics of subscriptions in one catalogue.

    Every expression is matched once per catalogue and set of hidden topics.

    A thousand members may have a thousand expressions for the same thousand topics: equal results share
    one object, which is processed once.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._matches: dict[Pattern, frozenset[str]] = {}
        self._results: dict[Key, frozenset[str]] = {}
        #: The number of patterns with each key.
        self._uses: Counter[Key] = Counter()
        #: For each key with hidden topics, a digest of its result.
        self._seals: dict[Key, bytes] = {}
        #: The digests of all patterns with hidden topics, combined by exclusive or.
        self._seal = 0
        #: Each distinct result with its topic ids, and the number of keys with this result.
        self._distinct: dict[frozenset[str], tuple[frozenset[str], frozenset[TopicId]]] = {}
        self._shared: Counter[frozenset[str]] = Counter()

    def _key(self, wanted: Pattern) -> Key:
        return wanted.text, self.catalogue.hidden_from(wanted.principal, wanted.host)

    def matching(self, wanted: Pattern) -> frozenset[str]:
        """Return the topics that match an expression; cost O(topics) the first time."""
        found = self._matches.get(wanted)
        if found is None:
            key = self._key(wanted)
            if key not in self._results:
                self._results[key] = self._search(key)
            found = self._matches[wanted] = self._results[key]
            self._uses[key] += 1
            self._seal ^= self._sealed(wanted, key)
        return found

    def _search(self, key: Key) -> frozenset[str]:
        text, hidden = key
        matches = pattern(text).fullmatch
        found = frozenset(n for n in self.catalogue.by_name if n not in hidden and matches(n))
        if found not in self._distinct:
            self._distinct[found] = found, self.catalogue.ids(found)
        self._shared[found] += 1
        if hidden:
            told = repr((text, sorted(found))).encode()
            self._seals[key] = blake2b(told, digest_size=8).digest()
        return self._distinct[found][0]

    def _sealed(self, wanted: Pattern, key: Key) -> int:
        """Return a digest of the client and its topics; 0 if no topic is hidden from the client."""
        if key not in self._seals:
            return 0
        return _digest_number(self._seals[key] + repr(tuple(wanted)).encode())

    def read_by(self, member: MemberMetadata) -> frozenset[TopicId]:
        """Return the ids of the existing topics of a member; cost O(its names)."""
        if (wanted := member.pattern) is None:
            return self.catalogue.ids(member.topic_names)
        ids = self._distinct[self.matching(wanted)][1]
        return ids | self.catalogue.ids(member.topic_names) if member.topic_names else ids

    def all_names(self, names: Iterable[str], patterns: Collection[Pattern]) -> frozenset[str]:
        """Return every subscribed name, existing or not; cost O(names + patterns + distinct results)."""
        return frozenset(names).union(
            *{id(found): found for found in map(self.matching, patterns)}.values()
        )

    def fingerprint(self, names: Set[str], patterns: Collection[Pattern]) -> int:
        """Return a number that changes with these topics, and with the rights of each client to see them."""
        return self.catalogue.fingerprint(self.existing_topics(names, patterns)) ^ self._seal

    def existing_topics(self, names: Set[str], patterns: Collection[Pattern]) -> frozenset[str]:
        """Return every existing topic of these subscriptions, and forget results of all other expressions.

        A member may change its expression in each heartbeat. Cost O(added and removed expressions).
        """
        self._forget(patterns)
        for wanted in set(patterns).difference(self._matches):
            self.matching(wanted)
        return frozenset(self.catalogue.existing_topics(names)).union(*self._distinct)

    def _forget(self, kept: Collection[Pattern]) -> None:
        for wanted in self._matches.keys() - set(kept):
            del self._matches[wanted]
            key = self._key(wanted)
            self._seal ^= self._sealed(wanted, key)
            self._uses[key] -= 1
            if self._uses[key]:
                continue
            found = self._results.pop(key)
            self._shared[found] -= 1
            self._seals.pop(key, None)
            del self._uses[key]
            if not self._shared[found]:
                del self._shared[found], self._distinct[found]


def _digest_number(told: bytes) -> int:
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "big") >> 1
