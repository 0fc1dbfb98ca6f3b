"""Every shell block of README and docs is run, page by page, on one machine.

Each page has its stage here: the local values of ``kafka:9092``, ``/var/lib/shop/ledger`` or a
bucket, and the expected result. A new page with shell blocks gets a line in ``PAGES``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner import Member, plan
from faust_assigner.ledger import encode
from faust_assigner.testing.ports import free_port
from tests.integration.docs.stage import Stage
from tests.support import warm_spark
from tests.support.pages import ALL, ROOT, Block
from tests.support.waiting import PATIENCE_S

SHELL = [block for block in ALL if block.language in ("sh", "console") and not block.reason]
#: Pages with their own tests.
APART = ("docs/tutorial/first-app.md", "docs/how-to/at-3-am.md")
PARTITIONS = {"transfers": 4, "shop-balances-changelog": 4}
CHANGELOG = "shop-balances-changelog"
NOON = 1_795_262_400.0


def shell_of(page: str) -> list[Block]:
    """Return the blocks of a page that are run here, in order."""
    return [block for block in SHELL if block.page == page]


@pytest.fixture
def stage(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """An empty folder with the app ``shop``."""
    if page in ON_SPARK:
        tmp_path = request.getfixturevalue("spark_for_commands").empty_folder()
    (tmp_path / "shop.py").write_text((ROOT / "tests/integration/docs/shop.py").read_text())
    here = Stage(
        tmp_path,
        environment={
            "SHOP_DATA": str(tmp_path / "shop-data"),
            "WEB_PORT": str(free_port()),
            "JDK_JAVA_OPTIONS": warm_spark.OPTIONS,
        },
    )
    here.stands_for = {
        "/var/lib/shop/ledger": str(tmp_path / "ledger"),
        "/var/log/shop": str(tmp_path / "ledger"),
        "/etc/shop/weights.json": str(tmp_path / "weights.json"),
        "faust_assigner/cli/jobs.py": str(ROOT / "faust_assigner/cli/jobs.py"),
        "9092": str(free_port()),
    }
    yield here
    here.close()


@pytest.fixture(scope="session")
def spark_for_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[warm_spark.WarmSpark]:
    """The Java process for the commands of the pages in ``ON_SPARK``."""
    java = warm_spark.WarmSpark(tmp_path_factory.mktemp("spark-for-commands"))
    yield java
    java.close()


def ledger_of_four(folder: Path) -> None:
    """Write two decisions of four workers in three racks, and an uneven load."""
    folder.mkdir()
    lines = []
    for number, names in enumerate(("123", "1234")):
        members = [
            Member(f"worker-{n}", PARTITIONS, rack_id=f"az-{'abc'[int(n) % 3]}") for n in names
        ]
        p = plan(members, PARTITIONS, replicas=1, changelogs={"shop-balances-changelog"})
        one = {"group_id": "shop", "decision_id": f"d{number}"}
        lines.append(
            encode(
                "decision",
                {
                    **one,
                    "ts": NOON + 60 * number,
                    "generation": number + 1,
                    "trigger": "join",
                    "policy": "ours",
                    "config": {"replicas": "1"},
                    "solve_ms": 1.0,
                    "members": [
                        {
                            "member_id": m.member_id,
                            "rack": m.rack_id,
                            "capacity": 1.0,
                            "epoch": number,
                        }
                        for m in members
                    ],
                },
            )
        )
        for role in ("active", "standby"):
            lines += [
                encode(
                    "assignment",
                    {
                        **one,
                        "topic": topic,
                        "partition": n,
                        "role": role,
                        "member_id": m.member_id,
                        "prev_member_id": None,
                        "moved": False,
                        "standby_hit": False,
                        "cold": False,
                    },
                )
                for m in members
                for topic, numbers in getattr(p, f"{role}s")(m.member_id).items()
                for n in numbers
            ]
    lines += [
        encode(
            "partition_sample",
            {
                "group_id": "shop",
                "ts": NOON + 30 * turn,
                "topic": "transfers",
                "partition": partition,
                "end_offset": 900,
                "committed_offset": 900,
                "bytes_in": 4000 * (partition + 1),
                "records_in": 100 * (partition + 1),
                "cpu_ms": 50.0 * (partition + 1),
                "state_bytes": 1000,
            },
        )
        for turn in range(4)
        for partition in range(4)
    ]
    (folder / "worker-1.jsonl").write_bytes(b"\n".join(line.strip() for line in lines) + b"\n")


def test_every_page_with_shell_blocks_is_a_case_here() -> None:
    """A page missing from ``PAGES`` would not be run."""
    assert {block.page for block in SHELL} == {*PAGES, *APART}


def plain(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Prepare nothing."""


