"""ApiVersions: what this broker speaks. Unknown versions get version 0 with error 35 (KIP-511)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import answers
from faust_assigner.broker.api.call import Api, Call, Encoded

API_VERSIONS: Final = 18
_advertised: list[dict[str, Any]] = []


def advertise(apis: Iterable[Api]) -> None:
    """Set the list once all APIs are known."""
    _advertised[:] = [
        {
            "api_key": api.key,
            "min_version": api.low if api.advertised_low is None else api.advertised_low,
            "max_version": api.high,
        }
        for api in sorted(apis, key=lambda api: api.key)
    ]


def api_versions(call: Call, request: Any) -> Encoded:
    """Every API with the versions served. No features: those belong to clusters that upgrade in steps."""
    return _answer(call.version)


@functools.cache
def _answer(version: int) -> Encoded:
    values = {"error_code": ErrorCode.none, "api_keys": _advertised, "finalized_features_epoch": -1}
    return Encoded(answers.encode_response(API_VERSIONS, version, 0, values))


def unsupported_version() -> Mapping[str, Any]:
    """The answer a client from the future can still read."""
    return {"error_code": ErrorCode.unsupported_version, "api_keys": _advertised}


APIS: Final = (
    Api(
        API_VERSIONS,
        "ApiVersions",
        0,
        4,
        api_versions,
        again=lambda node, version, request: functools.partial(_answer, version),
    ),
)
