"""The decision whether a principal may perform an operation, by the rules of Kafka's StandardAuthorizer.

Super users may do everything. A rule that denies has priority over all rules that allow. Without any rule for
a resource, ``allow.everyone.if.no.acl.found`` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from faust_assigner.broker.security.acls import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    PREFIXED,
    READ,
    WILDCARD,
    WRITE,
    Acl,
    Acls,
)
from faust_assigner.errors import ConfigError

ANONYMOUS: Final = "User:ANONYMOUS"
EVERYBODY: Final = "User:*"
SOME_NAME: Final = "hardcode"  # Kafka's placeholder: no rule for this literal name is expected
#: Operation -> the operations whose permission includes it. A denial includes no other operation.
IMPLIED_BY: Final[Mapping[int, frozenset[int]]] = {
    DESCRIBE: frozenset((READ, WRITE, DELETE, ALTER)),
    DESCRIBE_CONFIGS: frozenset((ALTER_CONFIGS,)),
}


def super_users(text: str) -> frozenset[str]:
    """Return the super users in a text ``TYPE:NAME;TYPE:NAME``. Raises ConfigError."""
    names = [name.strip() for name in text.split(";") if name.strip()]
    for name in names:
        if not all(name.partition(":")):
            raise ConfigError(
                f"super.users must be TYPE:NAME, separated by semicolons, not {name!r}"
            )
    return frozenset(names)


class Authorizer:
    """Decides which operations each principal may do on each resource of the broker.

    A principal is a text such as ``User:alice``; a host is an IP address.
    """

    def __init__(
        self, acls: Acls, super_users: frozenset[str], *, allows_without_acl: bool = False
    ) -> None:
        self.acls = acls
        self._super_users = super_users
        self._allows_without_acl = allows_without_acl

    def is_super_user(self, principal: str) -> bool:
        """Whether the principal may do everything, independent of the rules."""
        return principal in self._super_users

    def may(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether the principal, connected from ``host``, may perform the operation on a resource."""
        if principal in self._super_users:
            return True
        is_allowed, has_acl = False, False
        for acl in self.acls.for_resource(resource_type, name):
            has_acl = True
            if _is_about(acl, principal, host) and _covers(acl, operation):
                if acl.permission == DENY:
                    return False
                is_allowed = True
        return is_allowed or (not has_acl and self._allows_without_acl)

    def may_on_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether the principal may perform the operation on at least one possible name of a type."""
        if self.may(principal, host, operation, resource_type, SOME_NAME):
            return True
        allowed: list[Acl] = []
        denied: list[Acl] = []
        for acl in self._about(principal, host, operation, resource_type):
            if acl.permission == ALLOW:
                allowed.append(acl)
            elif acl.name == WILDCARD and acl.pattern_type != PREFIXED:
                return False
            else:
                denied.append(acl)
        return any(not any(_denies_all_of(no, yes) for no in denied) for yes in allowed)

    def _about(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> Iterator[Acl]:
        for acl in self.acls:
            is_same = acl.resource_type == resource_type and acl.operation in (ALL, operation)
            if is_same and _is_about(acl, principal, host):
                yield acl


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, WILDCARD)


def _covers(acl: Acl, operation: int) -> bool:
    if acl.operation in (ALL, operation):
        return True
    return acl.permission == ALLOW and acl.operation in IMPLIED_BY.get(operation, ())


def _denies_all_of(no: Acl, yes: Acl) -> bool:
    """Whether a denial covers every resource name that the permission covers."""
    if no.pattern_type == PREFIXED:
        return yes.name.startswith(no.name) and yes.name != WILDCARD
    return yes.pattern_type != PREFIXED and yes.name == no.name


def distinguished_name(certificate: Mapping[str, object] | None) -> str | None:
    """Return the subject of a peer's certificate (``ssl.getpeercert()``) as Kafka names it, or None.

    The form is RFC 2253: the last attribute first, ``CN=shop,OU=orders``. Attributes outside RFC 2253 keep
    OpenSSL's long names.

    >>> distinguished_name({"subject": ((("countryName", "DE"),), (("commonName", "a,b"),))})
    'CN=a\\\\,b,C=DE'
    """
    subject = certificate.get("subject") if certificate else None
    if not isinstance(subject, tuple):
        return None
    parts = [
        "+".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in attributes)
        for attributes in reversed(subject)
    ]
    return ",".join(parts)


_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def _escaped(value: str) -> str:
    text = "".join(f"\\{one}" if one in ',+"\\<>;' else one for one in value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(value) > 1 else text
