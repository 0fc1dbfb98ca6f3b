"""The channel identifies the caller; the request's body only names the consumer to act as."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.faults import Unauthenticated
from faust_assigner.service.server.auth import (
    CertificateAuthenticator,
    NoAuthentication,
    TokenAuthenticator,
    read_tokens,
)

CANARY = "canary-3f9d"


class Context:
    """The two parts of a call's context that authenticators read."""

    def __init__(
        self, *headers: tuple[str, str], certificate: Mapping[str, Sequence[bytes]] | None = None
    ) -> None:
        self._headers = headers
        self._certificate = certificate or {}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the call's headers."""
        return self._headers

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the peer's TLS properties."""
        return self._certificate


def tokens(tmp_path: Path, text: str) -> TokenAuthenticator:
    """An authenticator with a file of tokens; ``ops`` is the administrator."""
    (tmp_path / "tokens").write_text(text)
    return TokenAuthenticator.of_file(tmp_path / "tokens", ("ops",))


def test_a_token_says_who_calls(tmp_path: Path) -> None:
    """The file has the token itself or its digest."""
    digest = hashlib.sha256(b"second").hexdigest()
    authenticator = tokens(
        tmp_path, f"# names and tokens\na {CANARY}\nb sha256:{digest}\nops third\n"
    )
    for token, name in ((CANARY, "a"), ("second", "b"), ("third", "ops")):
        assert (
            authenticator.caller(Context(("authorization", f"Bearer {token}"))).acting_as(name)
            == name
        )


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("authorization", ""),),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Basic YTpi"),),
        (("authorization", "Bearer "),),
        (("authorization", f"Bearer {CANARY}"), ("authorization", "Bearer x")),
    ],
)
def test_without_the_token_nobody_comes_in(
    tmp_path: Path, headers: tuple[tuple[str, str], ...]
) -> None:
    """Two tokens in one call are refused too."""
    with pytest.raises(Unauthenticated):
        tokens(tmp_path, f"a {CANARY}").caller(Context(*headers))


def test_a_caller_acts_only_as_itself(tmp_path: Path) -> None:
    """The name in the body must equal the channel's name."""
    caller = tokens(tmp_path, f"a {CANARY}\nb other").caller(
        Context(("authorization", f"Bearer {CANARY}"))
    )
    with pytest.raises(WrongCaller, match="a may not act as 'b'"):
        caller.acting_as("b")
    with pytest.raises(WrongCaller, match="a is not an administrator"):
        caller.administering()


def test_an_administrator_is_named_as_one(tmp_path: Path) -> None:
    """An administrator may not act as a different consumer."""
    caller = tokens(tmp_path, "ops third").caller(Context(("authorization", "Bearer third")))
    caller.administering()
    with pytest.raises(WrongCaller):
        caller.acting_as("a")


def test_a_certificate_says_who_calls() -> None:
    """Common and alternative names count; without a certificate the call is refused."""
    caller = CertificateAuthenticator().caller(
        Context(
            certificate={
                "x509_common_name": [b"a"],
                "x509_subject_alternative_name": [b"a.shop.svc", b"a-1"],
            }
        )
    )
    assert [caller.acting_as(name) for name in ("a", "a-1")] == ["a", "a-1"]
    with pytest.raises(WrongCaller):
        caller.acting_as("b")
    with pytest.raises(Unauthenticated):
        CertificateAuthenticator().caller(
            Context(certificate={"transport_security_type": [b"ssl"]})
        )


def test_an_open_door_has_no_identity() -> None:
    """Without authentication, each caller may use any name and administer."""
    caller = NoAuthentication().caller(Context())
    caller.administering()
    assert caller.acting_as("whoever") == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no token"),
        ("a", "line 1"),
        ("a b c", "line 1"),
        ("* x", "line 1"),
        ("a x\na*b y", "line 2"),
        ("# a comment\n\na x\na y\nb", "line 5: expected"),
        ("# a comment\n\na x\nb sha256:12", "line 4: sha256: wants 64"),
        ("a sha256:12", "64 hexadecimal"),
        ("a sha256:" + "g" * 64, "64 hexadecimal"),
    ],
)
def test_a_file_of_tokens_that_is_wrong_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """The error names the line, but not the token."""
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_tokens(tmp_path / "tokens")


def bearer(token: str) -> Context:
    """The context of a call with this token."""
    return Context(("authorization", f"Bearer {token}"))


