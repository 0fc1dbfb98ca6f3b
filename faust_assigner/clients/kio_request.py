"""Sends kio's messages of Kafka's protocol over aiokafka's connections, which provide TLS and SASL."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import (
    RequestHeader_v1,
    RequestHeader_v2,
    ResponseHeader_v0,
    ResponseHeader_v1,
)
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

#: The version of the request header from which on it has tagged fields (KIP-482).
_FLEXIBLE_HEADER = 2


class KioRequest:
    """A request in the highest version that both sides support, in place of aiokafka's ``Request``.

    Fields that this version does not have are left out. :meth:`prepare` raises
    ``IncompatibleBrokerVersion`` if there is no common version from ``at_least`` to ``newest``.
    """

    def __init__(self, api_key: int, newest: int, at_least: int = 0, /, **fields: object) -> None:
        self.API_KEY = api_key
        self._versions = range(newest, at_least - 1, -1)
        self._fields = fields

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> _Prepared:
        """Return the request in a version that the server supports; called by aiokafka."""
        low, high = versions.get(self.API_KEY, (0, -1))
        for version in self._versions:
            if low <= version <= high:
                return _Prepared(self.API_KEY, version, self._fields)
        raise IncompatibleBrokerVersion(
            f"API {self.API_KEY}: no common version, the server supports {low}-{high}"
        )


class _Prepared:
    """A request in one version, with the attribute names of aiokafka's connection."""

    def __init__(self, api_key: int, version: int, fields: Mapping[str, object]) -> None:
        schema: Any = load_request_schema(api_key, version)
        known = schema.__dataclass_fields__
        self.API_KEY, self.API_VERSION = api_key, version
        self.RESPONSE_TYPE = _Answer(load_response_schema(api_key, version))
        self._entity = schema(**{name: value for name, value in fields.items() if name in known})
        self._flexible_request = schema.__header_schema__.__version__ >= _FLEXIBLE_HEADER
        self._flexible_answer = self.RESPONSE_TYPE.schema.__header_schema__.__version__ >= 1

    def build_request_header(self, correlation_id: int, client_id: str) -> Any:
        """Return the request header: version 2 for a message with tagged fields, else version 1."""
        header = RequestHeader_v2 if self._flexible_request else RequestHeader_v1
        return header(self, correlation_id=correlation_id, client_id=client_id)

    def parse_response_header(self, data: Any) -> Any:
        """Parse the response header: version 1 for a message with tagged fields, else version 0."""
        return (ResponseHeader_v1 if self._flexible_answer else ResponseHeader_v0).decode(data)

    def encode(self) -> bytes:
        """Return the encoded body."""
        out = io.BytesIO()
        entity_writer(type(self._entity))(out, self._entity)
        return out.getvalue()


class _Answer:
    """The decoder that aiokafka calls for the response."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def decode(self, data: io.BytesIO) -> Any:
        """Decode the body of the frame as kio's entity."""
        answer, _ = entity_reader(self.schema)(data.read(), 0)
        return answer
