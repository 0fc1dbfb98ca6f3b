"""The proto matches KEDA's client."""

from __future__ import annotations

from faust_assigner.scaler.proto import externalscaler_pb2 as pb

#: Types as numbered in protobuf's descriptors.
DOUBLE, INT64, BOOL, STRING, MESSAGE = 1, 3, 8, 9, 11
#: Message -> field -> (number, type), as in KEDA's externalscaler.proto.
KEDA = {
    "ScaledObjectRef": {
        "name": (1, STRING),
        "namespace": (2, STRING),
        "scalerMetadata": (3, MESSAGE),
    },
    "IsActiveResponse": {"result": (1, BOOL)},
    "GetMetricSpecResponse": {"metricSpecs": (1, MESSAGE)},
    "MetricSpec": {
        "metricName": (1, STRING),
        "targetSize": (2, INT64),
        "targetSizeFloat": (3, DOUBLE),
    },
    "GetMetricsRequest": {"scaledObjectRef": (1, MESSAGE), "metricName": (2, STRING)},
    "GetMetricsResponse": {"metricValues": (1, MESSAGE)},
    "MetricValue": {
        "metricName": (1, STRING),
        "metricValue": (2, INT64),
        "metricValueFloat": (3, DOUBLE),
    },
}


def test_the_messages_are_kedas() -> None:
    """Names, numbers and types match; there are no further messages and fields."""
    messages = pb.DESCRIPTOR.message_types_by_name
    found = {
        name: {field.name: (field.number, field.type) for field in message.fields}
        for name, message in messages.items()
    }
    assert found == KEDA


def test_the_service_is_kedas() -> None:
    """A call's path has the package, the service and the call."""
    service = pb.DESCRIPTOR.services_by_name["ExternalScaler"]
    assert service.full_name == "externalscaler.ExternalScaler"
    assert {
        name: (method.input_type.name, method.output_type.name, method.server_streaming)
        for name, method in service.methods_by_name.items()
    } == {
        "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
        "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
        "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
        "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
    }


def test_bytes_of_kedas_client_are_understood() -> None:
    """Go encodes a ScaledObjectRef's map as a list of pairs."""
    pair = b"\x0a\x05group\x12\x04shop"
    raw = b"\x0a\x01s\x12\x04prod\x1a" + bytes([len(pair)]) + pair
    found = pb.ScaledObjectRef.FromString(raw)
    assert (found.name, found.namespace, dict(found.scalerMetadata)) == (
        "s",
        "prod",
        {"group": "shop"},
    )
