"""Every error this package raises on purpose.

    FaustAssignerError
    |- PlanInputError        the caller's own arguments contradict themselves (duplicate member ids, ...)
    |- MetadataRefused       bytes of a member could not be taken; says which limit or field
    |- ConfigError           an unknown or impossible setting
    `- HostMismatch          the installed Faust or aiokafka is not one our repairs were written for

What a stranger sent never surfaces as an exception from the planner: it is refused, counted and said.
"""

from __future__ import annotations


class FaustAssignerError(Exception):
    """The root: catch this to catch all of ours."""


class PlanInputError(FaustAssignerError, ValueError):
    """The arguments of :func:`faust_assigner.plan` contradict themselves."""


class MetadataRefused(FaustAssignerError, ValueError):
    """A member's metadata passed a limit or has the wrong shape; the member counts as stateless."""


class ConfigError(FaustAssignerError, ValueError):
    """A setting has an unknown name or an impossible value."""


class HostMismatch(FaustAssignerError, RuntimeError):
    """A version, a signature or an attribute of Faust, mode or aiokafka differs from what we rely on."""
