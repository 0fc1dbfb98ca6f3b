"""``faust-assigner scaler``: the recommended number of workers with its reasons, for KEDA over gRPC."""