def with_files(page: str) -> Callable[[Stage, pytest.FixtureRequest], None]:
    """Write the page's Python blocks that begin with a file name, and link the examples."""

    def prepare(stage: Stage, request: pytest.FixtureRequest) -> None:
        (stage.folder / "examples").symlink_to(ROOT / "examples")
        for block in ALL:
            if block.page == page and (name := re.match(r"# (\w+\.py)\n", block.text)):
                (stage.folder / name[1]).write_text(block.text)

    return prepare


def with_ledger(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Prepare a ledger, and fewer scenarios than on the page."""
    ledger_of_four(stage.folder / "ledger")
    stage.stands_for |= {"10000": "12", "500": "8", "2000": "8"}


def with_broker(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Run the embedded broker as the app's Kafka and as ``kafka:9092``."""
    broker: Any = request.getfixturevalue("embedded_broker")
    stage.environment["SHOP_BROKER"] = broker.bootstrap
    # As wide as the table: a consumer's metadata request would create it with one partition.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics(
        [NewTopic("transfers", PARTITIONS["transfers"], 1)]
    ).values():
        created.result(PATIENCE_S)
    stage.stands_for = {"kafka:9092": broker.bootstrap, **stage.stands_for}


def with_storage(stage: Stage, request: pytest.FixtureRequest) -> str:
    """Return a bucket; the commands find its server by their environment."""
    import os

    folder: str = request.getfixturevalue("s3_folder")
    stage.environment |= {
        name: value for name, value in os.environ.items() if name.startswith("AWS_")
    }
    return folder


def for_weights(stage: Stage, request: pytest.FixtureRequest) -> None:
    """A ledger here and in a bucket, a broker, and the first document for its readers."""
    import s3fs

    with_broker(stage, request)
    with_ledger(stage, request)
    ledgers = with_storage(stage, request).replace("snapshots", "ledger")
    s3fs.S3FileSystem().put(str(stage.folder / "ledger"), ledgers, recursive=True)
    stage.stands_for["s3://ledgers/shop"] = ledgers


def for_snapshots(stage: Stage, request: pytest.FixtureRequest) -> None:
    """A changelog with keys, a bucket, and a ledger for the sources of tables."""
    with_broker(stage, request)
    stage.stands_for["s3://bucket/snapshots"] = with_storage(stage, request)
    stage.environment["FAUST_ASSIGNER_LEDGER"] = str(stage.folder / "ledger")
    broker: Any = request.getfixturevalue("embedded_broker")
    # The producer's request would create it with one partition.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(CHANGELOG, PARTITIONS[CHANGELOG], 1)]).values():
        created.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(400):
        key = json.dumps(f"account-{number}")
        producer.produce("shop-balances-changelog", json.dumps(number), key, number % 4)
    assert producer.flush(30) == 0


