"""Settings: Kafka's names, types and bounds; errors name the wrong setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from faust_assigner.broker.api import APIS
from faust_assigner.broker.limits import is_group_id, topic_name_problem
from faust_assigner.broker.security.listeners import advertised
from faust_assigner.broker.serve import parse_assignments
from faust_assigner.broker.settings import SETTINGS, Settings
from faust_assigner.broker.topic_configs import TOPIC_CONFIGS, check_configs, default_configs
from faust_assigner.errors import ConfigError


def test_values_are_text_or_typed() -> None:
    """The command line gives text, and a test gives numbers and booleans."""
    text = Settings.parse({"num.partitions": "12", "auto.create.topics.enable": "FALSE"})
    typed = Settings.parse({"num.partitions": 12, "auto.create.topics.enable": False})
    assert text == typed
    assert (text.num_partitions, text.auto_create_topics_enable) == (12, False)


def test_an_unknown_name_is_refused_with_a_hint() -> None:
    """The name is a misspelled Kafka name."""
    with pytest.raises(ConfigError, match=r"'num\.partition'.*did you mean 'num\.partitions'"):
        Settings.parse({"num.partition": "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "many"),
        ("num.partitions", "1.5"),
        ("num.partitions", ""),
        ("num.partitions", "1_0"),
        ("auto.create.topics.enable", "yes"),
        ("log.cleaner.min.cleanable.ratio", "1.1"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.cleanup.policy", "shred"),
        ("group.initial.rebalance.delay.ms", "-1"),
        ("offsets.retention.minutes", "0"),
        ("message.max.bytes", str(2**40)),
    ],
)
def test_an_impossible_value_is_refused_with_both_names(name: str, value: str) -> None:
    """The message names the setting and the given value."""
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        Settings.parse({name: value})


def test_settings_that_contradict_each_other_are_refused() -> None:
    """The pairs are session limits in wrong order, and a message larger than a frame."""
    with pytest.raises(ConfigError, match="above"):
        Settings.parse({"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 9})
    with pytest.raises(ConfigError, match="does not fit"):
        Settings.parse({"message.max.bytes": 2_000, "socket.request.max.bytes": 1_999})


def test_defaults_are_kafkas_where_kafka_has_them() -> None:
    """Users compare the defaults with Kafka's."""
    values = Settings().by_kafka_name()
    expected = {
        "num.partitions": "1",
        "auto.create.topics.enable": "true",
        "message.max.bytes": "1048588",
        "group.initial.rebalance.delay.ms": "3000",
        "group.min.session.timeout.ms": "6000",
        "group.max.session.timeout.ms": "1800000",
        "group.max.size": "2147483647",
        "offsets.retention.minutes": "10080",
        "offset.metadata.max.bytes": "4096",
        "log.retention.bytes": "-1",
        "connections.max.idle.ms": "600000",
    }
    assert {name: values[name] for name in expected} == expected


def test_every_setting_is_described() -> None:
    """For --settings and the reference page."""
    assert all(one.name and one.default_text and one.meaning for one in SETTINGS.values())
    assert [one.name for one in SETTINGS.values()] == list(Settings().by_kafka_name())


def test_every_default_is_a_value_of_its_setting() -> None:
    """Kafka's tools send a default back as they have read it."""
    assert Settings.parse(Settings().by_kafka_name()) == Settings()


def test_the_reference_page_names_every_setting_and_api_as_it_is() -> None:
    """Each setting and each API has a row; tests/unit/docs compares the rows."""
    page = (Path(__file__).parents[3] / "docs/reference/broker.md").read_text()
    assert all(f"| `{one.name}` |" in page for one in SETTINGS.values())
    assert all(f"| {api.name} | {api.key} | " in page for api in APIS.values())


def test_assignments_need_an_equals_sign_and_distinct_names() -> None:
    """--set a=1 --set a=2 is an error."""
    assert parse_assignments(("a=1", "b = x=y ")) == {"a": "1", "b": "x=y"}
    for pairs in (("a",), ("a=1", "a=2")):
        with pytest.raises(ConfigError):
            parse_assignments(pairs)


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "x" * 249, "shop-orders-changelog"])
def test_legal_topic_names(name: str) -> None:
    """Letters, digits, dot, underscore and dash are legal, up to 249 characters."""
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\n", "../etc", "a\0"]
)
def test_illegal_topic_names(name: str) -> None:
    """No name may look like a path, contain a terminator or be too long."""
    assert topic_name_problem(name)


def test_topic_configs_are_checked_by_name_and_value() -> None:
    """Faust's own configs are valid; unknown names and wrong values are named."""
    assert check_configs({"cleanup.policy": "compact,delete", "retention.ms": "-1"}) is None
    assert "retention.ms" in (check_configs({"retention.ms": "-2"}) or "")
    assert "no.such" in (check_configs({"no.such": "1"}) or "")
    assert "cleanup.policy" in (check_configs({"cleanup.policy": "shred"}) or "")
    assert "cleanup.policy" in (check_configs({"cleanup.policy": "delete,"}) or "")


