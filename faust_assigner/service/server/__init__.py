"""The service's outer side: gRPC, who may call, health, metrics, signals."""
