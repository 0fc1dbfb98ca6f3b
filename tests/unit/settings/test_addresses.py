"""``HOST:PORT``: the accepted forms, and texts that only look like an address."""

from __future__ import annotations

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.settings.schema import parse
from faust_assigner.settings.service import AT, BY_NAME
from faust_assigner.settings.service_kinds import ADDRESS, URLS, address


@pytest.mark.parametrize(
    ("said", "host", "port"),
    [
        ("assigner-0.shop:50051", "assigner-0.shop", 50051),
        ("10.1.2.3:0", "10.1.2.3", 0),
        ("[fd00::7]:65535", "fd00::7", 65535),
        ("fd00::7:8080", "fd00::7", 8080),
        ("[fe80::1%eth0]:7", "fe80::1%eth0", 7),
    ],
)
def test_an_address_is_a_host_and_a_port(said: str, host: str, port: int) -> None:
    """The brackets of an IPv6 address are no part of the host."""
    assert address(said) == (host, port) == ADDRESS.parse(said)


@pytest.mark.parametrize(
    "said",
    [
        "http://x:1",
        "x/y:1",
        "user@x:1",
        "a b:1",
        "a:b:1",
        "[x:1",
        "x]:1",
        "[]:1",
        ":1",
        "x:",
        "x:65536",
        "x:123456",
        "x:1/",
        "x:-1",
        "[x:y]:1",
    ],
)
@pytest.mark.parametrize("name", ["bind", "metrics", "health", "at"])
def test_a_text_that_is_no_address_is_refused_at_once(name: str, said: str) -> None:
    """gRPC would report it only at the first connection, if at all."""
    setting = AT if name == "at" else BY_NAME[name]
    with pytest.raises(ConfigError) as refused:
        parse(setting, said)
    assert str(refused.value) == f"FAUST_ASSIGNER_{name.upper()} must be HOST:PORT, got {said!r}"


def test_the_addresses_of_etcd_have_a_scheme_or_none() -> None:
    """A list keeps its order and its texts; the blanks around the commas are no part of them."""
    assert URLS.parse("https://b:2, a:1 ,,[::1]:3") == ("https://b:2", "a:1", "[::1]:3")
    for said in ("a:1,ftp://b:2", "http://http://x:1", "http:///x:1", "http://x", "a:1,b"):
        with pytest.raises(ValueError, match=r"."):
            URLS.parse(said)
