"""Stories of rules, users and log-ins, for test_answers."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from faust_assigner.broker.security import acls as a
from faust_assigner.broker.security.acls import ALTER, CLUSTER, DESCRIBE, READ, THE_CLUSTER, TOPIC
from tests.unit.broker.api.played import Ask, Do, Restart, Story
from tests.unit.broker.api.stories_of_topics import full_disk, rules, settings

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, USERS, ALTER_USERS, HANDSHAKE, LOG_IN = (
    29, 30, 31, 50, 51, 17, 36,
)  # fmt: skip


def _rule(name: str, principal: str = "User:p", **more: Any) -> dict[str, Any]:
    return {
        "resource_type": a.TOPIC, "resource_name": name, "resource_pattern_type": a.LITERAL,
        "principal": principal, "host": "*", "operation": a.READ, "permission_type": a.ALLOW, **more,
    }  # fmt: skip


def _selects(**more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1, **more,
    }  # fmt: skip


def _salted(user: str, mechanism: int = 1, iterations: int = 4_096, **more: Any) -> dict[str, Any]:
    return {
        "name": user, "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
        "salted_password": b"password", **more,
    }  # fmt: skip


def _users(*upserts: dict[str, Any], gone: tuple[tuple[str, int], ...] = ()) -> Ask:
    deletions = [{"name": user, "mechanism": number} for user, number in gone]
    return Ask(ALTER_USERS, 0, {"deletions": deletions, "upsertions": list(upserts)})


_MANY: Final = rules((ALTER, CLUSTER, THE_CLUSTER), (DESCRIBE, CLUSTER, THE_CLUSTER))
SECURITY: Story = (
    Ask(DESCRIBE_ACLS, 1, _selects()),
    Ask(CREATE_ACLS, 1, {"creations": [_rule("a"), _rule("b")]}),
    Ask(DELETE_ACLS, 1, {"filters": [_selects(), _selects()]}),
    _MANY,
    Ask(CREATE_ACLS, 2, {"creations": [
        _rule("a"), _rule("", "User:q"), _rule("every", "User:z", operation=a.ALL),
        _rule("b", "q"), _rule("a", "User:r", operation=a.WRITE, host="h"),
        _rule("p", resource_type=a.GROUP, resource_pattern_type=a.PREFIXED, permission_type=a.DENY),
    ]}),
    Ask(DESCRIBE_ACLS, 3, _selects()),
    Ask(DESCRIBE_ACLS, 2, _selects(resource_name_filter="a", pattern_type_filter=a.LITERAL, host_filter="h")),
    Ask(DESCRIBE_ACLS, 1, _selects(operation=99)),
    Ask(DELETE_ACLS, 3, {"filters": [
        _selects(principal_filter="User:p"), _selects(permission_type=99),
            _selects(resource_name_filter="zz"),
    ]}),
    Ask(DESCRIBE_ACLS, 3, _selects()),
    _users(
        _salted("b", 2, 5_000), _salted("a"), _salted("c", 3), _salted("d", 0), _salted("e", 1, 4_095),
        _salted("f", salt=b""), _salted("g", salted_password=b""), _salted("h", 1, 16_384),
            _salted("i", 1, 16_385),
        _salted("a", 2), _salted(""), gone=(("b", 1), ("x", 1), ("y", 9)),
    ),
    _users(_salted("b", 2, 5_000), _salted("a"), _salted("j", 1, 7_000)),
    Ask(USERS, 0, {"users": None}),
    Ask(USERS, 0, {"users": [{"name": name} for name in ("j", "x", "b", "j", "a")]}),
    _users(gone=(("b", 2), ("a", 2))),
    Restart(),
    _MANY,
    Ask(USERS, 0, {"users": []}),
    Ask(HANDSHAKE, 1, {"mechanism": "PLAIN"}),
    Ask(LOG_IN, 1, {"auth_bytes": b"hello"}),
    Ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"}, peer="sasl 1"),
    Ask(LOG_IN, 2, {"auth_bytes": b"n,,n=a,r=1"}, peer="sasl 1"),
    Ask(HANDSHAKE, 0, {"mechanism": "NTLM"}, peer="sasl 2"),
    _users(_salted("p", salted_password=hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4_096))),
    settings(sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512", sasl_plain_without_tls=True),
    Ask(HANDSHAKE, 1, {"mechanism": "PLAIN"}, peer="sasl 4"),
    Ask(LOG_IN, 1, {"auth_bytes": b"\0p\0secret"}, peer="sasl 4"),
    Ask(HANDSHAKE, 1, {"mechanism": "PLAIN"}, peer="sasl 4"),
    Ask(LOG_IN, 1, {"auth_bytes": b"\0p\0secret"}, peer="sasl 4"),
    Ask(USERS, 0, {"users": [{"name": "p"}]}, peer="sasl 4"),
    rules((READ, TOPIC, "t")),
    Ask(DESCRIBE_ACLS, 1, _selects()),
    Ask(CREATE_ACLS, 1, {"creations": [_rule("a"), _rule("b")]}),
    Ask(DELETE_ACLS, 1, {"filters": [_selects(), _selects()]}),
    Ask(USERS, 0, {"users": [{"name": "a"}]}),
    _users(_salted("k"), gone=(("b", 2),)),
    _MANY,
    Do("a full disk", full_disk),
    _users(_salted("k"), _salted("l", 1, 7), gone=(("j", 1),)),
)  # fmt: skip

STORIES: Final[dict[str, Story]] = {"security": SECURITY}
