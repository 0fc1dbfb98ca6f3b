"""Log-in (SaslHandshake, SaslAuthenticate) and users (Alter- and DescribeUserScramCredentials, KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.limits import MAX_CREDENTIALS
from faust_assigner.broker.security.credentials import (
    ITERATIONS,
    LONGEST_SALT,
    LONGEST_USER,
    MECHANISMS,
    MOST_ITERATIONS,
    Credential,
    from_salted,
)
from faust_assigner.broker.security.gate import SASL_AUTHENTICATE, SASL_HANDSHAKE, LogInFailed
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topics import Refused

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import ScramCredentialUpsertion
    from kio.schema.describe_user_scram_credentials.v0.request import (
        DescribeUserScramCredentialsRequest,
    )
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
FAILED: Final = "Authentication failed: invalid user name or password"


def handshake(call: Call, request: SaslHandshakeRequest) -> Values:
    """Choose a mechanism; ILLEGAL_SASL_STATE on listeners without SASL and after the log-in."""
    gate = call.peer.gate
    if gate is None or gate.is_open:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
    is_offered = gate.choose(request.mechanism, is_raw=call.version == 0)
    error = ErrorCode.none if is_offered else ErrorCode.unsupported_sasl_mechanism
    return {"error_code": error, "mechanisms": gate.mechanisms}


async def authenticate(call: Call, request: SaslAuthenticateRequest) -> Values:
    """Handle one message of the log-in. After a failure, delay the answer and close the connection."""
    gate = call.peer.gate
    if gate is None or gate.is_open:
        return _refusal_values(ErrorCode.illegal_sasl_state, "no log-in is in progress")
    try:
        answer = await gate.answer(request.auth_bytes)
    except LogInFailed:
        return _refusal_values(ErrorCode.sasl_authentication_failed, FAILED)
    return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": answer}


def _refusal_values(error: ErrorCode, message: str) -> Values:
    return {"error_code": error, "error_message": message, "auth_bytes": b""}


async def describe_users(call: Call, request: DescribeUserScramCredentialsRequest) -> Values:
    """Return the mechanisms and iterations of users, but never salts or keys."""
    credentials = call.node.credentials
    names = [one.name for one in request.users] if request.users else None
    asked = Counter(names) if names is not None else Counter({user: 1 for user, _ in credentials})
    results = []
    for user, times in asked.items():
        results.append(_user_values(call, user, times))
        await call.throttle.checkpoint()
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


def _user_values(call: Call, user: str, times: int) -> Values:
    found = [
        {"mechanism": number, "iterations": known.iterations}
        for number, mechanism in enumerate(MECHANISMS, 1)
        if (known := call.node.credentials.get(user, mechanism)) is not None
    ]
    error, message = ErrorCode.none, None
    if times > 1:
        error, message = ErrorCode.duplicate_resource, f"user {user!r} is named twice"
    elif not found:
        error = ErrorCode.resource_not_found
        message = f"user {user!r} has no SCRAM credentials"
    infos = found if error is ErrorCode.none else ()
    return {"user": user, "error_code": error, "error_message": message, "credential_infos": infos}


async def alter_users(call: Call, request: Any) -> Values:
    """Store and delete salted credentials. After an invalid change, a user keeps all its credentials."""
    changes: dict[str, list[Any]] = {}
    for one in (*request.deletions, *request.upsertions):
        changes.setdefault(one.name, []).append(one)
    results = []
    for user, those in changes.items():
        error, message = ErrorCode.none, None
        try:
            _alter_user(call, user, those)
        except Refused as refused:
            error, message = refused.error, refused.message
        except StoreFailed as failed:
            error, message = ErrorCode.kafka_storage_error, str(failed)
        results.append({"user": user, "error_code": error, "error_message": message})
        await call.throttle.checkpoint()
    return {"results": results}


def _alter_user(call: Call, user: str, changes: Sequence[Any]) -> None:
    puts: dict[tuple[str, str], Credential] = {}
    deletes: list[tuple[str, str]] = []
    if not user or len(user.encode()) > LONGEST_USER:
        raise Refused(ErrorCode.unacceptable_credential, "the user name is empty or too long")
    for change in changes:
        if not 1 <= change.mechanism <= len(MECHANISMS):
            raise Refused(
                ErrorCode.unsupported_sasl_mechanism, f"unknown mechanism {change.mechanism}"
            )
        mechanism = MECHANISMS[change.mechanism - 1]
        if hasattr(change, "salted_password"):
            puts[user, mechanism] = _new_credential(mechanism, change)
        elif call.node.credentials.get(user, mechanism) is None:
            raise Refused(
                ErrorCode.resource_not_found, f"user {user!r} has no {mechanism} credential"
            )
        else:
            deletes.append((user, mechanism))
    if len(changes) > 1:  # Kafka allows one change per user in a request, whatever the mechanism
        raise Refused(ErrorCode.duplicate_resource, f"user {user!r} is changed twice")
    credentials = call.node.credentials
    if len(credentials) >= MAX_CREDENTIALS and any(credentials.get(*name) is None for name in puts):
        raise Refused(
            ErrorCode.policy_violation, f"the limit of {MAX_CREDENTIALS} credentials is reached"
        )
    credentials.change(puts, deletes)


def _new_credential(mechanism: str, change: ScramCredentialUpsertion) -> Credential:
    if not ITERATIONS <= change.iterations <= MOST_ITERATIONS:
        raise Refused(
            ErrorCode.unacceptable_credential,
            f"the change has {change.iterations} iterations; {ITERATIONS} to {MOST_ITERATIONS} are "
            "allowed",
        )
    if not change.salt or not change.salted_password:
        raise Refused(ErrorCode.unacceptable_credential, "the salt or the password is empty")
    if len(change.salt) > LONGEST_SALT:
        raise Refused(
            ErrorCode.unacceptable_credential, f"the salt has more than {LONGEST_SALT} bytes"
        )
    return from_salted(mechanism, change.salted_password, change.salt, change.iterations)


APIS: Final = (
    Api(SASL_HANDSHAKE, "SaslHandshake", 0, 1, handshake),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, authenticate),
    Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, describe_users),
    Api(ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, alter_users),
)
