"""Encodes and decodes the leader's answer to each member: the user_data of an assignment.

The format is zlib over JSON that Faust's own ("stock") assignor can read, so that even a static member that
returns with stock Faust finds its partitions. The part common to all members (the directory of owners, the
group ids) is encoded and compressed once and appended to each member's part. Members with this package ("our
members") read the directory from an extra key; stock members get stock Faust's two distributions.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.wire.bounded import (
    KEY,
    UNPACKED_BYTES,
    URL_CHARS,
    ByUrl,
    decode_base64,
    pack_value,
    read_distribution,
    read_group_ids,
    read_json,
    read_label,
    read_stock_claims,
    split_value,
    unpack,
)
from faust_assigner.wire.directory import Directory, decode_directory, encode_directory
from faust_assigner.wire.fields import (
    CLAIMS,
    GENERATION,
    PROMISED,
    Field,
    Kind,
    encode_count,
    row_of,
)
from faust_assigner.wire.join import VERSION
from faust_assigner.wire.outcome import Outcome, decode_outcome, encode_outcome, for_others
from faust_assigner.wire.runs import Reader, Runs, Writer

#: The maximum length of a decision's id; a longer id does not come from this package, and is cut.
_DECISION_BYTES = 64
_ALL_OURS = 1


@dataclass(frozen=True)
class Answer:
    """One member's part of a round's result.

    ``actives`` and ``standbys`` are the fields that Faust uses; a global table's changelog is in both, and
    ``writes`` has the member's own partitions of this changelog. ``generation`` is -1 in a stock leader's
    answer, which has no generation. ``is_uniform``: every member of the group uses this package.
    ``decision_id`` is the round's id in the ledger, "" for none. ``awaited`` are standbys on this member:
    their tasks move to this member in a follow-up round, once the standbys have caught up. ``promised`` are
    partitions that this member gets in an immediate second round, after their owners have revoked them;
    ``among`` is the number of members of this round, 0 without a second round. ``outcome`` is the round's
    decision with its reason; None if the leader sent no outcome.
    """

    actives: Mapping[str, Runs]
    standbys: Mapping[str, Runs]
    url: str = ""
    generation: int = -1
    writes: Mapping[str, Runs] = field(default_factory=dict)
    is_uniform: bool = False
    group_ids: Mapping[str, int] = field(default_factory=dict)
    directory: bytes = b""
    changelog_distribution: ByUrl = field(default_factory=dict)
    external_topic_distribution: ByUrl = field(default_factory=dict)
    decision_id: str = ""
    awaited: Mapping[str, Runs] = field(default_factory=dict)
    promised: Mapping[str, Runs] = field(default_factory=dict)
    among: int = 0
    outcome: Outcome | None = None


# -- how the fields are encoded that only an answer has


def _decode_outcome(body: Reader, topics: Sequence[str]) -> Outcome | None:
    # The outcome is only for display: if it is unreadable, the assignment must stay readable.
    try:
        return decode_outcome(body)
    except MetadataRefused:
        return None


_UNIFORM = Kind(
    lambda is_uniform, row: encode_count(_ALL_OURS * is_uniform),
    lambda body, topics: bool(body.varint() & _ALL_OURS),
)
_SHORT_TEXT = Kind(
    lambda text, row: text.encode() or None,
    lambda body, topics: body.data[:_DECISION_BYTES].decode("ascii", "replace"),
)
_OUTCOMES = Kind(
    lambda outcome, row: None if outcome is None else encode_outcome(outcome), _decode_outcome
)

_GENERATION = Field(1, GENERATION, ("generation",))
_FLAGS = Field(2, _UNIFORM, ("is_uniform",))
_DECISION = Field(4, _SHORT_TEXT, ("decision_id",))
#: These fields contain indexes of topics: ``writes`` in the sorted topics of the actives, ``awaited`` in
#: those of the standbys, and ``promised`` in those of the group ids.
_WRITES = Field(3, CLAIMS, ("writes",))
_AWAITED = Field(5, CLAIMS, ("awaited",))
_PROMISED = Field(20, PROMISED, ("among", "promised"))
_OUTCOME = Field(21, _OUTCOMES, ("outcome",))
_BY_TAG = {
    field.tag: field
    for field in (_GENERATION, _FLAGS, _DECISION, _WRITES, _AWAITED, _PROMISED, _OUTCOME)
}


class AnswerWriter:
    """Encodes all answers of one round; the common part is compressed once.

    If the directory would make the group's record too large for Kafka, answers to our members can leave it
    out; such members cannot route by key. Stock members always get the directory. ``version`` is the lowest
    version among our members, ``among`` their number if a second round follows.
    """

    def __init__(
        self,
        directory: Directory,
        group_ids: Mapping[str, int],
        *,
        generation: int,
        is_uniform: bool,
        version: int = VERSION,
        decision_id: str = "",
        among: int = 0,
        outcome: Outcome | None = None,
    ) -> None:
        self._directory = directory
        self._row = row_of(group_ids)
        self._among = among
        self._ids = _dumps(dict(sorted(group_ids.items())))
        self._version = version
        alike = Writer()
        _GENERATION.write(alike, generation, {})
        _FLAGS.write(alike, is_uniform, {})
        _DECISION.write(alike, decision_id, {})
        self._alike = bytes(alike.data)
        self._outcome_of_leader = _encoded_outcome(outcome and replace(outcome, leads=True))
        self._outcome_of_others = _encoded_outcome(outcome and for_others(outcome))
        self._ours: dict[bool, Stitch] = {}
        self._stock: Stitch | None = None

    def for_ours(
        self,
        actives: Claims,
        standbys: Claims,
        url: str,
        *,
        writes: Claims | None = None,
        awaited: Claims | None = None,
        promised: Claims | None = None,
        with_directory: bool = True,
        leads: bool = False,
    ) -> bytes:
        """Return the answer to one of our members; ``leads``: also list joined and left members."""
        own = Writer()
        own.data += self._alike
        _WRITES.write(own, writes or {}, row_of(actives) if writes else {})
        _AWAITED.write(own, awaited or {}, row_of(standbys) if awaited else {})
        _PROMISED.write(own, (self._among, promised or {}), self._row)
        own.data += self._outcome_of_leader if leads else self._outcome_of_others
        head = (
            f'{{"assignment":{_claims(actives, standbys)},"url":{_dumps(url)},'
            f'"{KEY}":"{pack_value(self._version, own.data)}'
        )
        return self._ours_tail(with_directory).after(head.encode())

    @property
    def shared_bytes(self) -> int:
        """Return the compressed size in bytes of the common part of all answers to our members."""
        return len(self._ours_tail(True))

    def for_stock(self, actives: Claims, standbys: Claims, url: str) -> bytes:
        """Return the answer to a stock member, or to a member with unreadable metadata."""
        if self._stock is None:
            directory = self._directory
            logs = directory.by_url(directory.changelogs)
            others = directory.by_url(directory.owners.keys() - directory.changelogs)
            tail = (
                f',"changelog_distribution":{_dumps(logs)},"external_topic_distribution":'
                f'{_dumps(others)},"topic_groups":{self._ids}}}'
            )
            self._stock = Stitch(tail.encode())
        head = f'{{"assignment":{_claims(actives, standbys)},"url":{_dumps(url)}'
        return self._stock.after(head.encode())

    def _ours_tail(self, with_directory: bool) -> Stitch:
        if with_directory not in self._ours:
            shared = b64encode(encode_directory(self._directory)).decode() if with_directory else ""
            self._ours[with_directory] = Stitch(
                f'.{shared}","changelog_distribution":{{}},"external_topic_distribution":{{}},'
                f'"topic_groups":{self._ids}}}'.encode()
            )
        return self._ours[with_directory]


def _encoded_outcome(outcome: Outcome | None) -> bytes:
    field = Writer()
    _OUTCOME.write(field, outcome, {})
    return bytes(field.data)


class Stitch:
    """A tail of zlib data that is compressed once and appended to many heads.

    This is valid, because a full flush ends the head's data at a byte boundary, and the tail's data does not
    refer to the head.
    """

    def __init__(self, tail: bytes) -> None:
        self._tail = tail
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._packed = packer.compress(tail) + packer.flush(zlib.Z_FINISH)

    def __len__(self) -> int:
        return len(self._packed)

    def after(self, head: bytes) -> bytes:
        """Return zlib data of ``head + tail``. Cost: O(len(head)), and one checksum of the tail."""
        packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS, 5)
        packed = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
        checksum = zlib.adler32(self._tail, zlib.adler32(head))
        return b"\x78\x9c" + packed + self._packed + checksum.to_bytes(4, "big")


def decode_answer(user_data: bytes | None) -> Answer:
    """Decode an answer of our leader or of a stock leader, up to 4 MiB. Raises :class:`MetadataRefused`."""
    stock = read_json(unpack(bytes(user_data or b"")), limit=UNPACKED_BYTES)
    actives, standbys = read_stock_claims(stock.get("assignment"))
    url = read_label(stock.get("url"), "url", chars=URL_CHARS)
    ids = read_group_ids(stock.get("topic_groups"))
    if stock.get(KEY) is None:
        return Answer(
            actives,
            standbys,
            url,
            group_ids=ids,
            changelog_distribution=read_distribution(stock.get("changelog_distribution")),
            external_topic_distribution=read_distribution(stock.get("external_topic_distribution")),
        )
    own, directory = _split(stock[KEY])
    topics_of: dict[Field, Collection[str]] = {_WRITES: actives, _AWAITED: standbys, _PROMISED: ids}
    found: dict[str, Any] = {}
    for tag, body in Reader(own).fields():
        if one := _BY_TAG.get(tag):
            found.update(one.named(one.kind.decode(body, sorted(topics_of.get(one, ())))))
    return Answer(actives, standbys, url, group_ids=ids, directory=directory, **found)


def _split(value: object) -> tuple[bytes, bytes]:
    if type(value) is not str:
        raise MetadataRefused(f"{KEY} is a {type(value).__name__}, not a text")
    head, _, shared = value.partition(".")
    return split_value(head)[1], decode_base64(shared)


def read_directory(data: bytes) -> Directory:
    """Decode the directory in an answer; return an empty directory if the leader left it out."""
    return decode_directory(data) if data else Directory()


def actives_to_claim(topics: Collection[str], answer: Answer) -> dict[str, Runs]:
    """Return the actives of an answer as claims for the next round.

    ``topics`` are the changelogs of this member's global tables, of which every member gets all partitions.
    Only the partitions that this member writes (``Answer.writes``) are claimed; a stock leader reports none.
    """
    claims = {t: runs for t, runs in answer.actives.items() if t not in topics}
    claims.update({t: runs for t, runs in answer.writes.items() if t in topics})
    return claims


def _claims(actives: Claims, standbys: Claims) -> str:
    return _dumps({"actives": _lists(actives), "standbys": _lists(standbys)})


def _lists(claims: Claims) -> dict[str, list[int]]:
    return {topic: list(claims[topic]) for topic in sorted(claims)}


_dumps = json.JSONEncoder(separators=(",", ":")).encode
