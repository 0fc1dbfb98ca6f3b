"""The errors that this package raises on purpose.

    FaustAssignerError
    |- PlanInputError        the caller's arguments contradict each other (duplicate member ids, ...)
    |- MetadataRefused       a member's bytes were refused; the text names the limit or the field
    |- ConfigError           an unknown setting, or a setting with an impossible value
    |- MissingExtra          an optional package is not installed; the text names the extra that installs it
    |- HostMismatch          the installed Faust or aiokafka is not a version that our code supports
    `- TryAgain              an external system did not answer; a later attempt may succeed

The planner never raises on data from other members: the planner refuses, counts and logs such data.
"""

from __future__ import annotations

from typing import ClassVar


class FaustAssignerError(Exception):
    """The base class of all errors of this package."""

    #: Exit code of a command that fails with this error: 2 for usage, 75 for "try again", 1 otherwise.
    exit_code: ClassVar[int] = 1


class PlanInputError(FaustAssignerError, ValueError):
    """The arguments of :func:`faust_assigner.plan` contradict themselves."""

    exit_code = 2


class MetadataRefused(FaustAssignerError, ValueError):
    """A member's metadata exceeds a limit or has the wrong shape; the member counts as stateless."""


class ConfigError(FaustAssignerError, ValueError):
    """A setting has an unknown name or an impossible value."""

    exit_code = 2


class MissingExtra(FaustAssignerError, ModuleNotFoundError):
    """A package is not installed; ``extra`` is the extra of this package that installs it."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"{module} is not installed: pip install 'faust-assigner[{extra}]'", name=module
        )
        self.extra = extra


class TryAgain(FaustAssignerError):
    """A broker or a storage service did not answer."""

    exit_code = 75


class HostMismatch(FaustAssignerError, RuntimeError):
    """A version, signature or attribute of Faust, mode or aiokafka differs from the supported host."""
