"""Every error this package raises on purpose.

    FaustAssignerError
    |- PlanInputError        the caller's own arguments contradict themselves (duplicate member ids, ...)
    |- MetadataRefused       bytes of a member could not be taken; says which limit or field
    |- ConfigError           an unknown or impossible setting
    |- HostMismatch          the installed Faust or aiokafka is not one our repairs were written for
    `- TryAgain              something outside did not answer; another time it may

What a stranger sent never surfaces as an exception from the planner: it is refused, counted and said.
"""

from __future__ import annotations

from typing import ClassVar


class FaustAssignerError(Exception):
    """The root: catch this to catch all of ours."""

    #: How a command that fails with it ends: 2 for what was asked, 75 for try again, 1 for all else.
    exit_code: ClassVar[int] = 1


class PlanInputError(FaustAssignerError, ValueError):
    """The arguments of :func:`faust_assigner.plan` contradict themselves."""

    exit_code = 2


class MetadataRefused(FaustAssignerError, ValueError):
    """A member's metadata passed a limit or has the wrong shape; the member counts as stateless."""


class ConfigError(FaustAssignerError, ValueError):
    """A setting has an unknown name or an impossible value."""

    exit_code = 2


class TryAgain(FaustAssignerError):
    """A broker or a storage did not answer."""

    exit_code = 75


class HostMismatch(FaustAssignerError, RuntimeError):
    """A version, a signature or an attribute of Faust, mode or aiokafka differs from what we rely on."""
