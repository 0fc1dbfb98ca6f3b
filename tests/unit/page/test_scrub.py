"""Passwords in texts of workers or brokers do not reach a page."""

from __future__ import annotations

import pytest

from faust_assigner.page.scrub import HIDDEN, scrubbed, setting_of, text_of
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Heard
from faust_assigner.status.report import ANSWERED
from tests.support.page import look_at
from tests.support.status import group


@pytest.mark.parametrize(
    "text",
    [
        "kafka://shop:hunter2@kafka-1:9092",
        "kafka://shop:hunter2@kafka-1:9092;kafka://shop:hunter2@kafka-2:9092",
        "http://w0:6066?token=hunter2",
        'sasl.jaas.config=org.apache.Plain required username="shop" password="hunter2";',
        "sasl_plain_password: hunter2, next",
        "API_KEY='hunter2'",
        "{'ssl.key.password': 'hunter2'}",
    ],
)
def test_a_secret_in_a_text_is_hidden(text: str) -> None:
    """Secrets occur in URLs, in Kafka's properties, and in printed mappings."""
    found = text_of(text)
    assert "hunter2" not in found
    assert HIDDEN in found


def test_an_ordinary_text_stays_as_it_is() -> None:
    """Hiding too much would make the page useless."""
    for text in ("http://w0:6066 did not answer within 3 s", "orders 0-3: lag 12", "a@b", "3:4"):
        assert text_of(text) == text


@pytest.mark.parametrize("name", ["SASL_MECHANISM", "broker_credentials", "DB_PASSWORD", "MyToken"])
def test_a_setting_with_a_secret_name_is_hidden(name: str) -> None:
    """The value itself may look harmless."""
    assert setting_of(name, "plain-words") == HIDDEN
    assert setting_of("broker_session_timeout", "60") == "60"
    assert setting_of(name, "") == ""


def test_a_page_of_workers_that_tell_secrets_has_none() -> None:
    """Workers of a different version may send secrets in settings, reasons and URLs."""
    made = group(2)
    heard = {
        made.claims[name].url: Heard(
            answer=ANSWERED,
            status=made.status_of(
                name,
                settings={"SHOP_PASSWORD": f"hunter2-{name}", "store": f"s3://u:hunter2@{name}/b"},
                not_ready=("cannot reach kafka://shop:hunter2@kafka-1:9092",),
            ),
        )
        for name in ("m0", "m1")
    }
    report = build(made.evidence(heard=heard))
    assert "hunter2" in repr(report)
    from faust_assigner.page.render import parts_of

    parts = parts_of(look_at(report))
    assert "hunter2" not in "".join(parts.values())
    assert "SHOP_PASSWORD" in parts["about"]
    assert "s3://(hidden)@m0/b" in parts["about"]


def test_scrubbing_changes_nothing_else() -> None:
    """A report without secrets stays equal."""
    report = build(group(3).evidence(silent=["m1"]))
    assert scrubbed(report) == report


def test_a_url_keeps_its_host_and_path_alone() -> None:
    """A signature in a query may have any name, so users and queries are hidden."""
    text = "a http://u:p@h:1/x?sig=hunter2#y, then s3://bucket/key?v=1 and kafka://me@k:2/"
    assert text_of(text) == (
        f"a http://{HIDDEN}@h:1/x?{HIDDEN}#y, then s3://bucket/key?{HIDDEN} and kafka://{HIDDEN}@k:2/"
    )
