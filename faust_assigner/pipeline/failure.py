"""The message and the exit code of a failed command: one line, and a code that a scheduler can act on.

2    the request is invalid: a wrong option, a missing path or topic
1    the failure is permanent: a retry does not help
3    the data did not pass a check: too few days, too old, or too different
75   the failure is temporary: a service did not answer; retry (``EX_TEMPFAIL`` of sysexits.h)
"""

from __future__ import annotations

import re

from faust_assigner.errors import FaustAssignerError
from faust_assigner.settings.extras import missing_extra

USAGE, FAILED, TRY_AGAIN = 2, 1, 75

#: The S3 client for the Hadoop version that the supported PySpark contains.
S3_CLIENT = "org.apache.hadoop:hadoop-aws:3.5.0"

#: Packages whose errors have an outside cause and are reported in one line.
_OUTSIDE = (
    "aiokafka",
    "aiobotocore",
    "aiohttp",
    "botocore",
    "py4j",
    "pyspark",
    "requests",
    "urllib3",
)
#: The names of errors in Python and Java that mean that a service did not answer.
_UNREACHABLE = re.compile(
    r"UnreachableError|KafkaConnectionError|NoBrokersAvailable|NodeNotReadyError|RequestTimedOutError|"
    r"LeaderNotAvailableError|NotLeaderForPartitionError|GroupCoordinatorNotAvailableError|"
    r"EndpointConnectionError|ConnectTimeoutError|ReadTimeoutError|ConnectionClosedError|ClientConnectorError|"
    r"ConnectionRefusedError|ConnectionResetError|TimeoutError|ServerTimeoutError|"
    r"org\.apache\.kafka\.common\.errors\.(Timeout|Disconnect|Network)Exception|"
    r"java\.net\.(Connect|SocketTimeout|NoRouteToHost|UnknownHost)Exception"
)


def verdict(error: BaseException) -> tuple[str, int] | None:
    """Return (message, exit code), or None for a bug in this package, which needs its traceback."""
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(error) or error
    if isinstance(error, FaustAssignerError):
        return str(error), error.exit_code
    package = type(error).__module__.partition(".")[0]
    if package in ("pyspark", "py4j"):
        text = str(error)
        if "S3AFileSystem not found" in text:
            return (
                f"s3:// and s3a:// need Hadoop's S3 client in Spark: --packages {S3_CLIENT}",
                USAGE,
            )
        return f"Spark: {last_words(text)}", TRY_AGAIN if _UNREACHABLE.search(text) else FAILED
    if isinstance(error, OSError) and error.filename is not None:
        code = TRY_AGAIN if _UNREACHABLE.search(_lineage(error)) else FAILED
        return f"{error.filename}: {error.strerror}", code
    if package in _OUTSIDE or isinstance(error, OSError):
        name, said = type(error).__name__, str(error)
        said = said if said.startswith(name) else f"{name}: {said}"
        return said, TRY_AGAIN if _UNREACHABLE.search(_lineage(error)) else FAILED
    return None


def last_words(text: str) -> str:
    """Return the line of a Spark error that names its cause.

    The cause is the innermost Python or Java error; without such a line, the first line is returned.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [
        line for line in lines if re.match(r"(Caused by: |[\w.]*(Error|Exception|Refused)\b)", line)
    ]
    return (telling or lines or ["no reason given"])[-1 if telling else 0]


def _lineage(error: BaseException) -> str:
    """Return the class names of the error, of its base classes and of its causes."""
    names = [kind.__name__ for kind in type(error).__mro__]
    cause = error.__cause__ or error.__context__
    return " ".join(names) + (f" {_lineage(cause)}" if cause is not None else "")
