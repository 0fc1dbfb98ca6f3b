"""The directory of owners: the data that every member's router reads."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.directory import Directory, decode_directory, encode_directory
from faust_assigner.wire.runs import Writer


def column(*ranks: int) -> np.ndarray:
    """Return a column of owners by rank."""
    return np.array(ranks, dtype=np.int64)


ORDERS = column(0, 0, 1, -1, 2)
SOME = Directory(
    ("http://a", "http://b", "http://c"),
    {"orders": ORDERS, "orders-log": ORDERS, "rates-log": column(2, 1)},
    ("x", "", "z"),
    frozenset({"orders-log", "rates-log"}),
    frozenset({"rates-log"}),
)


def test_a_directory_comes_back() -> None:
    """A round trip keeps owners, URLs, instance ids and kinds of topics."""
    back = decode_directory(encode_directory(SOME))
    assert (back.urls, back.instances) == (SOME.urls, SOME.instances)
    assert (back.changelogs, back.globals_) == (SOME.changelogs, SOME.globals_)
    assert {t: o.tolist() for t, o in back.owners.items()} == {
        t: o.tolist() for t, o in SOME.owners.items()
    }


def test_by_url_names_what_each_owns() -> None:
    """Unowned partitions are left out; every URL has all partitions of a global table."""
    assert SOME.by_url(["orders"]) == {
        "http://a": {"orders": [0, 1]},
        "http://b": {"orders": [2]},
        "http://c": {"orders": [4]},
    }
    assert SOME.by_url(["rates-log"]) == {url: {"rates-log": [0, 1]} for url in SOME.urls}


def test_members_that_share_a_url_are_merged() -> None:
    """Stock Faust loses the partitions of all but the last member with the URL."""
    shared = Directory(("http://a", "http://a"), {"orders": column(1, 0, 1)})
    assert shared.by_url(["orders"]) == {"http://a": {"orders": [0, 1, 2]}}


@pytest.mark.parametrize("partition", [-1, 3, 5])
def test_url_of_knows_no_owner(partition: int) -> None:
    """A missing partition and a partition without an owner raise KeyError."""
    assert SOME.url_of("orders", 4) == "http://c"
    with pytest.raises(KeyError):
        SOME.url_of("orders", partition)


def test_a_static_member_is_found_by_its_instance_id() -> None:
    """The member's former partitions are listed by topic; an unknown or empty id has none."""
    assert {t: n.tolist() for t, n in SOME.held_by_instance("z").items()} == {
        "orders": [4],
        "orders-log": [4],
        "rates-log": [0],
    }
    assert SOME.held_by_instance("unknown") == {}


def test_three_hundred_members_fit_into_a_kilobyte() -> None:
    """Contiguous owners and numbered host names compress well; the group has 300 such copies."""
    owner = np.repeat(np.arange(300), 4)[:1000]
    urls = tuple(f"http://worker-{i}.shop.svc:6066" for i in range(300))
    logs = {f"shop-t{i}-changelog": owner for i in range(3)}
    assert len(encode_directory(Directory(urls, {"orders": owner, **logs}))) < 1024


def fields(*pairs: tuple[int, bytes]) -> bytes:
    """Return a compressed directory of hand-made fields."""
    out = Writer()
    for tag, body in pairs:
        out.field(tag, body)
    return zlib.compress(bytes(out.data))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"noise",
        encode_directory(SOME)[:-4],
        zlib.compress(b"\0" * (5 << 20)),
        fields((1, b"t"), (2, b"u"), (4, b"\x02\x00\x00\x01\x04\x00")),  # rank 1, one member
        fields(
            (1, b"t"), (2, b"u"), (4, b"\x02\x00\x00\x01\x02\xff\xff\xff\xff\x07")
        ),  # two billion owners
        fields((1, b"t"), (2, b"u"), (4, b"\x02\x00\x00\xff\xff\xff\xff\x07")),
        fields((1, b"t"), (2, b"u"), (3, b"a\0b")),
        fields((2, b"http://a\nb")),
    ],
)
def test_a_bad_directory_is_refused(raw: bytes) -> None:
    """Truncated, oversized and contradictory directories are refused within the limits."""
    with pytest.raises(MetadataRefused):
        decode_directory(raw)


def test_who_has_copies_comes_back_where_it_was_said() -> None:
    """First standbys come before second ones; co-partitioned changelogs share both columns."""
    copies = (column(1, 2, 0, -1, 0), column(2, -1, -1, -1, 1))
    said = replace(
        SOME,
        owners={**SOME.owners, "names-log": ORDERS},
        standbys={"orders-log": copies, "names-log": copies, "rates-log": (column(0, 0),)},
    )
    back = decode_directory(encode_directory(said))
    for topic in ("orders-log", "names-log"):
        assert [back.standby_urls(topic, p) for p in range(5)] == [
            ("http://b", "http://c"),
            ("http://c",),
            ("http://a",),
            (),
            ("http://a", "http://b"),
        ]
    assert back.standby_urls("rates-log", 1) == ("http://a",)
    assert (back.standby_urls("orders-log", 5), back.standby_urls("orders-log", -1)) == ((), ())
    assert decode_directory(encode_directory(SOME)).standbys == {}


def test_two_members_with_one_instance_id_have_no_former_partitions() -> None:
    """The directory trusts neither claim: the second process is a stranger with a copied id."""
    twins = replace(SOME, instances=("x", "x", "z"))
    assert twins.held_by_instance("x") == {}
    assert {t: n.tolist() for t, n in twins.held_by_instance("z").items()} == {
        "orders": [4],
        "orders-log": [4],
        "rates-log": [0],
    }


def test_a_directory_with_fewer_instance_ids_than_members_is_refused() -> None:
    """Without the check a rank could have no instance id."""
    for instances in (("x", "y"), ("x", "y", "z", "w")):
        with pytest.raises(MetadataRefused, match="instance ids for 3 URLs"):
            decode_directory(encode_directory(replace(SOME, instances=instances)))


def test_all_columns_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes may name millions of owners in each of many columns."""
    data = encode_directory(SOME)
    monkeypatch.setattr("faust_assigner.wire.directory.UNPACKED_BYTES", 7)
    assert decode_directory(data).owners["rates-log"].tolist() == [2, 1]
    monkeypatch.setattr("faust_assigner.wire.directory.UNPACKED_BYTES", 6)
    with pytest.raises(MetadataRefused, match="2 owners, the limit is 1"):
        decode_directory(data)


@pytest.mark.parametrize("ranks", [(-2,), (0, -2, 0), (0, 1)])
def test_an_owner_is_a_member_or_none(ranks: tuple[int, ...]) -> None:
    """-1 is no owner; a lower rank would count from the end of the members."""
    with pytest.raises(MetadataRefused, match="rank is beyond the 1 members"):
        decode_directory(encode_directory(Directory(("http://a",), {"orders": column(*ranks)})))
