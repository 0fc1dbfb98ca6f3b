"""The embedded Kafka-protocol broker around the coordinator."""
