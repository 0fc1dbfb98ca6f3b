"""Kafka's own command-line tools, in steps: the command line and the expected output of each.

The steps form a story on a single topic and run in order. A step passes if the tool ends as
expected and its output matches the pattern. During the steps marked ``live`` a member of the group
reads.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faust_assigner.testing.kafka import kafka_jars

PATIENCE_S = 150.0
_ = "org.apache.kafka.tools."
TOPICS, CONFIGS = f"{_}TopicCommand", "kafka.admin.ConfigCommand"
GROUPS = f"{_}consumer.group.ConsumerGroupCommand"
READ, WRITE = f"{_}consumer.ConsoleConsumer", f"{_}ConsoleProducer"


@dataclass(frozen=True)
class Step:
    """``main_class`` with ``typed`` must print ``seen``; ``refused`` means with an error."""

    name: str
    main_class: str
    typed: str
    seen: str
    given: str = ""
    live: bool = False
    refused: bool = False


def _group(name: str, typed: str, seen: str, *, live: bool = False, refused: bool = False) -> Step:
    return Step(f"consumer-groups {name}", GROUPS, typed, seen, live=live, refused=refused)


RESET = "--reset-offsets --group g --topic t"
STEPS = (
    Step(
        "topics create",
        TOPICS,
        "--create --topic t --partitions 4 --config retention.ms=600000",
        "Created topic t",
    ),
    Step("topics create again", TOPICS, "--create --topic t", "already exists", refused=True),
    Step("topics list", TOPICS, "--list", r"(?m)^t$"),
    Step("topics describe", TOPICS, "--describe --topic t", "PartitionCount: 4"),
    Step("topics alter", TOPICS, "--alter --topic t --partitions 6", ""),
    Step("topics overrides", TOPICS, "--describe --topics-with-overrides", "retention.ms=600000"),
    Step(
        "configs alter topic",
        CONFIGS,
        "--entity-type topics --entity-name t --alter --add-config max.message.bytes=100000",
        "Completed updating",
    ),
    Step(
        "configs describe topic",
        CONFIGS,
        "--entity-type topics --entity-name t --describe",
        "max.message.bytes=100000",
    ),
    Step(
        "configs delete topic",
        CONFIGS,
        "--entity-type topics --entity-name t --alter --delete-config max.message.bytes",
        "Completed updating",
    ),
    Step(
        "configs describe broker",
        CONFIGS,
        "--entity-type brokers --entity-name 1 --describe --all",
        "group.consumer.session.timeout.ms=",
    ),
    Step(
        "configs alter group",
        CONFIGS,
        "--entity-type groups --entity-name g --alter --add-config "
        "consumer.session.timeout.ms=46000",
        "Completed updating",
    ),
    Step(
        "configs describe group",
        CONFIGS,
        "--entity-type groups --entity-name g --describe",
        "consumer.session.timeout.ms=46000",
    ),
    Step(
        "configs delete group",
        CONFIGS,
        "--entity-type groups --entity-name g --alter --delete-config consumer.session.timeout.ms",
        "Completed updating",
    ),
    Step("console-producer", WRITE, "--topic t", "", given="one\ntwo\nthree\n"),
    Step(
        "console-consumer",
        READ,
        "--topic t --from-beginning --max-messages 3",
        "Processed a total of 3",
    ),
    Step(
        "verifiable-producer",
        f"{_}VerifiableProducer",
        "--topic t --max-messages 100 --throughput -1 --repeating-keys 50",
        '"acked":100',
    ),
    Step(
        "producer-perf",
        f"{_}ProducerPerformance",
        "--topic t --num-records 1000 --record-size 100 "
        "--throughput -1 --command-property linger.ms=5",
        "1000 records sent",
    ),
    Step(
        "consumer-perf",
        f"{_}ConsumerPerformance",
        "--topic t --num-records 1000 --timeout 30000 --command-property group.protocol={protocol}",
        r"(?m)^20\d\d-.*, 1\d\d\d, ",
    ),
    Step("get-offsets", f"{_}GetOffsetShell", "--topic t --time latest", r"t:0:\d+"),
    Step(
        "console-consumer in a group",
        READ,
        "--topic t --group g --from-beginning --max-messages 500 "
        "--command-property group.protocol={protocol}",
        "Processed a total of 500",
    ),
    Step(
        "console-consumer by regular expression",
        READ,
        "--include t.* --group regex --from-beginning "
        "--max-messages 500 --command-property group.protocol={protocol}",
        "Processed a total of 500",
    ),
    Step(
        "console-consumer of a partition",
        READ,
        "--topic t --partition 0 --offset earliest --max-messages 1",
        "Processed a total of 1",
    ),
    Step(
        "verifiable-consumer",
        f"{_}VerifiableConsumer",
        "--topic t --group-id verifiable "
        "--max-messages 100 --group-protocol {protocol} --reset-policy earliest",
        '"name":"shutdown_complete"',
    ),
    _group("list", "--list", r"(?m)^g$", live=True),
    _group("list with states", "--list --state", r"(?m)^g +Stable", live=True),
    _group("list by state", "--list --state empty", r"(?m)^regex +Empty", live=True),
    _group("list by type", "--list --type {protocol}", r"(?im)^g +{protocol}", live=True),
    Step("groups list", f"{_}GroupsCommand", "--list", r"(?im)^g +{protocol} +consumer", live=True),
    _group(
        "describe", "--describe --group g", r"(?m)^g +t +0 +\d+ +\d+ +\d+ +\S+ +/127", live=True
    ),
    _group("describe verbosely", "--describe --group g --verbose", r"(?m)^g +t +0 ", live=True),
    _group("members", "--describe --group g --members", r"(?m)^g +\S+ +/127\S+ +\S+ +6", live=True),
    _group(
        "members verbosely", "--describe --group g --members --verbose", r"t:0,1,2,3,4,5", live=True
    ),
    _group(
        "state", "--describe --group g --state", r"(?m)^g +\S+ +\(1\) +\S+ +Stable +1", live=True
    ),
    _group(
        "state verbosely", "--describe --group g --state --verbose", r"(?m)^g +.*Stable", live=True
    ),
    _group(
        "all groups",
        "--describe --all-groups --state",
        r"(?ms)^g +.*^regex +|^regex +.*^g +",
        live=True,
    ),
    _group(
        "reset refused",
        f"{RESET} --to-earliest --execute",
        "can only be reset if the group",
        live=True,
    ),
    _group("delete refused", "--delete --group g", "(?i)not empty", live=True),
    _group(
        "delete-offsets refused",
        "--delete-offsets --group g --topic t",
        "(?i)subscribed",
        live=True,
    ),
    _group("describe an empty group", "--describe --group g", r"(?m)^g +t +0 +\d+ +\d+ +\d+ +- +-"),
    _group("describe no group", "--describe --group none", "Group none not found"),
    _group("reset dry run", f"{RESET} --to-earliest --dry-run", r"(?m)^g +t +0 +0"),
    _group("reset to earliest", f"{RESET} --to-earliest --execute", r"(?m)^g +t +5 +0"),
    _group("reset to latest", f"{RESET} --to-latest --execute", r"(?m)^g +t +0 +\d+"),
    _group("reset by shift", f"{RESET} --shift-by -1 --execute", r"(?m)^g +t +0 +\d+"),
    _group("reset to offset", f"{RESET}:0 --to-offset 1 --execute", r"(?m)^g +t +0 +1"),
    _group("reset to current", f"{RESET} --to-current --execute", r"(?m)^g +t +0 +1"),
    _group(
        "reset to a time",
        f"{RESET} --to-datetime 2020-01-01T00:00:00.000 --execute",
        r"(?m)^g +t +0 +0",
    ),
    _group("reset by duration", f"{RESET} --by-duration PT1H --execute", r"(?m)^g +t +0 +0"),
    _group(
        "reset of all topics",
        "--reset-offsets --group g --all-topics --to-latest --execute",
        r"(?m)^g +t +0 ",
    ),
    _group("delete-offsets", "--delete-offsets --group g --topic t:0", r"t +0 +Successful"),
    _group(
        "delete",
        "--delete --group g",
        "(?i)deletion of requested consumer groups .* was successful",
    ),
    _group("delete no group", "--delete --group none", "(?i)could not be found|not exist"),
    Step(
        "delete-records",
        f"{_}DeleteRecordsCommand",
        "--offset-json-file {folder}/delete.json",
        "low_watermark: 1",
    ),
    Step(
        "broker-api-versions",
        f"{_}BrokerApiVersionsCommand",
        "",
        r"ConsumerGroupHeartbeat\(68\): 0 to 1",
    ),
    Step("features", f"{_}FeatureCommand", "describe", "group.version.*FinalizedVersionLevel: 1"),
    Step("cluster id", f"{_}ClusterTool", "cluster-id", "Cluster ID: "),
    Step("log-dirs", f"{_}LogDirsCommand", "--describe --topic-list t", '"partition":"t-0"'),
    Step("transactions list", f"{_}TransactionsCommand", "list", "TransactionalId"),
    Step("metadata-quorum", f"{_}MetadataQuorumCommand", "describe --status", "LeaderId"),
    Step("topics delete", TOPICS, "--delete --topic t", ""),
    Step("topics delete again", TOPICS, "--delete --topic t", "does not exist", refused=True),
)


def command(step: Step, bootstrap: str, words: dict[str, str]) -> list[str]:
    """Return the command line; arguments contain no blanks."""
    typed = [part.format(**words) for part in step.typed.split()]
    address = ["--bootstrap-server", bootstrap]
    typed = [*typed, *address] if "ClusterTool" in step.main_class else [*address, *typed]
    return ["java", "-Xmx256m", "-cp", f"{kafka_jars()}/*", step.main_class, *typed]


def played(step: Step, bootstrap: str, words: dict[str, str]) -> str:
    """Return passed or failed; the output of a failed step is printed."""
    try:
        done = subprocess.run(
            command(step, bootstrap, words), input=step.given, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"{step.name}: no end in {PATIENCE_S} s")
        return "failed"
    said = done.stdout + done.stderr
    pattern = step.seen.replace("{protocol}", words["protocol"])
    ended = (done.returncode != 0) == step.refused or step.live
    if ended and re.search(pattern, said):
        return "passed"
    print(f"{step.name}: code {done.returncode}, {said[-1500:]}", flush=True)
    return "failed"


@contextlib.contextmanager
def member(bootstrap: str, words: dict[str, str]) -> Iterator[None]:
    """Run a console consumer in group g; the group is stable when the context starts."""
    reading = Step("", READ, "--topic t --group g --command-property group.protocol={protocol}", "")
    with tempfile.TemporaryFile() as log:
        running = subprocess.Popen(command(reading, bootstrap, words), stdout=log, stderr=log)
        try:
            stable = _group("state", "--describe --group g --state", r"Stable +1", live=True)
            deadline = time.monotonic() + PATIENCE_S
            while played(stable, bootstrap, words) == "failed" and time.monotonic() < deadline:
                time.sleep(1)
            yield
        finally:
            running.terminate()  # the consumer leaves the group
            running.wait(60)


def run(bootstrap: str, protocol: str, more: list[str]) -> dict[str, str]:
    """Run the story in a protocol; ``more`` is ignored, since each step needs the earlier steps."""
    came: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        told = '{"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 1}'
        (Path(folder) / "delete.json").write_text(told)
        words = {"protocol": protocol, "folder": folder}
        is_live = False
        for step in STEPS:
            if step.live and not is_live:
                stack.enter_context(member(bootstrap, words))
            elif is_live and not step.live:
                stack.close()
            is_live = step.live
            came[step.name] = played(step, bootstrap, words)
            print(f"{came[step.name]:8} {step.name}", flush=True)
    return came
