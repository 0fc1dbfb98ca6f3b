"""Names that only look like known variables, and the extra that a block names itself."""

from __future__ import annotations

import pytest

from faust_assigner.errors import ConfigError, MissingExtra
from faust_assigner.settings.extras import missing_extra, needs
from faust_assigner.settings.known import check_environment, check_keywords, is_of_kubernetes


@pytest.mark.parametrize(
    ("name", "is_its"),
    [
        ("FAUST_ASSIGNER_SERVICE_HOST", True),
        ("FAUST_ASSIGNER_A_SERVICE_PORT_GRPC", True),
        ("FAUST_ASSIGNER_PORT", True),
        ("FAUST_ASSIGNER_PORT_7_TCP_ADDR", True),
        ("FAUST_ASSIGNER_SERVICE_HOSTS", False),
        ("FAUST_ASSIGNER_PORT_7_TCP_ADDRESS", False),
        ("FAUST_ASSIGNER_PORTS", False),
        ("MY_FAUST_ASSIGNER_PORT", False),
        ("X_FAUST_ASSIGNER_SERVICE_HOST", False),
    ],
)
def test_a_variable_of_kubernetes_has_exactly_its_form(name: str, is_its: bool) -> None:
    """A longer name is a misspelled setting."""
    assert is_of_kubernetes(name) is is_its


@pytest.mark.parametrize("prefix", ["SHOP", "SHOP_"])
def test_each_unknown_variable_is_named_with_its_prefix(prefix: str) -> None:
    """The prefix of an app is compared as it is written; the names are sorted."""
    names = [
        *("shop_FAUST_ASSIGNER_RACK", "SHOP_FAUST_ASSIGNER_RACKS", "FAUST_ASSIGNER_RACC"),
        *("SHOP_FAUST_ASSIGNER_RACK", "FAUST_ASSIGNER_RACK", "FAUST_ASSIGNER_KAFKA_SASL", "X"),
        *("faust_assigner_rack", "FAUST_ASSIGNER_KAFKA_", "OTHER_FAUST_ASSIGNER_RACKS"),
    ]
    with pytest.raises(ConfigError) as refused:
        check_environment(names, env_prefix=prefix)
    wrong = str(refused.value)
    assert wrong.startswith("Unknown settings in the environment: FAUST_ASSIGNER_KAFKA_: ")
    places = [
        wrong.index(text)
        for text in (
            "FAUST_ASSIGNER_RACC: did you mean FAUST_ASSIGNER_RACK?",
            "SHOP_FAUST_ASSIGNER_RACKS: did you mean SHOP_FAUST_ASSIGNER_RACK?",
            "faust_assigner_rack: did you mean FAUST_ASSIGNER_RACK?",
            "shop_FAUST_ASSIGNER_RACK: did you mean SHOP_FAUST_ASSIGNER_RACK?",
        )
    ]
    assert places == sorted(places)
    assert wrong.count(": ") == 6


def test_keywords_may_be_in_upper_case_but_not_in_both() -> None:
    """Every unknown keyword is named, with the nearest one."""
    check_keywords(["faust_assigner_rack", "FAUST_ASSIGNER_RACK", "rack", "version"])
    with pytest.raises(ConfigError) as refused:
        check_keywords(["Faust_Assigner_Rack", "faust_assigner_racks", "zzz"])
    assert str(refused.value) == (
        "Unknown keywords of faust.App: Faust_Assigner_Rack: did you mean faust_assigner_rack?; "
        "faust_assigner_racks: did you mean faust_assigner_rack? "
        "(docs/reference/settings.md lists them all)"
    )


def test_a_block_names_its_own_extra() -> None:
    """Without a block the package determines the extra; a bug of ours is no missing package."""
    words = r"kio is not installed: .*faust-assigner\[broker\]"
    with pytest.raises(MissingExtra, match=words), needs("broker"):
        raise ModuleNotFoundError("no", name="kio.schema")
    found = missing_extra(ModuleNotFoundError("no", name="kio.schema"))
    assert "faust-assigner[clients]" in str(found)
    for name in ("faust_assigner.x", "", "unknown_package"):
        assert missing_extra(ModuleNotFoundError("no", name=name)) is None
    error = ModuleNotFoundError("no", name="faust_assigner.x")
    with pytest.raises(ModuleNotFoundError) as raised, needs("broker"):
        raise error
    assert raised.value is error
    inner = MissingExtra("grpc", "service")
    with pytest.raises(MissingExtra) as raised, needs("broker"):
        raise inner
    assert raised.value is inner
