"""The flags and the environment of ``serve``: accepted and refused values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.service.server import options as options_module
from faust_assigner.service.server.auth import CertificateAuthenticator, TokenAuthenticator
from faust_assigner.service.server.options import Options, is_loopback
from faust_assigner.settings.service import BY_NAME, OPTIONS, flag
from tests.support.certificates import Authority


def test_an_argument_goes_before_the_environment() -> None:
    """The environment has priority over the default."""
    environment = {"FAUST_ASSIGNER_DEBOUNCE_S": "3", "FAUST_ASSIGNER_PREFIX": "/x/"}
    settings = Options.read({"debounce_s": "2"}, environment).settings
    assert (settings.debounce_s, settings.prefix, settings.leader_ttl_s) == (2, "/x/", 15)


def test_topics_are_names_and_counts() -> None:
    """In the environment, topics are separated by commas; Kafka's dotted names are accepted."""
    found = Options.read({}, {"FAUST_ASSIGNER_TOPIC": "orders=12, shop.rates.v1=3"})
    assert found.server.topic == (("orders", 12), ("shop.rates.v1", 3))


def test_a_keepalive_follows_a_short_time_to_live() -> None:
    """The default is a third of the time to live."""
    assert Options.read({"consumer_ttl_s": "3"}, {}).settings.consumer_keepalive_s == 1.0
    assert Options.read({}, {}).settings.consumer_keepalive_s == 5.0


@pytest.mark.parametrize(
    ("name", "beside", "said", "derived"),
    [
        ("consumer_keepalive_s", {"consumer_ttl_s": "3"}, "1.5", 1.0),
        ("leader_keepalive_s", {"leader_ttl_s": "3"}, "1.5", 1.0),
        ("release_timeout_s", {"handoff_timeout_s": "6"}, "9", 6.0),
    ],
)
def test_a_time_that_is_said_is_not_derived_from_another(
    name: str, beside: dict[str, str], said: str, derived: float
) -> None:
    """Only a default depends on the shorter time, not a flag or an environment variable."""
    by_default = Options.read(beside, {})
    by_flag = Options.read({**beside, name: said}, {})
    by_environment = Options.read(beside, {BY_NAME[name].name: said})
    found = [getattr(one.settings, name) for one in (by_default, by_flag, by_environment)]
    assert found == [derived, float(said), float(said)]


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"consumer_ttl_s": "10", "consumer_keepalive_s": "10"},
        "--consumer-keepalive-s must .* --consumer-ttl-s .* 10",
    ),
    ({"leader_ttl_s": "6", "leader_keepalive_s": "7"}, "--leader-keepalive-s .* 7"),
    ({"bind": "50051"}, r"--bind \(FAUST_ASSIGNER_BIND\) must be HOST:PORT, got '50051'"),
    ({"bind": "127.0.0.1:70000"}, "FAUST_ASSIGNER_BIND"),
    ({"topic": "orders"}, "--topic .* must be NAME=COUNT.*'orders'"),
    ({"topic": "orders=0"}, "FAUST_ASSIGNER_TOPIC"),
    ({"topic": "orders=1,orders=2"}, "each name once"),
    ({"prefix": "shop"}, "--prefix .* must be a text that begins"),
    ({"groups": "a,a"}, "--groups: .* each once: 'a'"),
    ({"groups": "a/b"}, "--groups: .* 'a/b'"),
    ({"groups": "a", "topic": "orders=1"}, "--topic orders: give GROUP/TOPIC=COUNT"),
    ({"groups": "a", "topic": "b/orders=1"}, "--topic b/orders: give GROUP/TOPIC=COUNT"),
    ({"groups": "a", "topic": "a/b/orders=1"}, "--topic a/b/orders: give GROUP/TOPIC=COUNT"),
    ({"topic": "a/orders=1"}, "--topic a/orders: a group's topic needs --groups"),
    ({"etcd": "ftp://etcd:2379"}, "--etcd .* must be URLs .* got 'ftp://etcd:2379'"),
    ({"etcd": "https://a:1,httpx://b:2"}, "--etcd .* must be URLs"),
    ({"etcd": "http://etcd"}, "--etcd .* must be URLs"),
    ({"debounce_s": "-1"}, "FAUST_ASSIGNER_DEBOUNCE_S"),
    ({"channel": "0"}, "FAUST_ASSIGNER_CHANNEL"),
    ({"tls_cert": "/nowhere.pem"}, "--tls-cert .* must be an existing file"),
    (
        {"bind": "0.0.0.0:50051"},
        "0.0.0.0 is not loopback: give --tls-cert and --tls-key, or --insecure",
    ),
]


