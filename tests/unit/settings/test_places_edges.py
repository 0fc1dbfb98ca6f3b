"""Places at their edges: blanks and cases of ledger topics, host bits of networks, complete DNS names."""

from __future__ import annotations

from pathlib import Path

import pytest
from yarl import URL

from faust_assigner.errors import ConfigError
from faust_assigner.settings.places import allowed, is_loopback_url, matches_any
from faust_assigner.settings.schema import read
from faust_assigner.settings.table import LEDGER, URLS

OWN = URL("http://w0:6066")


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (" topic:orders ", "topic:orders"),
        ("topic:a.b-C_9", "topic:a.b-C_9"),
        ("TOPIC:orders", Path("TOPIC:orders")),
        ("topics/orders", Path("topics/orders")),
        (" OFF ", None),
        ("No", None),
        ("0", None),
        ("off/x", Path("off/x")),
    ],
)
def test_a_ledger_is_a_topic_a_folder_or_off(said: str, place: Path | str | None) -> None:
    """The word for a topic is in lower case; the words for off are in any case."""
    assert read(LEDGER, argument=said, environment={}) == place


@pytest.mark.parametrize("said", ["topic:", "topic:a/b", "topic:a b", "topic: a", "topic:a\n1"])
def test_a_wrong_name_of_a_topic_is_no_ledger(said: str) -> None:
    """The whole name must be a topic's name."""
    with pytest.raises(ConfigError, match="FAUST_ASSIGNER_LEDGER must be "):
        read(LEDGER, argument=said, environment={})


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("http://10.9.8.7:1", True),
        ("https://10.9.8.7", True),
        ("http://11.0.0.5", False),
        ("http://A.Shop.:80", True),
        ("http://shop", False),
        ("http://w7:6066", True),
        ("http://w7:6067", False),
        ("ftp://10.9.8.7", False),
    ],
)
def test_a_network_may_be_given_by_one_of_its_hosts(url: str, is_allowed: bool) -> None:
    """Any pattern may match the host, or the host and port; case and the last dot do not matter."""
    patterns = read(URLS, argument="10.0.0.5/8, *.SHOP,,w7:6066", environment={})
    assert patterns == ("10.0.0.5/8", "*.shop", "w7:6066")
    assert allowed(URL(url), OWN, patterns) is is_allowed
    assert matches_any(URL(url), patterns) is (is_allowed or url.startswith("ftp"))


@pytest.mark.parametrize(
    ("pattern", "urls"),
    [
        ("[fd00::1]", {"http://[fd00::1]:6066", "http://[fd00::1]:80"}),
        ("[FD00::1]:6066", {"http://[fd00::1]:6066"}),
        ("[fd00::*]:6066", {"http://[fd00::1]:6066", "http://[fd00::f]:6066"}),
        ("fd00::1", {"http://[fd00::1]:6066", "http://[fd00::1]:80"}),
        ("fd00::1:6066", {"http://[fd00::1]:6066"}),
    ],
)
def test_an_address_in_brackets_is_written_as_in_a_url(pattern: str, urls: set[str]) -> None:
    """Brackets are no set of characters; an address without a port may also be written without them."""
    patterns = read(URLS, argument=pattern, environment={})
    hosts = ("[fd00::1]:6066", "[fd00::1]:80", "[fd00::f]:6066", "f", "w1")
    asked = [f"http://{host}" for host in hosts]
    assert {url for url in asked if matches_any(URL(url), patterns)} == urls
    assert {url for url in asked if allowed(URL(url), OWN, patterns)} == urls


@pytest.mark.parametrize(
    ("url", "is_near"),
    [
        ("http://localhost.:6066", True),
        ("http://LOCALHOST", True),
        ("http://a.localhost.", True),
        ("http://notlocalhost", False),
        ("http://127.9.9.9", True),
        ("http://127.1", True),
        ("http://[::1]:1", True),
        ("http://[::ffff:127.0.0.1]", True),
        ("http://128.0.0.1", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_a_loopback_url_is_known_in_every_spelling(url: str, is_near: bool) -> None:
    """Other machines cannot use such a URL."""
    assert is_loopback_url(url) is is_near
    if is_near:
        assert not allowed(URL(url), OWN, ())
        assert allowed(URL(url), URL("http://127.0.0.1"), ())