def for_spark(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Prepare a ledger on this machine and an empty bucket."""
    ledger_of_four(stage.folder / "ledger")
    stage.stands_for["s3://shop"] = with_storage(stage, request).rpartition("/")[0]


def for_the_service(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Keep services running during the commands; prepare an etcd, certificates and tokens."""
    from tests.support.etcd import etcd_server
    from tests.support.certificates import Authority

    stage.keeps_services = True
    stage.stands_for |= {port: str(free_port()) for port in ("50051", "50052", "50053", "50054")}
    etcd = etcd_server()
    endpoint = etcd.__enter__().endpoint
    request.addfinalizer(lambda: etcd.__exit__(None, None, None))
    stage.stands_for = {
        "http://etcd-0:2379,http://etcd-1:2379": f"http://{endpoint}",
        "0.0.0.0": "127.0.0.1",
        "kafka:9092": f"127.0.0.1:{stage.stands_for['9092']}",
        **stage.stands_for,
    }
    authority = Authority(stage.folder, "ca")
    authority.ca.rename(stage.folder / "ca.pem")
    authority.sign("service")
    (stage.folder / "tokens").write_text("c1 a-token\n")


def is_drained(stage: Stage) -> None:
    """The drained consumer has ended by itself; the other consumer still runs."""
    running = {
        name: next(one for one in stage.services if f"--name {name} " in one.command)
        for name in ("c1", "c2")
    }
    assert running["c1"].process.wait(60) == 0, running["c1"].said()
    assert running["c2"].process.poll() is None


def with_group(stage: Stage, request: pytest.FixtureRequest) -> None:
    """A broker, and a group that has committed an offset and left."""
    with_broker(stage, request)
    group = Consumer({"bootstrap.servers": stage.environment["SHOP_BROKER"], "group.id": "shop"})
    group.commit(offsets=[TopicPartition("transfers", 0, 0)], asynchronous=False)
    group.close()


def with_worker(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Start a broker and a worker of the app."""
    with_broker(stage, request)
    port = free_port()
    worker = stage.start(f"faust -A shop worker -l info --web-port {port} --web-host 127.0.0.1")
    worker.wait_for(re.compile("the tables are ready"))


def with_two_workers(stage: Stage, request: pytest.FixtureRequest) -> None:
    """A broker and two workers of the app with a folder each; ``shop-1`` is the second."""
    with_broker(stage, request)
    for number in range(2):
        port = free_port()
        worker = stage.start(
            f"faust -A shop worker -l info --web-port {port} --web-bind 127.0.0.1 "
            "--web-host 127.0.0.1",
            {"SHOP_DATA": str(stage.folder / f"data-{number}")},
        )
        worker.wait_for(re.compile("the tables are ready"))
        stage.stands_for["shop-1"] = f"127.0.0.1:{port}"


def with_two_ledgers(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Two workers that write their ledgers to one folder."""
    stage.environment["FAUST_ASSIGNER_LEDGER"] = str(stage.folder / "ledger")
    with_two_workers(stage, request)


def is_restored_from_a_snapshot(stage: Stage) -> None:
    """Assert that the page's worker restored from files, not by a replay."""
    lines = [
        json.loads(line)
        for file in (stage.folder / "ledger").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert "snapshot" in {line["source"] for line in lines if line["table"] == "recovery"}


def has(*names: str) -> Callable[[Stage], None]:
    """Return a check that these files exist."""

    def check(stage: Stage) -> None:
        assert [name for name in names if not (stage.folder / name).exists()] == []

    return check


def nothing(stage: Stage) -> None:
    """Check nothing: the exit codes suffice."""


#: Page -> the preparation and the check of the result.
PAGES: dict[str, tuple[Callable[[Stage, pytest.FixtureRequest], None], Callable[[Stage], None]]] = {
    "docs/how-to/autoscaling.md": (with_two_workers, nothing),
    "docs/how-to/broker.md": (plain, has("broker-data")),
    "docs/how-to/deploys.md": (with_two_workers, nothing),
    "docs/how-to/doctor.md": (with_worker, nothing),
    "docs/how-to/from-leases.md": (for_the_service, has("export.db")),
    "docs/how-to/history.md": (with_broker, has("history/report.html", "history/manifest.json")),
    "docs/how-to/page.md": (with_worker, nothing),
    "docs/how-to/plain-consumers.md": (with_group, nothing),
    "docs/how-to/recovery.md": (plain, nothing),
    "docs/how-to/service.md": (for_the_service, is_drained),
    "docs/how-to/simulate.md": (with_ledger, has("sim/report.json")),
    "docs/how-to/snapshots.md": (for_snapshots, is_restored_from_a_snapshot),
    "docs/how-to/spark.md": (for_spark, has("report.html")),
    "docs/how-to/status.md": (with_worker, nothing),
    "docs/how-to/testing.md": (with_files("docs/how-to/testing.md"), nothing),
    "docs/how-to/weights.md": (for_weights, has("weights.json")),
    "docs/how-to/why.md": (with_two_ledgers, nothing),
    "docs/tutorial/testing.md": (with_files("docs/tutorial/testing.md"), nothing),
}
SLOW = {page for page in PAGES if page != "docs/how-to/broker.md"}
#: The pages whose commands share a Java process; those of spark.md, and ``spark-submit``, start their own.
ON_SPARK = {f"docs/how-to/{name}.md" for name in ("history", "simulate", "snapshots", "weights")}


def marks_of(page: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a page."""
    slow = [pytest.mark.slow] if page in SLOW else []
    return [*slow, pytest.mark.xdist_group("pages on Spark")] if page in ON_SPARK else slow


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks_of(page)) for page in sorted(PAGES)]
)
def test_shell_blocks_run_in_order(page: str, stage: Stage, request: pytest.FixtureRequest) -> None:
    """Each command exits with 0; each service becomes ready and stops cleanly."""
    prepare, check = PAGES[page]
    prepare(stage, request)
    if page in ON_SPARK:
        java: warm_spark.WarmSpark = request.getfixturevalue("spark_for_commands")
        java.pass_on(stage.environment)
        stage.environment |= java.environment
    for block in shell_of(page):
        stage.run(block)
    check(stage)
