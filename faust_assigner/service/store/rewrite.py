"""Read, decide, write if nobody was faster: how a key is changed by those who do not lead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.store.base import KeyValue, Store, Write, absent, unchanged

ATTEMPTS = 20
NO_KEYS: Final[Mapping[str, Exception]] = MappingProxyType({})

#: What to write for a key as it is, or is not, and beside it; ``None``: nothing.
Decide = Callable[[KeyValue | None], Awaitable[Write | Sequence[Write] | None]]


async def rewritten(
    store: Store, key: str, decide: Decide, *, unless: Mapping[str, Exception] = NO_KEYS
) -> int:
    """The revision of the write; where nothing was to be written, of what is there, 0 for nothing.

    ``decide`` is asked again where the key changed meanwhile. Raises what it raises, the exception of a key
    of ``unless`` that exists, and ``StoreUnavailable`` where the key changed :data:`ATTEMPTS` times.
    """
    for _ in range(ATTEMPTS):
        kv = await store.get(key)
        write = await decide(kv)
        if write is None:
            return 0 if kv is None else kv.mod_revision
        compares = [absent(key) if kv is None else unchanged(kv), *map(absent, unless)]
        result = await store.txn(compares, write if isinstance(write, Sequence) else [write])
        if result.succeeded:
            return result.revision
        for other, refusal in unless.items():
            if await store.get(other) is not None:
                raise refusal
    raise StoreUnavailable(f"{key} changed {ATTEMPTS} times meanwhile")
