"""A Java process with Spark that several commands of tests use, one command after the other.

A command that starts Spark computes for 15 to 20 s, mostly to load Spark's classes and to compile
them. PySpark starts no Java process if its environment names one. Each command still has its own
process of Python, and its own session of Spark. Java cannot change its folder, so the commands run
in one folder. The Java process is a child of the process of ``python -m
tests.support.warm_spark``, and ends with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from faust_assigner.pipeline.jars import cached_connector_jars
from faust_assigner.pipeline.session import LOG4J
from tests.support.java import JAVA

ROOT = Path(__file__).parents[2]
#: Java's options. The commands of tests are too short for Spark's query compiler to pay off.
OPTIONS = (
    f"{JAVA} -Dspark.ui.enabled=false -Dspark.sql.codegen.wholeStage=false "
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN"
)
#: The variables that also Python's processes of Spark need: these are children of the Java process.
PASSED_ON = "AWS_"
END_S = 60


class WarmSpark:
    """The Java process in ``folder``; ``environment`` leads PySpark to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": OPTIONS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.environment: Mapping[str, str] = self._answer()

    def empty_folder(self) -> Path:
        """Remove what the commands before have left; return the folder."""
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return self.folder

    def pass_on(self, environment: Mapping[str, str]) -> None:
        """Let Spark's processes of Python in the next sessions have these variables."""
        passed = {name: environment[name] for name in environment if name.startswith(PASSED_ON)}
        print(json.dumps(passed), file=self._process.stdin, flush=True)
        assert self._answer() == {}

    def _answer(self) -> Mapping[str, str]:
        assert self._process.stdout is not None
        found: Mapping[str, str] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End both processes."""
        self._process.communicate(timeout=END_S)


def serve() -> None:
    """Start Java, and print its address; then follow :meth:`WarmSpark.pass_on` until the input ends."""
    from pyspark.java_gateway import launch_gateway

    os.environ["JDK_JAVA_OPTIONS"] += f" -Dlog4j2.configurationFile={LOG4J}"
    jars = os.pathsep.join(map(str, cached_connector_jars()))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path '{jars}' pyspark-shell"
    gateway = launch_gateway(popen_kwargs={"stdout": sys.stderr})
    where = gateway.gateway_parameters
    address = {"PYSPARK_GATEWAY_PORT": str(where.port), "PYSPARK_GATEWAY_SECRET": where.auth_token}
    print(json.dumps(address), flush=True)
    system, given = gateway.jvm.java.lang.System, set[str]()
    for line in sys.stdin:
        for name in given:
            system.clearProperty(name)
        environment = {
            f"spark.executorEnv.{name}": value for name, value in json.loads(line).items()
        }
        for name, value in environment.items():
            system.setProperty(name, value)
        given = set(environment)
        print("{}", flush=True)
    gateway.proc.stdin.close()
    gateway.proc.wait(END_S)


if __name__ == "__main__":
    serve()
