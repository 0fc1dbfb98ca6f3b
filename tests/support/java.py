"""Java's options in tests, and an archive of Kafka's classes, which Java reads faster than the jars.

A server of a test lives for minutes, too short for Java's second compiler and parallel collectors
to pay off on two cores. Half of the computing at the start of a Kafka, and of each of its tools, was
the loading of classes.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from faust_assigner.pipeline.maven import cache_dir
from faust_assigner.testing.kafka import KAFKA_VERSION, kafka_jars, kafka_server

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The variable that each Java process reads.
OPTIONS = "JDK_JAVA_OPTIONS"
#: Seconds after which a Kafka that stops and writes the archive counts as stuck.
END_S = 300


def archive() -> Path:
    """Return the path of the archive, beside the jars: Java refuses it if their times have changed."""
    return cache_dir() / f"kafka-{KAFKA_VERSION}" / "classes.jsa"


def options() -> str:
    """Return the options of a Java process of a test.

    Java ignores an archive that does not fit (other jars, another Java). Its warning about that would
    be among the output of Kafka's tools.
    """
    if not archive().exists():
        return JAVA
    return f'{JAVA} -XX:SharedArchiveFile="{archive()}" -Xlog:disable'


def write_archive() -> None:
    """Let a Kafka write the archive at its end, unless the archive exists. Cost: 13 s of a processor.

    A Kafka that takes too long raises TimeoutExpired, and nothing is kept of its archive.
    """
    if archive().exists():
        return
    began, given = time.monotonic(), os.environ.get(OPTIONS)
    with tempfile.TemporaryDirectory(dir=kafka_jars()) as folder:
        fresh = Path(folder) / archive().name
        os.environ[OPTIONS] = f'{JAVA} -XX:ArchiveClassesAtExit="{fresh}" -Xlog:disable'
        try:
            with kafka_server() as server:
                server.process.terminate()
                server.process.wait(END_S)
        finally:
            os.environ.pop(OPTIONS)
            os.environ.update({OPTIONS: given} if given is not None else {})
        fresh.replace(archive())
    print(f"archived the classes of kafka in {time.monotonic() - began:.0f} s")
