"""``faust-assigner scaler``: how many workers a group should have, and why; KEDA asks over gRPC."""
