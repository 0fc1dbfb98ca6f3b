"""One small module per API family of the Kafka protocol."""
