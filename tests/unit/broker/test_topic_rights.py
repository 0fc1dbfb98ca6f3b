"""The topics hidden from each client, computed from the rules of all clients at once."""

from __future__ import annotations

import random

import pytest

from faust_assigner.broker.groups.topic_notifier import HiddenTopics
from faust_assigner.broker.security.acls import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WILDCARD,
    WRITE,
    Acl,
    Acls,
)
from faust_assigner.broker.security.authorizer import EVERYBODY, Authorizer
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.coordinator.catalogue import Catalogue, Topic

NAMES = [f"{team}.{number}" for team in ("a", "ab", "b") for number in range(4)]
USERS = ["User:alice", "User:bob", "User:root"]
HOSTS = ["10.0.0.1", "10.0.0.2"]
ROOT = frozenset({"User:root"})


def topics(*names: str) -> Catalogue:
    """Return a topic of each name."""
    return Catalogue.of(Topic(name, name.encode().ljust(16), 1) for name in names)


def some_rule(pick: random.Random) -> Acl:
    """Return a random rule of topics over few names, users and hosts."""
    pattern = pick.choice((LITERAL, PREFIXED))
    name = pick.choice(("a", "ab", "b.", "")) if pattern == PREFIXED else pick.choice(NAMES)
    return Acl(
        TOPIC,
        name or (WILDCARD if pick.random() < 0.2 else "b"),
        LITERAL if not name else pattern,
        pick.choice([*USERS, EVERYBODY]),
        pick.choice([*HOSTS, WILDCARD, WILDCARD]),
        pick.choice((ALL, READ, WRITE, DESCRIBE)),
        pick.choice((ALLOW, ALLOW, ALLOW, DENY)),
    )


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_topic_is_hidden_exactly_if_the_client_may_not_describe_it(
    seed: int, is_open: bool
) -> None:
    """The authorizer's decision for each client and topic is the same."""
    pick = random.Random(seed)
    acls = Acls(MemoryStore())
    acls.add([some_rule(pick) for _ in range(seed // 2)])
    authorizer = Authorizer(acls, ROOT, allows_without_acl=is_open)
    hidden_from = HiddenTopics(authorizer, topics(*NAMES))
    for user in [*USERS, "User:carol", ""]:
        for host in [*HOSTS, "10.0.0.3"]:
            may = {n for n in NAMES if authorizer.may(user, host, DESCRIBE, TOPIC, n)}
            assert hidden_from(user, f"/{host}") == frozenset(NAMES) - may, (user, host)


def test_only_a_change_of_rules_of_topics_is_told() -> None:
    """Each change costs O(topics); a group's rule and an existing rule cause no update."""
    acls, told = Acls(MemoryStore()), list[int]()
    acls.on_topic_change = lambda: told.append(len(acls))
    rule = Acl(TOPIC, "t", LITERAL, USERS[0], WILDCARD, READ, ALLOW)
    other = rule._replace(resource_type=GROUP)
    acls.add([other])
    acls.remove([other, rule])
    assert told == []
    acls.add([rule])
    acls.add([rule])
    acls.remove([rule])
    assert told == [1, 0]


def test_a_client_costs_the_topics_that_a_rule_opens_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand clients with ten thousand topics must not cost ten million decisions."""
    acls = Acls(MemoryStore())
    acls.add([Acl(TOPIC, f"t{n}", LITERAL, f"User:{n}", WILDCARD, READ, ALLOW) for n in range(50)])
    decided: list[str] = []
    may = Authorizer.may

    def counted(self: Authorizer, *asked: str | int) -> bool:
        decided.append(str(asked[-1]))
        return may(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(Authorizer, "may", counted)
    hidden_from = HiddenTopics(Authorizer(acls, ROOT), topics(*(f"t{n}" for n in range(50))))
    for number in range(50):
        assert len(hidden_from(f"User:{number}", "/10.0.0.1")) == 49
    assert len(decided) == 50 + 50, "once for strangers, then once for each client"
    assert hidden_from("User:x", "/10.0.0.1") is hidden_from("User:y", "/10.0.0.2")
