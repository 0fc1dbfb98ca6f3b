"""The embedded Kafka-protocol broker around the coordinator."""

from faust_assigner.settings.extras import needs

with needs("broker"):
    from faust_assigner.broker.embedded import EmbeddedBroker
    from faust_assigner.broker.settings import Settings

__all__ = ["EmbeddedBroker", "Settings"]
