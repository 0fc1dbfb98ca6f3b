"""Changes a key by a read and a write that fails if the key has changed in between.

The leader writes by ``Leadership.commit`` instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.store.base import KeyValue, Store, Write, absent, unchanged

ATTEMPTS = 20
NO_KEYS: Final[Mapping[str, Exception]] = MappingProxyType({})

#: A function of the present key (``None`` if absent) that returns the writes to this key and to
#: further keys; ``None``: no write.
Decide = Callable[[KeyValue | None], Awaitable[Write | Sequence[Write] | None]]


async def rewritten(
    store: Store,
    key: str,
    decide: Decide,
    *,
    unless: Mapping[str, Exception] = NO_KEYS,
    known: KeyValue | None = None,
) -> int:
    """Apply the writes that ``decide`` returns for the key; return the revision of the writes.

    Without a write, return the revision of the existing value, or 0 if the key is absent. If the
    key changes before the write, call ``decide`` again. Raises the exceptions of ``decide``, and
    ``StoreUnavailable`` after :data:`ATTEMPTS` such changes. If a key of ``unless`` exists, raises
    that key's exception. ``known``: the key as the caller has just read it.
    """
    for attempt in range(ATTEMPTS):
        kv = known if known and attempt == 0 else await store.get(key)
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