def test_a_token_for_a_prefix_is_every_name_that_begins_so(tmp_path: Path) -> None:
    """A growing Deployment needs no new token; different names are refused."""
    caller = tokens(tmp_path, f"shop-* {CANARY}").caller(bearer(CANARY))
    assert [caller.acting_as(name) for name in ("shop-1", "shop-17", "shop-")] == [
        "shop-1",
        "shop-17",
        "shop-",
    ]
    for name in ("shop", "ashop-1", "shop_1", "*", "shop-*"[:4]):
        with pytest.raises(WrongCaller, match=r"shop-\* may not act as"):
            caller.acting_as(name)
    with pytest.raises(WrongCaller, match="not an administrator"):
        caller.administering()


def test_a_certificate_for_a_prefix_is_every_name_that_begins_so() -> None:
    """A star at the front, as in host names, or a lone star matches no consumer."""
    names = [b"shop-*", b"*.shop.svc", b"*", b"web-**"]
    caller = CertificateAuthenticator().caller(Context(certificate={"x509_common_name": names}))
    assert caller.acting_as("shop-1") == "shop-1"
    for name in ("a.shop.svc", "other", "web-1"):
        with pytest.raises(WrongCaller):
            caller.acting_as(name)


def test_two_tokens_of_one_name_both_count(tmp_path: Path) -> None:
    """Consumers need both tokens while they switch to the new token."""
    authenticator = tokens(tmp_path, "a old\na new\na new")
    assert [authenticator.caller(bearer(token)).acting_as("a") for token in ("old", "new")] == [
        "a",
        "a",
    ]


def test_tokens_are_read_again_when_the_file_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A removed token is refused, a new token works, and a changed file is read once."""
    authenticator = tokens(tmp_path, "a old")
    authenticator.look()
    (tmp_path / "next").write_text("a new-one")
    (tmp_path / "next").replace(tmp_path / "tokens")
    assert authenticator.caller(bearer("old")).acting_as("a") == "a"
    with caplog.at_level("INFO"):
        authenticator.look()
        authenticator.look()
    assert caplog.text.count("has changed") == 1
    assert authenticator.caller(bearer("new-one")).acting_as("a") == "a"
    with pytest.raises(Unauthenticated):
        authenticator.caller(bearer("old"))


@pytest.mark.parametrize("text", ["a", None, ""])
def test_a_file_that_became_wrong_leaves_the_tokens_that_there_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    """The error is logged once, and a corrected file is read."""
    authenticator = tokens(tmp_path, "a old")
    if text is None:
        (tmp_path / "tokens").unlink()
    else:
        (tmp_path / "tokens").write_text(text)
    authenticator.look()
    authenticator.look()
    assert authenticator.caller(bearer("old")).acting_as("a") == "a"
    assert caplog.text.count("keeps its current tokens") == 1
    (tmp_path / "tokens").write_text("a newer-one")
    authenticator.look()
    assert authenticator.caller(bearer("newer-one")).acting_as("a") == "a"


def test_a_callers_token_is_read_from_its_file_for_each_call(tmp_path: Path) -> None:
    """A mounted secret changes while the process runs."""
    from faust_assigner.service.client import Access

    path = tmp_path / "token"
    path.write_text("one\n")
    access = Access(token_file=path)
    assert access.metadata() == (("authorization", "Bearer one"),)
    path.write_text("two")
    assert access.metadata() == (("authorization", "Bearer two"),)
    assert "two" not in repr(access)


def test_no_token_is_ever_shown(tmp_path: Path) -> None:
    """The texts of the authenticator, its errors and the client's access hide tokens."""
    from faust_assigner.service.client import Access

    authenticator = tokens(tmp_path, f"a {CANARY}")
    with pytest.raises(Unauthenticated) as raised:
        authenticator.caller(Context(("authorization", f"Bearer {CANARY}x")))
    assert CANARY not in f"{authenticator!r}{raised.value}{Access(token=CANARY)!r}"


@pytest.mark.parametrize("group", ["", "shop"])
def test_a_name_with_an_empty_group_before_its_slash_covers_no_consumer(
    group: str, tmp_path: Path
) -> None:
    """``/a`` is a typing error, not a name for all groups."""
    caller = tokens(tmp_path, f"/a {CANARY}\n").caller(
        Context(("authorization", f"Bearer {CANARY}"))
    )
    with pytest.raises(WrongCaller):
        caller.acting_as("a", group)


def test_an_unchanged_file_of_tokens_is_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A # begins a comment only at the start of a line."""
    caplog.set_level("INFO")
    authenticator = tokens(tmp_path, "# of the shop\na to#ken\nb #\n")
    authenticator.look()
    assert [one for one in caplog.records if one.name.endswith("auth")] == []
    assert authenticator.caller(Context(("authorization", "Bearer to#ken"))).names == {"a"}
    assert authenticator.caller(Context(("authorization", "Bearer #"))).names == {"b"}