@pytest.mark.parametrize(("said", "why"), WRONG)
def test_what_cannot_be_is_refused_by_name(said: dict[str, Any], why: str) -> None:
    """The error has the value, and comes before the server listens."""
    with pytest.raises(ConfigError, match=why):
        Options.read(said, {})


def test_encryption_without_authentication_is_not_for_others(tmp_path: Any) -> None:
    """Beyond loopback the service requires both."""
    (tmp_path / "pem").write_text("")
    said = {"bind": "[::]:50051", "tls_cert": tmp_path / "pem", "tls_key": tmp_path / "pem"}
    with pytest.raises(ConfigError, match="give --tokens or --tls-client-ca"):
        Options.read(said, {})
    found = Options.read({"bind": "10.0.0.1:1", "insecure": True}, {})
    assert found.server.bind == ("10.0.0.1", 1)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["tls_cert"], "--tls-cert and --tls-key require each other"),
        (["tls_key"], "--tls-cert and --tls-key require each other"),
        (["tls_client_ca"], "--tls-client-ca requires --tls-cert and --tls-key"),
        (["tls_client_ca", "tokens"], "--tls-client-ca requires --tls-cert and --tls-key"),
        (["tokens"], None),
        (["tls_cert", "tls_key"], None),
        (["tls_cert", "tls_key", "tls_client_ca"], None),
    ],
)
@pytest.mark.parametrize("more", [{}, {"insecure": True}])
def test_files_that_belong_together_are_given_together(
    tmp_path: Path, given: list[str], why: str | None, more: dict[str, Any]
) -> None:
    """The rule holds on loopback and for an insecure service as well."""
    (tmp_path / "file").write_text("")
    said = {**dict.fromkeys(given, str(tmp_path / "file")), **more}
    if why is None:
        Options.read(said, {})
    else:
        with pytest.raises(ConfigError, match=why):
            Options.read(said, {})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "give --tls-cert and --tls-key"),
        (["tokens"], "give --tls-cert and --tls-key"),
        (["tls_cert", "tls_key"], "give --tokens or --tls-client-ca"),
        (["tls_cert", "tls_key", "tokens"], None),
        (["tls_cert", "tls_key", "tls_client_ca"], None),
    ],
)
def test_a_service_beyond_loopback_needs_encryption_and_authentication(
    tmp_path: Path, given: list[str], why: str | None
) -> None:
    """Tokens and certificates of clients are both an authentication."""
    (tmp_path / "file").write_text("")
    said: dict[str, Any] = dict.fromkeys(given, str(tmp_path / "file"))
    said["bind"] = "10.0.0.1:50051"
    if why is None:
        assert Options.read(said, {}).server.bind == ("10.0.0.1", 50051)
    else:
        with pytest.raises(ConfigError, match=f"10.0.0.1 is not loopback: {why}, or --insecure"):
            Options.read(said, {})


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    """gRPC would report a taken address, or a service that does not answer."""
    authority = Authority(tmp_path)
    one, other, ca = authority.sign("one"), authority.sign("other"), str(authority.ca)
    (tmp_path / "words").write_text("words")
    words = str(tmp_path / "words")
    good = {
        "tls_cert": str(one.cert),
        "tls_key": str(one.key),
        "tls_client_ca": ca,
        "etcd": "https://a:1",
        "etcd_ca": ca,
        "etcd_cert": str(one.cert),
        "etcd_key": str(one.key),
    }
    Options.read(good, {}).check_files()
    for wrong, named in (
        ({"tls_cert": words}, "--tls-cert and --tls-key"),
        ({"tls_key": str(other.key)}, "--tls-cert and --tls-key"),
        ({"tls_client_ca": words}, "--tls-client-ca"),
        ({"etcd_key": str(other.key)}, "--etcd-cert and --etcd-key"),
        ({"etcd_ca": words}, "--etcd-ca"),
    ):
        with pytest.raises(ConfigError, match=f"{named}: "):
            Options.read({**good, **wrong}, {}).check_files()


def test_every_group_and_every_topic_is_checked() -> None:
    """The first of the wrong ones is named."""
    for said, why in (
        ({"groups": "a,b,b"}, "--groups: .* each once: 'b'"),
        ({"groups": "a,b/c"}, "--groups: .* 'b/c'"),
        ({"groups": "a,b c"}, "--groups: .* 'b c'"),
        ({"groups": "a", "topic": "a/t=1,b/t=2,c/t=3"}, "--topic b/t: give GROUP/TOPIC=COUNT"),
        ({"topic": "t=1,b/t=2"}, "--topic b/t: a group's topic needs --groups"),
    ):
        with pytest.raises(ConfigError, match=why):
            Options.read(said, {})


