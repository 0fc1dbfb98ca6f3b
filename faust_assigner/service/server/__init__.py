"""The service's outer layer: gRPC, authentication, health, metrics, signals."""
