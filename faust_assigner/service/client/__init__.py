"""The asyncio client for consumers: reconnects, and reports when ownership of partitions ends."""

from faust_assigner.settings.extras import needs

with needs("service"):
    from faust_assigner.service.client.channel import Access
    from faust_assigner.service.client.client import AssignerClient
    from faust_assigner.service.client.commands import (
        AbortWarm,
        Assigned,
        Command,
        Grant,
        Lost,
        Release,
        Standbys,
        Warm,
    )
    from faust_assigner.service.client.handlers import Handlers
    from faust_assigner.service.client.registration import Registration, Retry
    from faust_assigner.service.client.router import Route, Router
    from faust_assigner.service.handoff import TopicPartition

__all__ = [
    "AbortWarm",
    "Access",
    "Assigned",
    "AssignerClient",
    "Command",
    "Grant",
    "Handlers",
    "Lost",
    "Registration",
    "Release",
    "Retry",
    "Route",
    "Router",
    "Standbys",
    "TopicPartition",
    "Warm",
]