def test_a_cleanup_policy_of_neither_word_is_one() -> None:
    """An empty policy keeps records for ever in Kafka (KIP-1161)."""
    assert check_configs({"cleanup.policy": ""}) is None


def test_the_defaults_of_topics_pass_their_own_checks() -> None:
    """Broker settings change the defaults."""
    defaults = default_configs(Settings.parse({"log.retention.ms": 7}))
    assert check_configs(defaults) is None
    assert defaults["retention.ms"] == "7"
    assert set(defaults) == set(TOPIC_CONFIGS)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("kafka:9092", ("kafka", 9092)),
        ("PLAINTEXT://10.0.0.1:1", ("10.0.0.1", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_advertised_listener_is_a_host_and_a_port(
    text: str, address: tuple[str, int] | None
) -> None:
    """IPv6 addresses have brackets."""
    assert (
        advertised(Settings.parse({"advertised.listeners": text}).advertised_listeners) == address
    )


@pytest.mark.parametrize("text", ["kafka", "kafka:0", "kafka:65536", "SSL://kafka:1", "a:1,b:2"])
def test_a_listener_that_is_no_address_is_refused(text: str) -> None:
    """Ports are from 1 to 65535."""
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        Settings.parse({"advertised.listeners": text})


@pytest.mark.parametrize("text", ["range", "range, uniform", " uniform,range,copartition "])
def test_a_list_of_names_is_kept_in_its_order(text: str) -> None:
    """The first assignor serves groups whose members choose none."""
    parsed = Settings.parse({"group.consumer.assignors": text}).group_consumer_assignors
    assert parsed == ",".join(name.strip() for name in text.split(","))


@pytest.mark.parametrize("text", ["sticky", "range,sticky", "range,range", "range,", ""])
def test_a_list_has_each_of_the_known_names_once(text: str) -> None:
    """The cases are an unknown name, a repeated name, and a missing name."""
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors must be some of"):
        Settings.parse({"group.consumer.assignors": text})


PAIRS = (
    ({"queued.max.request.bytes": 70_000, "socket.request.max.bytes": 70_000}, 1,
     "queued.max.request.bytes"),
    ({"message.max.bytes": 70_000, "socket.request.max.bytes": 70_000}, 1,
     "socket.request.max.bytes"),
    ({"group.max.session.timeout.ms": 6_000, "group.min.session.timeout.ms": 6_000}, 1,
     "group.max.session.timeout.ms"),
    ({"group.consumer.session.timeout.ms": 45_000, "group.consumer.heartbeat.interval.ms": 5_000,
      "group.consumer.min.session.timeout.ms": 45_000}, 1, "group.consumer.session.timeout.ms"),
    ({"group.consumer.max.session.timeout.ms": 45_000}, 1,
     "group.consumer.max.session.timeout.ms"),
    ({"group.consumer.max.heartbeat.interval.ms": 5_000}, 1,
     "group.consumer.max.heartbeat.interval.ms"),
    ({"group.consumer.session.timeout.ms": 45_000, "group.consumer.heartbeat.interval.ms": 44_999,
      "group.consumer.max.heartbeat.interval.ms": 50_000,
      "group.consumer.min.session.timeout.ms": 1}, 1, "group.consumer.session.timeout.ms"),
)  # fmt: skip


@pytest.mark.parametrize(("given", "less", "name"), PAIRS)
def test_settings_that_just_fit_together_are_taken_and_one_less_is_refused(
    given: dict[str, int], less: int, name: str
) -> None:
    """The error names the lowered setting."""
    small = {"message.max.bytes": 60_000} if "message.max.bytes" not in given else {}
    Settings.parse({**small, **given})
    lowered = {**small, **given, name: given[name] - less}
    if name == "socket.request.max.bytes" and "queued.max.request.bytes" in given:
        lowered["queued.max.request.bytes"] = given[name]
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        Settings.parse(lowered)


@pytest.mark.parametrize(
    ("text", "address", "is_refused"),
    [
        ("", None, False),
        ("SSL://h:9", None, True),
        ("h:9", ("h", 9), False),
        ("h:0", None, True),
        ("0.0.0.0:9", None, True),
        ("[::]:9", None, True),
        ("[::1]:9", ("::1", 9), False),
    ],
)
def test_an_advertised_address_is_one_that_clients_can_connect_to(
    text: str, address: tuple[str, int] | None, is_refused: bool
) -> None:
    """The address must have a protocol of a listener."""
    if is_refused:
        with pytest.raises(ConfigError, match=r"advertised\.listeners"):
            Settings.parse({"advertised.listeners": text})
        return
    assert (
        advertised(Settings.parse({"advertised.listeners": text}).advertised_listeners) == address
    )


def test_each_topic_default_is_the_brokers_setting_of_its_own_name() -> None:
    """All values differ from Kafka's and from each other."""
    given = {
        "log.retention.ms": (11, "retention.ms"),
        "log.retention.bytes": (12, "retention.bytes"),
        "log.cleanup.policy": ("compact,delete", "cleanup.policy"),
        "log.cleaner.delete.retention.ms": (13, "delete.retention.ms"),
        "log.cleaner.max.compaction.lag.ms": (15, "max.compaction.lag.ms"),
        "log.cleaner.min.cleanable.ratio": (0.25, "min.cleanable.dirty.ratio"),
        "log.cleaner.min.compaction.lag.ms": (14, "min.compaction.lag.ms"),
        "log.message.timestamp.type": ("LogAppendTime", "message.timestamp.type"),
        "log.flush.interval.messages": (16, "flush.messages"),
        "message.max.bytes": (17, "max.message.bytes"),
    }
    settings = Settings.parse({name: value for name, (value, _) in given.items()})
    usual, changed = default_configs(Settings()), default_configs(settings)
    differing = {name: value for name, value in changed.items() if usual[name] != value}
    assert differing == {topic: str(value) for value, topic in given.values()}


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("num.partitions", 1, 10_000),
        ("offset.metadata.max.bytes", 0, 2**20),
        ("log.retention.ms", -1, 2**63 - 1),
        ("group.consumer.assignment.interval.ms", 0, 2**31 - 1),
    ],
)
def test_a_number_is_taken_at_both_of_its_limits_and_not_beyond(
    name: str, low: int, high: int
) -> None:
    """The number may be text or a number."""
    for value in (low, high, str(low), f" {high} "):
        assert Settings.parse({name: value}).by_kafka_name()[name] == str(value).strip()
    for value in (low - 1, high + 1, str(high + 1)):
        with pytest.raises(ConfigError, match=f"a whole number from {low} to {high}, got"):
            Settings.parse({name: value})


