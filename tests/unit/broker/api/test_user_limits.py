"""Limits of users and filters of transactions, at the last allowed value and at the next one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker.api import sasl
from faust_assigner.broker.api.transaction_views import list_transactions
from faust_assigner.broker.security.credentials import Credentials
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.broker.topics import Refused
from faust_assigner.coordinator.transactions import State, Transaction


def change(**more: Any) -> Any:
    """Return a new credential as a client sends it."""
    fields = {"mechanism": 1, "iterations": 4_096, "salt": b"s", "salted_password": b"p"}
    return SimpleNamespace(**{**fields, **more})


@pytest.mark.parametrize(
    ("fields", "is_valid"),
    [
        ({"salt": bytes(1_024)}, True),
        ({"salt": bytes(1_025)}, False),
        ({"salt": b""}, False),
        ({"salted_password": b""}, False),
        ({"iterations": 16_384}, True),
        ({"iterations": 16_385}, False),
        ({"iterations": 4_095}, False),
    ],
)
def test_a_credential_has_limits(fields: dict[str, Any], is_valid: bool) -> None:
    """A valid credential keeps its salt and its iterations."""
    asked = change(**fields)
    if is_valid:
        found = sasl._new_credential("SCRAM-SHA-256", asked)
        assert (found.salt, found.iterations) == (asked.salt, asked.iterations)
    else:
        with pytest.raises(Refused) as refused:
            sasl._new_credential("SCRAM-SHA-256", asked)
        assert refused.value.error is ErrorCode.unacceptable_credential


def test_names_are_limited_in_bytes_and_known_users_need_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full broker changes the password of a user that it has, and refuses the next user."""
    credentials = Credentials(MemoryStore())
    call = cast(Any, SimpleNamespace(node=SimpleNamespace(credentials=credentials)))
    longest = "ü" * 512
    sasl._alter_user(call, longest, [change()])
    for name in (longest + "x", ""):
        with pytest.raises(Refused) as refused:
            sasl._alter_user(call, name, [change()])
        assert refused.value.error is ErrorCode.unacceptable_credential
    monkeypatch.setattr(sasl, "MAX_CREDENTIALS", 1)
    sasl._alter_user(call, longest, [change(salt=b"new")])
    with pytest.raises(Refused) as refused:
        sasl._alter_user(call, "next", [change()])
    assert refused.value.error is ErrorCode.policy_violation
    assert list(credentials) == [(longest, "SCRAM-SHA-256")]
    assert credentials.get(longest, "SCRAM-SHA-256").salt == b"new"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("longer_than_ms", "listed"),
    [
        (-1, ["old", "new", "ahead"]),
        (0, ["old", "new", "ahead"]),
        (300, ["old", "ahead"]),
        (699, ["old", "ahead"]),
        (700, ["ahead"]),
    ],
)
async def test_transactions_are_listed_by_their_duration(
    longer_than_ms: int, listed: list[str]
) -> None:
    """As in Kafka, a start that is ahead of the clock passes every filter."""

    async def turn(size: int) -> None: ...

    transactions = [
        Transaction(name, number, 0, 9, State.ONGOING, started_ms=started)
        for number, (name, started) in enumerate((("old", 300), ("new", 700), ("ahead", 1_001)))
    ]
    node = SimpleNamespace(transactions=transactions, clock=lambda: 1_000)
    call = SimpleNamespace(
        node=node, may=lambda *_: True, throttle=SimpleNamespace(checkpoint=turn), version=2
    )
    request = SimpleNamespace(
        state_filters=("Ongoing", "Odd"), producer_id_filters=(), duration_filter=longer_than_ms
    )
    found = await list_transactions(cast(Any, call), cast(Any, request))
    assert found == {
        "error_code": ErrorCode.none,
        "unknown_state_filters": ("Odd",),
        "transaction_states": [
            {"transactional_id": name, "producer_id": number, "transaction_state": "Ongoing"}
            for number, name in enumerate(("old", "new", "ahead"))
            if name in listed
        ],
    }
