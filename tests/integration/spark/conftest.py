"""A shared session for all Spark tests (local[2], two shuffle partitions, no web page), and helpers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from faust_assigner.pipeline.jars import connector_jars
from faust_assigner.pipeline.session import spark_session
from tests.support import leaks
from tests.support.pictures import no_pictures as no_pictures


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared session, with the Kafka connector's jars on its path."""
    warehouse = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "local[2]",
        "faust-assigner-tests",
        jars=connector_jars(),
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(warehouse / "warehouse"),
            "spark.local.dir": str(warehouse / "local"),
            "spark.driver.memory": "1g",
            # The tests are too short for Spark's query compiler to pay off on two cores (for Java's
            # own compiler see support/costs.py). The killed watch in test_stream keeps Spark's own
            # settings.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    # The connection to the Java side grows in use: more sockets, and threads that serve them.
    gateway = session.sparkContext._gateway
    ensure_callback_server_started(gateway)
    ports = (
        gateway.gateway_parameters.port,
        gateway.get_callback_server().get_listening_port(),
        session.sparkContext._accumulatorServer.server_address[1],  # one per Python worker
    )
    leaks.excuse(lambda kind, thing: kind == "port" and thing in ports)
    leaks.excuse(lambda kind, thing: kind == "thread" and _of_py4j(thing))
    # The process ends with this one, and the run's last test does not wait for it.
    leaks.excuse(lambda kind, thing: kind == "pid" and thing == gateway.proc.pid)
    yield session
    session.stop()


def _of_py4j(thread: threading.Thread) -> bool:
    runs = getattr(getattr(thread, "_target", None), "__self__", thread)
    return type(runs).__module__.startswith("py4j.")
