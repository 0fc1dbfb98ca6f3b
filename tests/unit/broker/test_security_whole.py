"""ACLs, credentials and log-ins after a restart: the effects of a change, a start and a failure."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from faust_assigner.broker.security import acls as a
from faust_assigner.broker.security import credentials as c
from faust_assigner.broker.security import gate
from faust_assigner.broker.security.acls import Acl, AclFilter, Acls
from faust_assigner.broker.security.authorizer import Authorizer
from faust_assigner.broker.security.credentials import MECHANISMS, Credentials, read_users
from faust_assigner.broker.security.gate import FailedLogIns
from faust_assigner.broker.security.listeners import Listener, parse_listeners
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.errors import ConfigError

ALICE, BOB = "User:alice", "User:bob"


def rule(name: str = "t", pattern: int = a.LITERAL, **more: object) -> Acl:
    """Return a rule that lets alice read a topic."""
    return Acl(a.TOPIC, name, pattern, ALICE, "*", a.READ, a.ALLOW)._replace(**more)  # type: ignore[arg-type]


@pytest.fixture
def store() -> MemoryStore:
    """Return an empty store."""
    return MemoryStore()


def found(acls: Acls, *names: str) -> dict[str, list[Acl]]:
    """Return the rules of each topic."""
    return {name: list(acls.for_resource(a.TOPIC, name)) for name in names}


def test_of_rules_with_equal_prefixes_the_last_one_ends_the_look_up(store: MemoryStore) -> None:
    """Two rules share a prefix, a third has equal length; each removal keeps the other rules."""
    one, two = rule("ab", a.PREFIXED), rule("ab", a.PREFIXED, principal=BOB)
    other, group = rule("xy", a.PREFIXED), rule("ab", a.PREFIXED, resource_type=a.GROUP)
    acls = Acls(store)
    acls.add([one, two, other, group])
    names = ("ab", "abc", "a", "xyz", "b")
    none: dict[str, list[Acl]] = {name: [] for name in names}
    assert found(acls, *names) == none | {"ab": [one, two], "abc": [one, two], "xyz": [other]}
    for gone, left in (
        (one, {"ab": [two], "abc": [two], "xyz": [other]}),
        (two, {"xyz": [other]}),
        (other, {}),
    ):
        acls.remove([gone])
        assert found(acls, *names) == none | left
        assert found(Acls(store), *names) == none | left, "after a start, too"
    assert list(acls) == [group]
    assert list(acls.for_resource(a.GROUP, "abc")) == [group]
    acls.add([one])
    assert found(acls, "ab") == {"ab": [one]}


def test_rules_that_the_store_refuses_change_nothing(store: MemoryStore) -> None:
    """No rule is added or removed, and no group is notified."""
    acls, told = Acls(store), list[int]()
    acls.add([rule("t")])
    acls.on_topic_change = lambda: told.append(len(acls))

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("no space")

    store.write = full  # type: ignore[method-assign]
    for change, one in ((acls.add, rule("u")), (acls.remove, rule("t"))):
        with pytest.raises(StoreFailed):
            change([one])
    assert (list(acls), told) == ([rule("t")], [])
    assert found(acls, "t", "u") == {"t": [rule("t")], "u": []}


def test_each_change_of_rules_is_one_write(store: MemoryStore) -> None:
    """A repeated rule is written once, a missing rule is not deleted; each change notifies once."""
    acls, told, writes = Acls(store), list[int](), list[tuple[int, int]]()
    write = store.write

    def noting(puts: object, deletes: object = ()) -> None:
        pairs, gone = list(puts), list(deletes)  # type: ignore[call-overload]
        writes.append((len(pairs), len(gone)))
        write(pairs, gone)

    store.write = noting  # type: ignore[method-assign, assignment]
    acls.on_topic_change = lambda: told.append(len(acls))
    for change, names in (
        (acls.add, ("t", "u", "t")),
        (acls.add, ("u", "v")),
        (acls.remove, ("t", "x", "t")),
    ):
        change([rule(name) for name in names])
    assert writes == [(2, 0), (1, 0), (0, 1)]
    assert told == [2, 3, 2]


@pytest.mark.parametrize(
    ("pattern", "name", "names"),
    [
        (a.MATCH, "orders", ["*", "orders", "ord"]),
        (a.MATCH, "ord", ["*", "ord"]),
        (a.MATCH, "*", ["*"]),
        (a.MATCH, None, ["*", "orders", "ord"]),
        (a.ANY, "ord", ["ord"]),
        (a.PREFIXED, "ord", ["ord"]),
        (a.PREFIXED, "orders", []),
        (a.LITERAL, "orders", ["orders"]),
        (a.LITERAL, None, ["*", "orders"]),
        (a.LITERAL, "*", ["*"]),
    ],
)
def test_a_filter_by_name_selects_by_its_pattern(
    pattern: int, name: str | None, names: list[str]
) -> None:
    """MATCH selects rules that affect the name; other patterns compare names."""
    rules = [rule("*"), rule("orders"), rule("ord", a.PREFIXED)]
    wanted = AclFilter(a.TOPIC, name, pattern, None, None, a.ANY, a.ANY)
    assert [one.name for one in rules if wanted.selects(one)] == names


def test_a_right_on_some_name_is_found_as_by_trying_all_names() -> None:
    """Rules are random with at most two letters; the names have up to three letters."""
    letters = "ab"
    names = ["".join(p) for n in (1, 2, 3) for p in product(letters, repeat=n)]
    pick = random.Random(5)
    seen = set()
    for _ in range(400):
        acls = Acls(MemoryStore())
        acls.add(
            [
                rule(
                    pick.choice(("a", "b", "ab", "*")),
                    pick.choice((a.LITERAL, a.PREFIXED)),
                    principal=pick.choice((ALICE, BOB, "User:*")),
                    operation=pick.choice((a.READ, a.WRITE, a.ALL)),
                    permission=pick.choice((a.ALLOW, a.ALLOW, a.DENY)),
                )
                for _ in range(pick.randint(0, 4))
            ]
        )
        one = Authorizer(acls, frozenset())
        some = one.may_on_some(ALICE, "h", a.READ, a.TOPIC)
        if some:
            # A permission may be for the literal name "*" of a prefix rule, which is no topic's name.
            tried = any(one.may(ALICE, "h", a.READ, a.TOPIC, name) for name in [*names, "*", "*a"])
            assert tried, list(acls)
        seen.add(some)
    assert seen == {True, False}


# -- credentials -------------------------------------------------------------------------------


def test_a_password_is_changed_completed_and_otherwise_left(store: MemoryStore) -> None:
    """Each start reads the file of users: an equal password keeps its salt without a write."""
    users = Credentials(store)
    users.set_password("alice", "one")
    first = {name: users.get(*name) for name in users}
    users.set_password("alice", "one")
    assert {name: users.get(*name) for name in users} == first
    users.set_password("alice", "two")
    second = {name: users.get(*name) for name in users}
    assert second.keys() == first.keys() == {("alice", m) for m in MECHANISMS}
    assert all(second[name] != first[name] for name in first)
    assert [users.is_password("alice", word) for word in ("one", "two")] == [False, True]
    users.change({}, [("alice", MECHANISMS[0])])
    assert users.is_password("alice", "two")
    users.set_password("alice", "two")
    assert set(Credentials(store)) == set(second)


def test_an_unknown_user_has_no_password_not_even_the_made_up_one(store: MemoryStore) -> None:
    """Its keys come from a secret of this process; two processes and two users differ."""
    users, others = Credentials(store), Credentials(store)
    made = [users.fake_credential(name, m) for name in ("x", "y") for m in MECHANISMS]
    assert made == [users.fake_credential(name, m) for name in ("x", "y") for m in MECHANISMS]
    assert len({one.salt for one in made}) == 4
    assert len({key for one in made for key in (one.stored_key, one.server_key)}) == 8
    assert made[0] != others.fake_credential("x", MECHANISMS[0])
    assert [(len(one.salt), one.iterations) for one in made] == [(c.SALT_BYTES, c.ITERATIONS)] * 4
    assert not users.is_password("x", "")


def test_credentials_that_the_store_refuses_change_no_password(store: MemoryStore) -> None:
    """The old password is still valid, and the new password is not."""
    users = Credentials(store)
    users.set_password("alice", "one")

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("no space")

    store.write = full  # type: ignore[method-assign]
    with pytest.raises(StoreFailed):
        users.set_password("alice", "two")
    with pytest.raises(StoreFailed):
        users.change({}, [("alice", m) for m in MECHANISMS])
    assert [users.is_password("alice", word) for word in ("one", "two")] == [True, False]
    assert len(users) == 2


def test_a_file_of_users_is_read_line_by_line(tmp_path: Path) -> None:
    """Spaces, signs in a password, comments and empty lines are read; the order is kept."""
    path = tmp_path / "users"
    path.write_text("# comment\n\n alice = a=b \n  \nbob=#1\nalice=second\n")
    assert read_users(path) == [("alice", " a=b "), ("bob", "#1"), ("alice", "second")]
    for number, line in ((1, "alice"), (2, "\n=secret"), (3, "a=b\n\nbob=\nc=d")):
        path.write_text(line)
        with pytest.raises(ConfigError, match=f"line {number} of") as refused:
            read_users(path)
        assert "secret" not in str(refused.value)


# -- failed log-ins and listeners ------------------------------------------------------------------


def test_the_delay_of_an_address_doubles_up_to_its_limit_and_ends_after_a_minute() -> None:
    """Each failure starts the minute again; exactly a minute later the delay still counts."""
    now = [100.0]
    failures = FailedLogIns(250, lambda: now[0])
    assert [failures.delay_s("a") for _ in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert failures.delay_s("b") == 0.25
    now[0] += gate.FORGET_AFTER_S
    assert [failures.delay_s("b"), failures.delay_s("a")] == [0.5, 5.0]
    now[0] += gate.FORGET_AFTER_S
    assert failures.delay_s("b") == 1.0
    now[0] += gate.FORGET_AFTER_S + 0.001
    assert [failures.delay_s("b"), failures.delay_s("b")] == [0.25, 0.5]
    assert FailedLogIns(0, lambda: 0.0).delay_s("a") == 0.0


def test_a_thousand_failures_of_one_address_wait_no_longer_than_the_longest_delay() -> None:
    """The count rises, but its power of two would not fit into a float."""
    failures = FailedLogIns(1, lambda: 0.0)
    assert [failures.delay_s("a") for _ in range(1_100)][-1] == gate.LONGEST_DELAY_S


@pytest.mark.parametrize(
    ("text", "listeners"),
    [
        ("", []),
        (" , ", []),
        ("h:0", [("PLAINTEXT", "h", 0)]),
        ("h:65535", [("PLAINTEXT", "h", 65_535)]),
        ("SSL://[::1]:9, SASL_SSL://h:8", [("SSL", "::1", 9), ("SASL_SSL", "h", 8)]),
    ],
)
def test_listeners_are_read_with_every_part(
    text: str, listeners: list[tuple[str, str, int]]
) -> None:
    """The written form of the listeners reads back the same."""
    parsed = parse_listeners("listeners", text)
    assert parsed == tuple(Listener(*one) for one in listeners)
    assert parse_listeners("listeners", ",".join(map(str, parsed))) == parsed


@pytest.mark.parametrize("text", ["h:65536", "h:123456", ":1", "SSL://:1", "ssl://h:1"])
def test_an_address_that_is_none_is_named_in_the_error(text: str) -> None:
    """The error names the setting as well."""
    with pytest.raises(ConfigError, match=r"advertised\.listeners must be"):
        parse_listeners("advertised.listeners", f"a:1,{text}")


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_a_protocol_says_whether_it_has_tls_and_a_log_in(
    protocol: str, tls: bool, sasl: bool
) -> None:
    """The protocols have Kafka's names."""
    one = Listener(protocol, "h", 1)
    assert (one.has_tls, one.has_sasl) == (tls, sasl)
