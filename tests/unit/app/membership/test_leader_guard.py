"""How the leader checks the members' metadata before aiokafka reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from faust_assigner.app.membership import leader_guard
from faust_assigner.app.membership.leader_guard import guard_leader, readable
from faust_assigner.wire.bounded import TOPICS
from tests.support.assigning.consumers import virtually


def packed(*topics: str, version: int = 3, user_data: bytes = b"words") -> bytes:
    """Return the metadata of a member."""
    raw: bytes = ConsumerProtocolMemberMetadata(version, list(topics), user_data).encode()
    return raw


@pytest.mark.parametrize("name", ["x" * 249, "a.b_c-D9"])
def test_every_name_that_a_topic_can_have_is_passed_on(name: str) -> None:
    """The member's bytes pass unchanged."""
    raw = packed(name)
    assert readable("m", raw) is raw


@pytest.mark.parametrize("name", ["", "x" * 250, "a b", "orders\n", "täglich"])
def test_a_name_that_no_topic_can_have_is_left_out_alone(name: str, caplog: Any) -> None:
    """The rest of the member's metadata stays."""
    said = ConsumerProtocolMemberMetadata.decode(readable("m-7", packed("a", name, "b")))
    assert (said.version, said.subscription, said.user_data) == (3, ["a", "b"], b"words")
    assert "Left out 1 topics of member m-7" in caplog.text


def test_a_subscription_has_a_bounded_length() -> None:
    """The client asks the broker for each name."""
    raw = packed(*(f"topic-{number}" for number in range(TOPICS + 5)))
    assert len(ConsumerProtocolMemberMetadata.decode(readable("m", raw)).subscription) == TOPICS


def test_a_member_that_does_not_decode_subscribes_to_nothing(caplog: Any) -> None:
    """The other members get their partitions; the log names the faulty member."""
    said = ConsumerProtocolMemberMetadata.decode(readable("m-7", b"\x00\x04\xff"))
    assert (said.subscription, said.user_data) == ([], b"")
    assert "Member m-7 gets no partitions" in caplog.text


@pytest.mark.parametrize("ids", [("m-7",), ("m-7", "instance")], ids=["dynamic", "static"])
async def test_ids_and_order_of_members_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, ids: tuple[str, ...]
) -> None:
    """Newer answers have an instance id between id and metadata."""
    seen: list[Any] = []

    async def perform(response: Any) -> str:
        seen.extend(response.members)
        return "assignments"

    coordinator: Any = SimpleNamespace(_perform_assignment=perform)

    looked: list[Any] = []

    async def find_topics(client: Any, topics: set[str], absent: set[str]) -> None:
        assert seen == []
        looked.append((client, topics, absent))

    monkeypatch.setattr(leader_guard, "_find_topics", find_topics)
    consumer = SimpleNamespace(_coordinator=coordinator, _client="client")
    guard_leader(consumer)
    members = [(*ids, packed("a")), (*ids, b"noise")]
    response = SimpleNamespace(members=members)
    assert await coordinator._perform_assignment(response) == "assignments"
    assert [member[:-1] for member in seen] == [ids, ids]
    assert seen[0][-1] == packed("a")
    assert ConsumerProtocolMemberMetadata.decode(seen[1][-1]).subscription == []
    assert looked == [("client", {"a"}, set())]


async def test_the_topics_of_all_members_are_looked_for_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each round gets the set of absent topics; a consumer without a group has no leader."""
    looked: list[Any] = []

    async def perform(response: Any) -> None:
        """Do nothing."""

    async def find_topics(client: Any, topics: set[str], absent: set[str]) -> None:
        looked.append((topics, set(absent)))
        absent.add("gone")

    monkeypatch.setattr(leader_guard, "_find_topics", find_topics)
    coordinator: Any = SimpleNamespace(_perform_assignment=perform)
    guard_leader(SimpleNamespace(_coordinator=coordinator, _client="client"))
    members = [("m-1", packed("a", "b")), ("m-2", packed("c")), ("m-3", packed("b", "d"))]
    for _ in range(2):
        await coordinator._perform_assignment(SimpleNamespace(members=members))
    assert looked == [({"a", "b", "c", "d"}, set()), ({"a", "b", "c", "d"}, {"gone"})]
    plain = SimpleNamespace()
    guard_leader(SimpleNamespace(_coordinator=plain, _client="client"))
    assert vars(plain) == {}


class Client:
    """aiokafka's client; the broker knows ``topics``, and ``comes`` from request ``comes_at``."""

    def __init__(self, *topics: str) -> None:
        self.named = set(topics)
        self.asked, self.comes_at, self.comes = 0, 0, ""
        self.cluster = SimpleNamespace(
            partitions_for_topic=lambda topic: {0} if topic in self.named else None
        )

    def set_topics(self, topics: set[str]) -> None:
        """Keep the wanted topics."""
        self.wanted = topics

    async def force_metadata_update(self) -> None:
        """Count the request."""
        self.asked += 1
        if self.asked == self.comes_at:
            assert self.comes in self.wanted
            self.named.add(self.comes)


def test_a_topic_waited_for_in_vain_holds_up_no_further_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The leader asks again for a new topic only, until the broker knows the new topic."""

    async def story() -> None:
        client, absent = Client("orders"), set[str]()
        await leader_guard._find_topics(client, {"orders", "gone"}, absent)
        assert (client.asked >= 2, absent) == (True, {"gone"})
        assert "The broker has returned no partitions of ['gone'] for 3.0 s" in caplog.text
        asked = client.asked
        await leader_guard._find_topics(client, {"orders", "gone"}, absent)
        assert client.asked == asked
        client.comes, client.comes_at = "new", asked + 3
        await leader_guard._find_topics(client, {"orders", "gone", "new"}, absent)
        assert (client.asked, absent) == (asked + 3, {"gone"}), (
            "not for longer than the new one takes"
        )

    virtually(story)


def test_a_topic_that_was_found_is_waited_for_when_it_is_lost_again() -> None:
    """A deleted and created topic must be known again in the same round, to restore its table."""

    async def story() -> None:
        client, absent = Client(), set[str]()
        await leader_guard._find_topics(client, {"orders"}, absent)
        assert absent == {"orders"}
        client.named, asked = {"orders"}, client.asked
        await leader_guard._find_topics(client, {"orders"}, absent)
        assert (client.asked, absent) == (asked, set()), "it is there, nobody asks"
        client.named, client.comes, client.comes_at = set(), "orders", asked + 3
        await leader_guard._find_topics(client, {"orders"}, absent)
        assert (client.named, client.asked, absent) == ({"orders"}, asked + 3, set())

    virtually(story)


async def test_a_topic_that_the_broker_has_by_now_costs_one_request() -> None:
    """The client's metadata is older than the topic."""
    client, absent = Client(), set[str]()
    client.comes, client.comes_at = "new", 1
    await leader_guard._find_topics(client, {"new"}, absent)
    assert (client.asked, absent, client.wanted) == (1, set(), {"new"})
