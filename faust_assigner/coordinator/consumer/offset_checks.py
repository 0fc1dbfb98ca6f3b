"""Check the commits to a consumer group, and the fetches of its offsets."""

from __future__ import annotations

from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.consumer.book import Book
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets, FetchOffsets


def check_commit(book: Book, catalogue: Catalogue, event: CommitOffsets) -> Code:
    """Check the committing member and its epoch."""
    outsider = not event.member_id and event.instance_id is None
    if event.generation < 0 and not book.members:
        return Code.NONE
    if event.transactional and event.generation == -1 and outsider:
        return Code.NONE  # a producer without the group metadata of its consumer
    if event.member_id not in book.members:
        return Code.UNKNOWN_MEMBER_ID
    classic = event.member_id in book.classic_members
    if not classic and event.api_version < 9 and not event.transactional:
        return Code.UNSUPPORTED_VERSION
    is_current = event.generation == book.at(event.member_id).epoch
    if is_current or _may_commit_late(book, catalogue, event):
        return Code.NONE
    return _epoch_error(book, event.member_id)


def _may_commit_late(book: Book, catalogue: Catalogue, event: CommitOffsets) -> bool:
    """Return whether a commit with an older epoch is valid (KIP-1251).

    The member must hold every partition of the commit, and must have got it at that epoch or before.
    """
    stood = book.at(event.member_id)
    if event.generation > stood.epoch:
        return False
    for name, number in event.partitions:
        topic_id = catalogue.by_name[name].topic_id if name in catalogue.by_name else b""
        since = stood.assigned.get(topic_id, {}).get(
            number, stood.revoking.get(topic_id, {}).get(number)
        )
        if since is None or since > event.generation:
            return False
    return True


def check_fetch(book: Book, event: FetchOffsets) -> Code:
    """Check the member that fetches offsets, if the request names a member."""
    if event.member_id is None and event.epoch < 0:
        return Code.NONE
    if event.member_id not in book.members:
        return Code.UNKNOWN_MEMBER_ID
    if event.epoch != book.at(event.member_id).epoch:
        return _epoch_error(book, event.member_id)
    return Code.NONE


def _epoch_error(book: Book, member_id: str) -> Code:
    classic = member_id in book.classic_members
    return Code.ILLEGAL_GENERATION if classic else Code.STALE_MEMBER_EPOCH
