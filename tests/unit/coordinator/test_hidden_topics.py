"""Regex subscriptions of clients with limited rights: no client gets or sees a hidden topic."""

from __future__ import annotations

from dataclasses import replace

from faust_assigner.coordinator.catalogue import Catalogue, Hidden
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.consumer.subscriptions import Topics
from faust_assigner.coordinator.events import CatalogueChanged
from faust_assigner.coordinator.records import Pattern, Record
from tests.support.coordination.consumer_bench import GROUP, Bench, catalogue

ALL = frozenset(("open", "secret"))
ALICE, BOB = "User:alice", "User:bob"


def hiding(**hidden: str) -> Hidden:
    """Hide a topic from each named user, at any host."""
    return lambda principal, host: frozenset(
        hidden[user] for user in hidden if principal == f"User:{user}"
    )


def topics(**hidden: str) -> Catalogue:
    """Return two topics of two partitions, each hidden from the named users."""
    return replace(catalogue(open=2, secret=2), hidden_from=hiding(**hidden))


class Group(Bench):
    """A group of members that subscribe to every topic, with rights."""

    def __init__(self, **hidden: str) -> None:
        super().__init__(open=2, secret=2)
        self.rights(**hidden)

    def rights(self, **hidden: str) -> None:
        """Change the rights and keep the topics."""
        self.catalogue = topics(**hidden)
        self.step(CatalogueChanged(self.catalogue))

    def read(self, member_id: str, principal: str) -> dict[str, tuple[int, ...]]:
        """Join with an expression for every topic; return the assignment."""
        reply = self.join(member_id, subscribed_topic_regex=".*", principal=principal)
        return self.given(reply) or {}

    def settle(self, *members: tuple[str, str]) -> dict[str, dict[str, tuple[int, ...]]]:
        """Let members (id, principal) confirm their assignments; return the partitions of each."""
        held: dict[str, dict[str, tuple[int, ...]]] = {member: {} for member, _ in members}
        for _ in range(4):
            for member, principal in members:
                stood = next(m for m in self.group.describe().members if m.member_id == member)
                owned = self.catalogue.names_of(stood.assigned)
                reply = self.heartbeat(
                    member, stood.epoch, owned, principal=principal, rebalance_timeout_ms=60_000
                )
                held[member] = self.given(reply) or owned
        return held


def test_an_expression_matches_only_topics_that_its_client_may_describe() -> None:
    """Two clients have the same expression, and each gets the topics of its own rights."""
    group = Group(alice="secret")
    assert group.read("a", ALICE) == {"open": (0, 1)}
    group.read("b", BOB)
    held = group.settle(("a", ALICE), ("b", BOB))
    assert "secret" not in held["a"]
    assert held["b"]["secret"] == (0, 1)


def test_a_withdrawn_right_moves_the_partitions_to_a_client_that_has_it() -> None:
    """The group's subscribed topics stay the same, so their names cannot show the change."""
    group = Group(bob="open")
    group.read("a", ALICE)
    group.read("b", BOB)
    before = group.settle(("a", ALICE), ("b", BOB))
    assert before == {"a": {"open": (0, 1)}, "b": {"secret": (0, 1)}}
    group.rights(alice="open", bob="secret")
    after = group.settle(("a", ALICE), ("b", BOB))
    assert after == {"a": {"secret": (0, 1)}, "b": {"open": (0, 1)}}


def test_two_clients_that_exchange_their_rights_exchange_their_partitions() -> None:
    """The group's sets of topics stay the same, but the two clients exchange them."""
    group = Group(alice="open", bob="secret")
    group.read("a", ALICE)
    group.read("b", BOB)
    before = group.settle(("a", ALICE), ("b", BOB))
    assert before == {"a": {"secret": (0, 1)}, "b": {"open": (0, 1)}}
    group.rights(alice="secret", bob="open")
    after = group.settle(("a", ALICE), ("b", BOB))
    assert after == {"a": {"open": (0, 1)}, "b": {"secret": (0, 1)}}


def test_a_new_right_is_followed_without_a_new_subscription() -> None:
    """The member does not repeat its expression; the broker keeps the expression."""
    group = Group(alice="secret")
    assert group.read("a", ALICE) == {"open": (0, 1)}
    group.rights()
    assert group.settle(("a", ALICE)) == {"a": {"open": (0, 1), "secret": (0, 1)}}


def test_a_member_under_another_principal_gets_the_topics_of_the_new_one() -> None:
    """A static member may return with a different log-in."""
    group = Group(alice="secret")
    assert group.read("m", BOB) == {"open": (0, 1), "secret": (0, 1)}
    epoch = group.group.describe().epoch
    assert group.settle(("m", ALICE)) == {"m": {"open": (0, 1)}}
    assert group.group.describe().epoch == epoch + 1
    assert group.settle(("m", ALICE)) == {"m": {"open": (0, 1)}}
    assert group.group.describe().epoch == epoch + 1


def test_a_restored_group_with_the_same_rights_has_no_rebalance() -> None:
    """The fingerprint of the topics is stored and must not depend on the process."""
    group = Group(alice="secret")
    group.read("a", ALICE)
    epoch = group.group.describe().epoch
    records = [Record(key, value) for key, value in group.disk.items()]
    for hidden, rises in (({"alice": "secret"}, 0), ({}, 1)):
        restored = ConsumerGroup(
            GROUP,
            group.limits,
            topics(**hidden),
            group.now,
            restore_classic=ClassicGroup.restore,
        ).restore(records)
        group.group = restored
        group.wait(1_000)
        assert restored.describe().epoch == epoch + rises


def test_hidden_topics_are_not_among_the_subscribed_ones() -> None:
    """Offsets of a hidden topic expire like offsets of an unsubscribed topic."""
    group = Group(alice="secret")
    group.read("a", ALICE)
    assert group.group.subscribed_topics() == {"open"}


def test_without_hidden_topics_readers_share_one_result() -> None:
    """Many hosts with the same expression cost one match; without rights the number is the same."""
    seen = Topics(topics())
    first = seen.matching(Pattern("o.*", ALICE, "/10.0.0.1"))
    assert seen.matching(Pattern("o.*", BOB, "/10.0.0.2")) is first
    many = [Pattern(".*", ALICE), Pattern(".*", BOB)]
    assert seen.fingerprint(set(), many) == seen.catalogue.fingerprint(ALL)
    partly = Topics(topics(alice="secret"))
    assert partly.fingerprint(set(), many) != seen.fingerprint(set(), many)
    assert partly.fingerprint(set(), [Pattern(".*", BOB)]) == seen.catalogue.fingerprint(ALL)


def test_another_principal_with_the_same_topics_is_no_new_subscription() -> None:
    """Only a change of topics causes a rebalance."""
    group = Group(alice="secret")
    group.read("m", BOB)
    assert group.heartbeat("m", 2, principal="User:carol").member_epoch == 2
    assert group.group.describe().epoch == 2


def test_the_rights_of_one_user_may_differ_between_its_hosts() -> None:
    """A rule names a host; the same expression has a result for each."""
    hidden: Hidden = lambda principal, host: frozenset({"secret"} if host == "/far" else ())  # noqa: E731
    found = Topics(replace(catalogue(open=2, secret=2), hidden_from=hidden))
    near, far = (Pattern(".*", ALICE, host) for host in ("/near", "/far"))
    assert [found.matching(one) for one in (near, far, near)] == [ALL, {"open"}, ALL]
    assert found.existing_topics(frozenset(), [far]) == {"open"}
    assert found.existing_topics(frozenset(), [near]) == ALL
