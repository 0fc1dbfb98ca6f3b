"""The log message of a fenced request, with both epochs; formatted only when it is logged."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    SyncGroup,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fenced request and the present state of its group. ``str()`` costs O(members)."""

    group_id: str
    group: Group | None
    event: Request
    error: Code

    def __str__(self) -> str:
        member_id, instance_id, epoch = _request_identity(self.event)
        said = f"group {self.group_id}: {type(self.event).__name__} of {member_id or 'nobody'}"
        if epoch is not None:
            said += f" with epoch {epoch}"
        return f"{said} is refused with {self.error.name}: {self._why(member_id, instance_id)}"

    def _why(self, member_id: str, instance_id: str | None) -> str:
        if self.group is None:
            return "there is no such group"
        view = self.group.describe()
        word = "generation" if view.group_type == "classic" else "group epoch"
        now = f"{word} {view.epoch}, {view.state}"
        if instance_id is not None:
            for member in view.members:
                if member.instance_id == instance_id and member.member_id != member_id:
                    return f"instance {instance_id} is {member.member_id} at epoch {member.epoch} ({now})"
        for member in view.members:
            if member.member_id == member_id:
                return f"it is at epoch {member.epoch} ({now})"
        return f"it is not a member ({now})"


def _request_identity(event: Request) -> tuple[str, str | None, int | None]:
    """Return the member id, instance id and epoch or generation of a request."""
    match event:
        case ConsumerGroupHeartbeat():
            return event.member_id, event.instance_id, event.member_epoch
        case SyncGroup() | Heartbeat() | CommitOffsets():
            return event.member_id, event.instance_id, event.generation
        case FetchOffsets():
            return event.member_id or "", None, event.epoch
        case JoinGroup():
            return event.member_id, event.instance_id, None
        case LeaveGroup():
            first = event.leavers[0] if event.leavers else None
            return (
                (first.member_id, first.instance_id, None)
                if first is not None
                else ("", None, None)
            )
        case _:
            return "", None, None