def test_a_bare_certificate_of_the_store_is_not_checked_as_a_pair(tmp_path: Path) -> None:
    """The store refuses a certificate without its key."""
    authority = Authority(tmp_path)
    one = authority.sign("one")
    Options.read({"etcd": "https://a:1", "etcd_cert": str(one.cert)}, {}).check_files()
    Options.read({"etcd": "https://a:1", "etcd_key": str(one.key)}, {}).check_files()


@pytest.mark.parametrize("given", [["tls_cert"], ["tls_key"], []])
def test_a_port_without_a_whole_pair_has_no_encryption(tmp_path: Path, given: list[str]) -> None:
    """Both files are needed."""
    (tmp_path / "pem").write_text("")
    found = Options.read({}, {})
    half = replace(found.server, **dict.fromkeys(given, tmp_path / "pem"))
    assert replace(found, server=half).certificates() is None


def test_the_files_of_the_port_keep_their_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate, the key and the authority of clients; the administrators come along."""
    files = {name: tmp_path / name for name in ("tls_cert", "tls_key", "tls_client_ca", "tokens")}
    for path in files.values():
        path.write_text("a of-a\n")
    told: list[object] = []
    monkeypatch.setattr(options_module, "Certificates", lambda *said: told.append(said))
    said = {name: str(path) for name, path in files.items()} | {"admins": "a,b"}
    found = Options.read(said, {})
    found.certificates()
    del said["tls_client_ca"]
    Options.read(said, {}).certificates()
    pair = (files["tls_cert"], files["tls_key"])
    assert told == [(*pair, files["tls_client_ca"]), (*pair, None)]
    by_token = found.authenticator()
    del said["tokens"]
    by_certificate = Options.read(said | {"tls_client_ca": str(files["tls_client_ca"])}, {})
    assert by_token == TokenAuthenticator.of_file(files["tokens"], ("a", "b"))
    assert by_certificate.authenticator() == CertificateAuthenticator(("a", "b"))


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *(
            (host, False)
            for host in ("10.0.0.1", "0.0.0.0", "::", "localhost.shop", "mylocalhost", "")
        ),
    ],
)
def test_loopback_is_told_from_other_addresses(host: str, is_local: bool) -> None:
    """An unspecified address covers every address."""
    assert is_loopback(host) is is_local


def test_every_option_has_its_flag() -> None:
    """The command has an option for each row of the table."""
    said = CliRunner().invoke(main, ["serve", "--help"]).output
    assert [setting.name for setting in OPTIONS if f"{flag(setting)} " not in said] == []


def test_a_wrong_flag_ends_the_command_in_one_line() -> None:
    """The exit code is 2."""
    done = CliRunner().invoke(main, ["serve", "--leader-keepalive-s", "20"])
    assert done.exit_code == 2
    assert done.output == (
        "faust-assigner: --leader-keepalive-s must be below two thirds of "
        "--leader-ttl-s (15), got 20\n"
    )


@pytest.mark.parametrize("at", ["nonsense", "127.0.0.1:99999", ":1", "host"])
@pytest.mark.parametrize("command", ["consumers", "health"])
def test_an_operators_address_that_cannot_be_is_refused_at_once(command: str, at: str) -> None:
    """gRPC would use a different port, or resolve the text as a host."""
    done = CliRunner().invoke(main, ["service", command, "--at", at])
    assert done.exit_code == 2
    assert f"must be HOST:PORT, got '{at}'" in done.output


def test_no_default_is_shown_as_nothing() -> None:
    """A default of zero is shown as 0."""
    assert [flag(setting) for setting in OPTIONS if not setting.default_text] == []
    assert BY_NAME["replicas"].default_text == "0"


@pytest.mark.parametrize(
    ("flags", "strict"), [((), True), (("--no-strict",), False), (("--strict",), True)]
)
def test_two_owners_at_a_time_must_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], strict: bool
) -> None:
    """The cases: no flag, --no-strict and --strict."""
    seen: list[bool] = []
    monkeypatch.setattr(
        "faust_assigner.service.server.serve.serve",
        lambda options, say: seen.append(options.settings.strict),
    )
    result = CliRunner().invoke(main, ["serve", *flags], catch_exceptions=False)
    assert (result.exit_code, seen) == (0, [strict])
