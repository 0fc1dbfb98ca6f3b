"""Access control lists without a socket: rules, filters, and the decision of the authorizer."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.broker.connection_settings import STANDARD_AUTHORIZER
from faust_assigner.broker.limits import MAX_ACLS
from faust_assigner.broker.security import acls as a
from faust_assigner.broker.security.acls import Acl, AclFilter, Acls
from faust_assigner.broker.security.authorizer import Authorizer, distinguished_name, super_users
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.errors import ConfigError

ALICE, HOST = "User:alice", "10.1.2.3"


def rule(
    name: str = "orders",
    operation: int = a.READ,
    permission: int = a.ALLOW,
    *,
    kind: int = a.TOPIC,
    pattern: int = a.LITERAL,
    principal: str = ALICE,
    host: str = "*",
) -> Acl:
    """Return a rule on a topic."""
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(*rules: Acl, **more: Any) -> Authorizer:
    """Return an authorizer with these rules."""
    acls = Acls(MemoryStore())
    acls.add(rules)
    return Authorizer(acls, frozenset({"User:root"}), **more)


def may(rules: list[Acl], operation: int = a.READ, name: str = "orders") -> bool:
    """Return whether alice may perform the operation on a topic."""
    return authorizer(*rules).may(ALICE, HOST, operation, a.TOPIC, name)


def test_without_a_rule_only_super_users_may() -> None:
    """allow.everyone.if.no.acl.found allows resources without any rule."""
    empty = authorizer()
    assert not empty.may(ALICE, HOST, a.READ, a.TOPIC, "orders")
    assert empty.may("User:root", HOST, a.READ, a.TOPIC, "orders")
    loose = authorizer(rule("orders", principal="User:bob"), allows_without_acl=True)
    assert loose.may(ALICE, HOST, a.READ, a.TOPIC, "payments")
    assert not loose.may(ALICE, HOST, a.READ, a.TOPIC, "orders")
    assert loose.may(ALICE, HOST, a.READ, a.GROUP, "orders")
    assert empty.may_on_some("User:root", HOST, a.READ, a.TOPIC)
    assert not empty.may_on_some(ALICE, HOST, a.READ, a.TOPIC)
    assert loose.may_on_some(ALICE, HOST, a.READ, a.TOPIC)


def test_a_right_on_some_topic_does_not_come_from_a_rule_of_a_group() -> None:
    """The names of both may be equal."""
    mixed = authorizer(rule("orders", kind=a.GROUP))
    assert mixed.may_on_some(ALICE, HOST, a.READ, a.GROUP)
    assert not mixed.may_on_some(ALICE, HOST, a.READ, a.TOPIC)


@pytest.mark.parametrize(
    "denial",
    [
        rule(permission=a.DENY),
        rule("*", permission=a.DENY),
        rule("ord", permission=a.DENY, pattern=a.PREFIXED),
        rule(permission=a.DENY, operation=a.ALL),
        rule(permission=a.DENY, principal="User:*"),
        rule(permission=a.DENY, host=HOST),
    ],
)
def test_a_denial_has_priority_over_every_permission(denial: Acl) -> None:
    """The order of the rules does not matter."""
    allowed = [rule(), rule("*", a.ALL), rule("orders", a.ALL, pattern=a.PREFIXED)]
    assert may(allowed)
    assert not may([*allowed, denial])
    assert not may([denial, *allowed])


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        (rule(), "orders", True),
        (rule(), "orders2", False),
        (rule("*"), "orders", True),
        (rule("ord", pattern=a.PREFIXED), "orders", True),
        (rule("orders", pattern=a.PREFIXED), "orders", True),
        (rule("orders2", pattern=a.PREFIXED), "orders", False),
        (rule("ers", pattern=a.PREFIXED), "orders", False),
        (rule(kind=a.GROUP), "orders", False),
        (rule(principal="User:bob"), "orders", False),
        (rule(principal="User:*"), "orders", True),
        (rule(host=HOST), "orders", True),
        (rule(host="10.1.2.4"), "orders", False),
    ],
)
def test_a_rule_counts_for_its_names_principal_and_host(
    given: Acl, name: str, expected: bool
) -> None:
    """Literal names, prefixes and ``*`` match."""
    assert may([given], name=name) is expected


def test_permissions_imply_describe_and_denials_imply_nothing() -> None:
    """READ, WRITE, DELETE and ALTER include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS."""
    implying = {
        op for op in range(a.ALL, a.LAST_OPERATION + 1) if may([rule("t", op)], a.DESCRIBE, "t")
    }
    assert implying == {a.ALL, a.READ, a.WRITE, a.DELETE, a.ALTER, a.DESCRIBE}
    configs = {
        op
        for op in range(a.ALL, a.LAST_OPERATION + 1)
        if may([rule("t", op)], a.DESCRIBE_CONFIGS, "t")
    }
    assert configs == {a.ALL, a.ALTER_CONFIGS, a.DESCRIBE_CONFIGS}
    assert may([rule("t", a.ALL), rule("t", a.READ, a.DENY)], a.DESCRIBE, "t")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([rule("x", a.WRITE)], True),
        ([rule("x", a.READ)], False),
        ([rule("*", a.WRITE)], True),
        ([rule("x", a.WRITE), rule("x", a.WRITE, a.DENY)], False),
        ([rule("x", a.WRITE), rule("y", a.WRITE, a.DENY)], True),
        ([rule("xy", a.WRITE), rule("x", a.WRITE, a.DENY, pattern=a.PREFIXED)], False),
        ([rule("x", a.WRITE), rule("xy", a.WRITE, a.DENY, pattern=a.PREFIXED)], True),
        ([rule("x", a.WRITE, pattern=a.PREFIXED), rule("x", a.WRITE, a.DENY)], True),
        ([rule("*", a.WRITE), rule("x", a.WRITE, a.DENY, pattern=a.PREFIXED)], True),
        (
            [
                rule("*", a.WRITE),
                rule("hard", a.WRITE, a.DENY, pattern=a.PREFIXED),
                rule("*", a.WRITE, a.DENY, pattern=a.PREFIXED),
            ],
            True,
        ),
        ([rule("x", a.WRITE), rule("*", a.WRITE, a.DENY)], False),
        ([rule("x", a.WRITE, host="10.0.0.9")], False),
        ([rule("x", a.WRITE, principal="User:bob")], False),
    ],
)
def test_a_right_on_some_topic_needs_a_name_that_no_denial_covers(
    rules: list[Acl], expected: bool
) -> None:
    """For idempotent producers: the right to write to any topic is enough."""
    assert authorizer(*rules).may_on_some(ALICE, HOST, a.WRITE, a.TOPIC) is expected


def test_rules_are_stored_once_and_found_again() -> None:
    """A second start reads them; a deleted rule and its prefix are gone."""
    store = MemoryStore()
    first = Acls(store)
    prefixed = rule("ord", pattern=a.PREFIXED)
    first.add([rule(), rule(), prefixed])
    again = Acls(store)
    assert set(again) == {rule(), prefixed}
    assert len(again) == 2
    again.remove([prefixed])
    assert list(again.for_resource(a.TOPIC, "orders")) == [rule()]
    assert list(Acls(store)) == [rule()]
    assert first.has_room(MAX_ACLS - 2)
    assert not first.has_room(MAX_ACLS - 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resource_type": a.ANY}, "resource type"),
        ({"pattern_type": a.MATCH}, "pattern type"),
        ({"name": ""}, "name is empty"),
        ({"resource_type": a.CLUSTER, "name": "c"}, "kafka-cluster"),
        ({"operation": a.ANY}, "operation"),
        ({"permission": a.ANY}, "permission"),
        ({"principal": "alice"}, "TYPE:NAME"),
        ({"host": ""}, "host is empty"),
    ],
)
def test_an_invalid_rule_has_a_reason(change: dict[str, Any], words: str) -> None:
    """The answer of CreateAcls contains the reason."""
    assert rule().problem() is None
    assert words in (rule()._replace(**change).problem() or "")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"literal", "prefix", "all"}),
        ({"name": "orders"}, {"literal"}),
        ({"name": "orders", "pattern_type": a.MATCH}, {"literal", "prefix", "all"}),
        ({"name": "other", "pattern_type": a.MATCH}, {"all"}),
        ({"name": "ord", "pattern_type": a.PREFIXED}, {"prefix"}),
        ({"pattern_type": a.LITERAL}, {"literal", "all"}),
        ({"operation": a.WRITE}, {"all"}),
        ({"permission": a.DENY}, {"prefix"}),
        ({"principal": "User:bob"}, {"all"}),
        ({"host": HOST}, {"literal"}),
        ({"resource_type": a.GROUP}, set()),
    ],
)
def test_a_filter_selects_by_each_field(change: dict[str, Any], expected: set[str]) -> None:
    """ANY and null select everything; MATCH selects the rules that affect a name."""
    rules = {
        "literal": rule(host=HOST),
        "prefix": rule("ord", permission=a.DENY, pattern=a.PREFIXED),
        "all": rule("*", a.WRITE, principal="User:bob"),
    }
    wanted = AclFilter(a.ANY, None, a.ANY, None, None, a.ANY, a.ANY)._replace(**change)
    assert wanted.problem() is None
    assert {label for label, one in rules.items() if wanted.selects(one)} == expected


def test_a_filter_with_an_unknown_number_is_invalid() -> None:
    """0 is UNKNOWN in Kafka."""
    wanted = AclFilter(a.ANY, None, a.ANY, None, None, a.ANY, a.ANY)
    for name in ("resource_type", "pattern_type", "operation", "permission"):
        for value in (0, 99):
            assert wanted._replace(**{name: value}).problem() is not None


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("resource_type", a.TOPIC, a.USER),
        ("pattern_type", a.LITERAL, a.PREFIXED),
        ("operation", a.ALL, a.LAST_OPERATION),
        ("permission", a.DENY, a.ALLOW),
    ],
)
def test_each_number_of_a_rule_is_valid_from_the_first_to_the_last(
    field: str, low: int, high: int
) -> None:
    """Filters have ANY before the first; a number outside is unknown to both."""
    one = rule(a.THE_CLUSTER)
    wanted = AclFilter(a.ANY, None, a.ANY, None, None, a.ANY, a.ANY)
    for value in range(low - 2, high + 3):
        is_valid = low <= value <= high
        assert (one._replace(**{field: value}).problem() is None) is is_valid
        assert (wanted._replace(**{field: value}).problem() is None) is (a.ANY <= value <= high)


def test_an_empty_name_in_a_filter_selects_no_rule_and_no_name_selects_all() -> None:
    """The same holds for principals and hosts."""
    one = rule()
    wanted = AclFilter(a.ANY, None, a.ANY, None, None, a.ANY, a.ANY)
    assert wanted.selects(one)
    for field in ("name", "principal", "host"):
        assert not wanted._replace(**{field: ""}).selects(one)


def test_super_users_are_separated_by_semicolons() -> None:
    """A distinguished name contains commas."""
    parsed = Settings.parse(
        {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:CN=a,OU=b; User:c"}
    )
    assert super_users(parsed.super_users) == {"User:CN=a,OU=b", "User:c"}
    with pytest.raises(ConfigError, match="TYPE:NAME"):
        Settings.parse({"super.users": "admin"})
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        Settings.parse({"authorizer.class.name": "com.example.Other"})


def test_a_subject_is_named_as_java_names_it() -> None:
    """RFC 2253: last attribute first, special characters escaped; no certificate has no name."""
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "A, B"),),
        (("commonName", "shop"), ("userId", "7")),
    )
    assert distinguished_name({"subject": subject}) == r"CN=shop+UID=7,O=A\, B,C=DE"
    assert distinguished_name({"subject": ((("commonName", " #x "),),)}) == r"CN=\ #x\ "
    assert distinguished_name({"subject": ((("commonName", " "),),)}) == r"CN=\ "
    assert distinguished_name(None) is None
    assert distinguished_name({}) is None


def test_rules_that_are_gone_count_for_nothing_and_cost_nothing() -> None:
    """A prefix is looked for while a rule has its length."""
    acls = Acls(MemoryStore())
    rules = [rule("ord", pattern=a.PREFIXED), rule("ord", a.WRITE, pattern=a.PREFIXED), rule("x")]
    for one in rules:
        acls.add([one])
    for one, lengths in zip(rules, ([3], [], []), strict=True):
        acls.remove([one])
        assert one not in acls.for_resource(a.TOPIC, "orders")
        assert [length for _, length in acls._lengths] == lengths
    assert list(acls) == list(acls.for_resource(a.TOPIC, "x")) == []


def test_a_rule_of_all_names_is_found_once_for_the_name_of_all_names() -> None:
    """The rule for all names is a rule for the literal name ``*`` as well."""
    acls = Acls(MemoryStore())
    acls.add([rule("*")])
    assert [len(list(acls.for_resource(a.TOPIC, name))) for name in ("*", "x")] == [1, 1]
