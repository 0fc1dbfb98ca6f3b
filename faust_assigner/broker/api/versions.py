"""The ApiVersions API. Requests of unknown versions get an answer of version 0 with error 35 (KIP-511)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import answers
from faust_assigner.broker.api.call import Api, Call, Encoded

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest

API_VERSIONS: Final = 18
#: Lowest and highest level of each feature of Kafka 4.3 that this broker supports; the highest level is
#: finalized. Level 1 of group.version is the consumer protocol (KIP-848).
#: Level 2 of transaction.version is the second version of transactions (KIP-890).
FEATURES: Final = {
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "transaction.version": (0, 2),
}
ZERO_SINCE: Final = 4  # older clients cannot read a feature whose lowest level is 0
_advertised: list[dict[str, object]] = []


def advertise(apis: Iterable[Api]) -> None:
    """Set the list of advertised APIs, once all APIs are known."""
    _advertised[:] = [
        {
            "api_key": api.key,
            "min_version": api.low if api.advertised_low is None else api.advertised_low,
            "max_version": api.high,
        }
        for api in sorted(apis, key=lambda api: api.key)
    ]


def api_versions(call: Call, request: ApiVersionsRequest) -> Encoded:
    """Return every API with its advertised versions, and the finalized features."""
    return _versions_answer(call.version)


@functools.cache
def _versions_answer(version: int) -> Encoded:
    values = {
        "error_code": ErrorCode.none,
        "api_keys": _advertised,
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in FEATURES.items()
            if low > 0 or version >= ZERO_SINCE
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, (_, level) in FEATURES.items()
        ],
    }
    return Encoded(answers.encode_response(API_VERSIONS, version, values))


def unsupported_version() -> Mapping[str, object]:
    """Return the answer to a request of an unknown version; clients of all versions can decode it."""
    return {"error_code": ErrorCode.unsupported_version, "api_keys": _advertised}


APIS: Final = (
    Api(
        API_VERSIONS,
        "ApiVersions",
        0,
        4,
        api_versions,
        again=lambda node, version, request: functools.partial(_versions_answer, version),
    ),
)
