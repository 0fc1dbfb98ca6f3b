"""The topics of a subscription: names, and regular expressions that RE2 matches against whole names.

RE2 runs in time linear in its input for any pattern, so a client's pattern costs no more than its length
allows. Patterns have at most 1 KiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set
from functools import lru_cache
from typing import Final

import re2  # type: ignore[import-untyped]

from faust_assigner.coordinator.catalogue import Catalogue, TopicId
from faust_assigner.coordinator.records import MemberMetadata

MAX_PATTERN_BYTES: Final = 1_024
MAX_PROGRAM_BYTES: Final = 1 << 20
#: The cache of compiled patterns: 32 MiB at most. A pattern is matched once per catalogue.
MAX_PROGRAMS: Final = 32


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
    """The topics of subscriptions in one catalogue; every expression is matched once per catalogue.

    A thousand members may have a thousand expressions for the same thousand topics: equal results share
    one object, which is processed once.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._matches: dict[str, frozenset[str]] = {}
        #: Each distinct result with its topic ids, and the number of expressions with this result.
        self._distinct: dict[frozenset[str], tuple[frozenset[str], frozenset[TopicId]]] = {}
        self._uses: Counter[frozenset[str]] = Counter()

    def matching(self, regex: str) -> frozenset[str]:
        """Return the topics that match an expression; cost O(topics) the first time."""
        found = self._matches.get(regex)
        if found is None:
            matcher = pattern(regex)
            found = frozenset(name for name in self.catalogue.by_name if matcher.fullmatch(name))
            if found not in self._distinct:
                self._distinct[found] = found, self.catalogue.ids(found)
            found = self._matches[regex] = self._distinct[found][0]
            self._uses[found] += 1
        return found

    def read_by(self, member: MemberMetadata) -> frozenset[TopicId]:
        """Return the ids of the existing topics of a member; cost O(its names)."""
        if not member.topic_regex:
            return self.catalogue.ids(member.topic_names)
        ids = self._distinct[self.matching(member.topic_regex)][1]
        return ids | self.catalogue.ids(member.topic_names) if member.topic_names else ids

    def all_names(self, names: Iterable[str], regexes: Collection[str]) -> frozenset[str]:
        """Return every subscribed name, existing or not; cost O(names + regexes + distinct results)."""
        return frozenset(names).union(
            *{id(found): found for found in map(self.matching, regexes)}.values()
        )

    def existing(self, names: Set[str], regexes: Collection[str]) -> frozenset[str]:
        """Return every existing topic of these subscriptions, and forget results of all other expressions.

        A member may change its expression in each heartbeat. Cost O(added and removed expressions).
        """
        self._forget(regexes)
        for regex in set(regexes).difference(self._matches):
            self.matching(regex)
        return frozenset(self.catalogue.existing(names)).union(*self._distinct)

    def _forget(self, regexes: Collection[str]) -> None:
        for regex in self._matches.keys() - set(regexes):
            found = self._matches.pop(regex)
            self._uses[found] -= 1
            if not self._uses[found]:
                del self._uses[found], self._distinct[found]