def test_a_ratio_is_a_number_from_0_to_1() -> None:
    """Both limits are allowed."""
    name = "log.cleaner.min.cleanable.ratio"
    for text, value in (("0", 0.0), ("1", 1.0), (" 0.25 ", 0.25), (0.5, 0.5)):
        assert Settings.parse({name: text}).log_cleaner_min_cleanable_ratio == value
    for text in ("-0.001", "1.001", "half", "nan"):
        with pytest.raises(ConfigError, match=r"log\.cleaner\.min\.cleanable\.ratio must be"):
            Settings.parse({name: text})


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("PLAIN", "PLAIN"),
        (" SCRAM-SHA-512 , PLAIN", "SCRAM-SHA-512,PLAIN"),
        ("PLAIN,PLAIN", None),
        ("plain", None),
        ("PLAIN,", None),
        ("", None),
    ],
)
def test_a_list_has_known_words_each_once(text: str, kept: str | None) -> None:
    """The given order is kept."""
    name = "sasl.enabled.mechanisms"
    if kept is None:
        with pytest.raises(ConfigError, match=r"each once, got"):
            Settings.parse({name: text})
    else:
        assert Settings.parse({name: text}).sasl_enabled_mechanisms == kept


@pytest.mark.parametrize(
    ("group_id", "is_one"),
    [("g", True), ("", False), (None, False), ("ä" * 512, True), ("ä" * 512 + "x", False)],
)
def test_a_group_id_has_at_most_1024_bytes(group_id: str | None, is_one: bool) -> None:
    """The limit counts UTF-8 bytes."""
    assert is_group_id(group_id) is is_one


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("t" * 249, True),
        ("t" * 250, False),
        (".", False),
        ("..", False),
        ("...", True),
        ("a b", False),
    ],
)
def test_a_topic_name_has_at_most_249_characters(name: str, is_one: bool) -> None:
    """The limit is that of file names; "." and ".." are not allowed."""
    assert (topic_name_problem(name) is None) is is_one


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sasl.enabled.mechanisms", "PLAIN,PLAIN"),
        ("sasl.enabled.mechanisms", "PLAIN, PLAIN"),
        ("sasl.enabled.mechanisms", "PLAIN,GSSAPI"),
        ("group.coordinator.rebalance.protocols", "classic,classic"),
        ("group.consumer.assignors", "own=some.module:one,own=some.module:two"),
        ("group.consumer.assignors", "range,own=some.module:one,own=some.module:one"),
    ],
)
def test_no_name_of_a_list_comes_twice(name: str, text: str) -> None:
    """Two plug-ins of one name are a repetition, too."""
    with pytest.raises(ConfigError, match=name):
        Settings.parse({name: text})
