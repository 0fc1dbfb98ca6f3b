"""The errors that this package defines.

    FaustAssignerError
    |- PlanInputError        the caller's arguments contradict each other (duplicate member ids, ...)
    |- MetadataRefused       a member's metadata was refused; the message names the limit or the field
    |- ConfigError           an unknown setting, or a setting with an impossible value
    |- MissingExtra          an optional package is not installed; the message names the extra to install
    |- HostMismatch          the installed Faust, mode or aiokafka is not supported by this package
    `- TryAgain              an external system did not answer; a later attempt may succeed

Invalid data from other members raises no error in the planner. Such data is refused, counted and logged.
"""

from __future__ import annotations

from typing import ClassVar


class FaustAssignerError(Exception):
    """The base class of all errors of this package."""

    #: The exit code of a command that fails with this error: 2 for wrong usage, 75 for "try again", else 1.
    exit_code: ClassVar[int] = 1


class PlanInputError(FaustAssignerError, ValueError):
    """An argument of :func:`faust_assigner.plan` is invalid, or two arguments contradict each other."""

    exit_code = 2


class MetadataRefused(FaustAssignerError, ValueError):
    """A member's metadata exceeds a limit or has the wrong shape; the member counts as stateless."""

    #: The member's URL, if it could be read; else "".
    url = ""


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
    """A version, signature or attribute of Faust, mode or aiokafka is not supported by this package."""
