"""The kind of worker behind a member, and the next roll of the group."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from faust_assigner.clients import rolls as module
from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.clients.rolls import (
    COOPERATIVE,
    EAGER,
    STOCK,
    STRANGER,
    Rolls,
    Worker,
    kind_of,
    rolls,
)
from faust_assigner.errors import TryAgain
from faust_assigner.wire import join
from faust_assigner.wire.join import JoinData, encode_join

BACK = "back to stock: roll with FAUST_ASSIGNER_COOPERATIVE=0 first"
BACK_FROM_MIXED = "back to stock: roll the cooperative ones with FAUST_ASSIGNER_COOPERATIVE=0 first"


def metadata(user_data: bytes) -> bytes:
    """Return the metadata as a member sends it."""
    encoded: bytes = ConsumerProtocolMemberMetadata(0, ["orders"], user_data).encode()
    return encoded


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            metadata(encode_join(JoinData("http://a", {}, cooperative=True), ("orders",))),
            COOPERATIVE,
        ),
        (metadata(encode_join(JoinData("http://a", {}), ("orders",))), EAGER),
        (
            metadata(
                json.dumps(
                    {
                        "assignment": {"actives": {}, "standbys": {}},
                        "url": "http://a",
                        "changelog_distribution": {},
                    }
                ).encode()
            ),
            STOCK,
        ),
        (metadata(b""), STRANGER),
        (b"", STRANGER),
        (b"\xff" * 20, STRANGER),
    ],
    ids=["cooperative", "setting off", "stock", "another consumer", "nothing", "junk"],
)
def test_a_member_says_what_it_is(said: bytes, kind: str) -> None:
    """The kind follows from the metadata of the member's last join."""
    assert kind_of(said) == kind


async def test_a_group_without_members_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelled name has no worker to roll."""

    class Client:
        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def coordinator_lookup(self, *_: object) -> int:
            return 0

    async def described(*_: object) -> SimpleNamespace:
        return SimpleNamespace(members=(), protocol_data="")

    monkeypatch.setattr(module, "client_of", lambda connection: Client())
    monkeypatch.setattr(module, "described", described)
    with pytest.raises(GroupNotFound, match="'misspelled'"):
        await rolls({}, "misspelled")


async def test_a_group_in_a_rebalance_has_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its members look like strangers, and "back to stock: one roll" would be wrong."""

    @contextlib.asynccontextmanager
    async def client(_: object) -> AsyncIterator[Any]:
        async def lookup(*_: object) -> int:
            return 0

        yield SimpleNamespace(coordinator_lookup=lookup)

    said = metadata(encode_join(JoinData("http://a", {}, cooperative=True), ("orders",)))
    member = SimpleNamespace(member_id="m", client_id="c", client_host="/h", member_metadata=b"")
    group = SimpleNamespace(members=(member,), protocol_data="", group_state="PreparingRebalance")

    async def described(*_: object) -> SimpleNamespace:
        return group

    monkeypatch.setattr(module, "client_of", client)
    monkeypatch.setattr(module, "described", described)
    with pytest.raises(TryAgain, match="PreparingRebalance"):
        await rolls({}, "shop")
    group.group_state, group.protocol_data = "Stable", join.COOPERATIVE
    member.member_metadata = said
    assert (await rolls({}, "shop")).roll_steps == ("rebalances are cooperative", BACK)


@pytest.mark.parametrize(
    ("kinds", "chosen", "advice"),
    [
        ((COOPERATIVE, COOPERATIVE), join.COOPERATIVE, ("rebalances are cooperative", BACK)),
        (
            (COOPERATIVE, COOPERATIVE),
            "faust",
            ("rebalances are cooperative from the next one on", BACK),
        ),
        (
            (COOPERATIVE, EAGER, STOCK, STOCK),
            "faust",
            (
                "rebalances stop everybody",
                "2 stock: roll them to this assignor",
                "1 eager: roll them after the causes in their logs are removed",
                BACK_FROM_MIXED,
            ),
        ),
        (
            (EAGER, EAGER),
            "faust",
            (
                "rebalances stop everybody",
                "2 eager: roll them after the causes in their logs are removed",
                "back to stock: one roll",
            ),
        ),
    ],
)
def test_the_next_roll_is_named_in_both_directions(
    kinds: Sequence[str], chosen: str, advice: Sequence[str]
) -> None:
    """The upgrade takes a single roll, the way back two."""
    workers = [
        Worker(member_id=f"m{n}", client_id="c", host="h", kind=kind)
        for n, kind in enumerate(kinds)
    ]
    assert Rolls(chosen=chosen, workers=workers).roll_steps == advice


async def test_the_members_of_a_group_are_listed_by_their_ids_with_every_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group's coordinator is looked up once."""
    asked: list[object] = []

    class Client:
        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None:
            asked.append("closed")

        async def coordinator_lookup(self, *what: object) -> int:
            asked.append(what)
            return 7

    async def described(client: object, node: int, group_id: str) -> SimpleNamespace:
        asked.append((node, group_id))
        said = {"m2": encode_join(JoinData("http://a", {}), ("orders",)), "m1": b""}
        members = [
            SimpleNamespace(
                member_id=name, client_id={"m1": "z", "m2": "a"}[name], client_host=f"/{name}",
                member_metadata=metadata(data),
            )
            for name, data in said.items()
        ]  # fmt: skip
        return SimpleNamespace(members=members, protocol_data="faust", group_state="Stable")

    def client_of(connection: object) -> Client:
        asked.append(connection)
        return Client()

    monkeypatch.setattr(module, "client_of", client_of)
    monkeypatch.setattr(module, "described", described)
    assert await rolls({"bootstrap_servers": "b:1"}, "shop") == Rolls(
        chosen="faust",
        workers=(
            Worker(member_id="m1", client_id="z", host="/m1", kind=STRANGER),
            Worker(member_id="m2", client_id="a", host="/m2", kind=EAGER),
        ),
    )
    assert asked == [
        {"bootstrap_servers": "b:1"}, (CoordinationType.GROUP, "shop"), (7, "shop"), "closed",
    ]  # fmt: skip
