"""What a former version of this package left in databases is put back.

Before rows waited for their changelog, the first change that a transaction made to a key wrote down what the
key had:

    b"__faust_assigner_undo\\0" + number of the share, 8 bytes + key  ->  b"\\x01" + value, or b"" for none

In the same database. A worker of that version which was killed leaves such records, and rows of a transaction
that may not be committed. A recovery begins by putting back what is left of them, the oldest of each key, and
then replays the changelog from the offset in the database. Nothing writes such records any more.
"""

from __future__ import annotations

from typing import Any

import rocksdict

PREFIX = b"__faust_assigner_undo\0"
_KEY_AT = len(PREFIX) + 8
_NOTHING = b""
_HAD = b"\x01"


def put_back(database: Any) -> int:
    """Give each changed key the value it had before the oldest share that is left; returns how many.

    One write: all of it, or nothing.
    """
    batch, seen = rocksdict.WriteBatch(raw_mode=True), set[bytes]()
    for place, before in database.items(from_key=PREFIX):
        if not place.startswith(PREFIX):
            break
        key = place[_KEY_AT:]
        if key not in seen:
            seen.add(key)
            if before == _NOTHING:
                batch.delete(key)
            else:
                batch.put(key, before[len(_HAD):])
        batch.delete(place)
    if seen:
        database.write(batch)
    return len(seen)
