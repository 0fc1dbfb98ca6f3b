"""The message of a failed command, and its exit code for a scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from faust_assigner.cli import jobs
from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.failure import FAILED, TRY_AGAIN, USAGE, last_words, verdict

JAVA = """An error occurred while calling o1.load.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Some.where(Some.scala:1)
Caused by: org.apache.kafka.common.errors.TimeoutException: no answer from broker 1
\tat org.apache.kafka.Else.where(Else.java:2)
"""


def error_of(
    package: str, name: str, said: str, *, cause: BaseException | None = None
) -> Exception:
    """Return an error in the form of the package's errors."""
    error: Exception = type(name, (Exception,), {"__module__": f"{package}.inside"})(said)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("an option"), 2),
        (error_of("py4j", "Py4JJavaError", JAVA), TRY_AGAIN),
        (error_of("pyspark", "AnalysisException", "no such column"), FAILED),
        (error_of("pyspark", "PySparkException", "Class S3AFileSystem not found"), USAGE),
        (error_of("aiokafka", "KafkaConnectionError", "nobody there"), TRY_AGAIN),
        (error_of("aiokafka", "RecordTooLargeError", "too large"), FAILED),
        (error_of("botocore", "ClientError", "x", cause=ConnectionRefusedError()), TRY_AGAIN),
        (PermissionError("not yours"), FAILED),
        (TimeoutError("no answer"), TRY_AGAIN),
        (TimeoutError(110, "timed out", "/mnt/x"), TRY_AGAIN),
        (PermissionError(13, "not yours", "/mnt/x"), FAILED),
        (ModuleNotFoundError("x", name="pyspark"), FAILED),
    ],
)
def test_each_error_has_the_code_that_says_whether_to_try_again(
    error: Exception, code: int
) -> None:
    """75 means a passing failure, 1 a lasting failure, and 2 a usage error."""
    found = verdict(error)
    assert found is not None
    assert found[1] == code


def test_what_is_our_own_bug_keeps_its_traceback() -> None:
    """Even a short error of our own has no one-line form."""
    assert verdict(KeyError("x")) is None
    assert verdict(AssertionError("x")) is None


def test_javas_last_cause_is_told_and_not_its_first_words() -> None:
    """That line has the reason."""
    assert last_words(JAVA).startswith("Caused by: org.apache.kafka")
    assert (
        last_words("nothing that looks like an error\nmore") == "nothing that looks like an error"
    )


def test_a_stack_line_that_names_a_file_of_errors_is_no_cause() -> None:
    """The file of an exception's class has its name; the line of the cause begins with it."""
    cause = "org.apache.spark.SparkException: the task failed"
    stack = "\tat org.apache.spark.SparkException$.internalError(SparkException.scala:10)"
    assert last_words(f"An error occurred\n{cause}\n{stack}\n{stack}") == cause


def test_a_job_that_is_not_there_is_a_wrong_question(capsys: pytest.CaptureFixture[str]) -> None:
    """The usage is printed with exit code 2; no job is imported."""
    for arguments in ([], ["no-such-job"]):
        assert jobs.main(arguments) == USAGE
        assert (
            "usage: jobs.py {history,pipeline,simulate,snapshot,weights}" in capsys.readouterr().err
        )


def test_an_error_that_begins_with_its_own_name_says_it_once() -> None:
    """Kafka's client creates such errors."""
    found = verdict(
        error_of("aiokafka", "KafkaConnectionError", "KafkaConnectionError: nobody there")
    )
    assert found is not None
    assert found[0] == "KafkaConnectionError: nobody there"


@pytest.mark.parametrize("name", ["x.y.TooManyRefused", "ValueError", "java.io.IOException"])
def test_an_error_of_any_kind_of_name_is_the_cause(name: str) -> None:
    """Errors of this package end with Refused; a longer word is another name."""
    text = f"first words\n  {name}: why\n{name}ness: no cause"
    assert last_words(text) == f"{name}: why"


def test_an_error_about_a_file_names_the_file_first(tmp_path: Path) -> None:
    """Neither Python's class nor the error's number is a part of the line."""
    (tmp_path / "out").touch()
    with pytest.raises(FileExistsError) as raised:
        (tmp_path / "out").mkdir()
    assert verdict(raised.value) == (f"{tmp_path / 'out'}: File exists", FAILED)
