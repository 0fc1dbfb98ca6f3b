"""Answers KEDA's calls: the metric's name and value, and whether the workload needs workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc

from faust_assigner.errors import ConfigError, TryAgain
from faust_assigner.scaler.case import Recommendation
from faust_assigner.scaler.proto import externalscaler_pb2 as pb
from faust_assigner.scaler.recommender import Recommender
from faust_assigner.scaler.settings import Settings, read_metadata
from faust_assigner.service.errors import BadRequest

if TYPE_CHECKING:
    from faust_assigner.service.server.auth import Context

#: The metric is the recommended number of workers, so its target per worker is 1.
METRIC: Final = "workers"
TARGET: Final = 1
#: Seconds between two recommendations for an open stream.
STREAM_S: Final = 10.0
#: The maximum number of streams; each occupies one of the server's calls while open.
MOST_STREAMS: Final = 32
#: The length to which names are cut in errors and log lines.
_NAME_CHARS = 253


class ExternalScaler:
    """``externalscaler.ExternalScaler``: ``defaults`` are settings for missing keys of a ScaledObject.

    INVALID_ARGUMENT means a missing, unknown or bad key of the metadata; the error names this key. Bytes that
    are no valid message have this code, too.
    UNAVAILABLE means that the group has not answered for longer than ``holdSeconds``; KEDA then uses the
    fallback of the ScaledObject.
    """

    def __init__(self, recommender: Recommender, defaults: Mapping[str, str]) -> None:
        self._recommender, self._defaults = recommender, defaults
        self._streams = 0

    async def IsActive(self, request: Any, context: Context) -> Any:
        """Return whether the recommended number of workers is above 0."""
        async with _errors_as_status(context):
            found = await self._ask(request)
            return pb.IsActiveResponse(result=found.is_active)

    async def StreamIsActive(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """Send the result of IsActive now and after each change, until the caller ends the call."""
        async with _errors_as_status(context):
            if self._streams >= MOST_STREAMS:
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_STREAMS} streams are open already"
                )
            self._streams += 1
            try:
                told: bool | None = None
                while True:
                    found = await self._ask(request)
                    if found.is_active != told:
                        told = found.is_active
                        yield pb.IsActiveResponse(result=told)
                    await asyncio.sleep(STREAM_S)
            finally:
                self._streams -= 1

    async def GetMetricSpec(self, request: Any, context: Context) -> Any:
        """Return one metric with the target 1: the autoscaler runs as many workers as the metric."""
        async with _errors_as_status(context):
            self._settings(request)
            spec = pb.MetricSpec(
                metricName=METRIC, targetSize=TARGET, targetSizeFloat=float(TARGET)
            )
            return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: Any, context: Context) -> Any:
        """Return the recommended number of workers."""
        async with _errors_as_status(context):
            if request.metricName not in ("", METRIC):
                raise ConfigError(
                    f"metricName: must be {METRIC}, got {request.metricName[:_NAME_CHARS]!r}"
                )
            size = (await self._ask(request.scaledObjectRef)).size
            value = pb.MetricValue(
                metricName=METRIC, metricValue=size, metricValueFloat=float(size)
            )
            return pb.GetMetricsResponse(metricValues=[value])

    def _settings(self, ref: Any) -> Settings:
        metadata = dict(ref.scalerMetadata)
        return read_metadata(metadata, self._recommender.group_id, self._defaults)

    async def _ask(self, ref: Any) -> Recommendation:
        name = f"{ref.namespace}/{ref.name}"[:_NAME_CHARS]
        shown = "".join(one if one.isprintable() else "?" for one in name)
        return await self._recommender.recommendation(shown, self._settings(ref))


@contextlib.asynccontextmanager
async def _errors_as_status(context: Context) -> AsyncIterator[None]:
    """Convert an error that the block raises into the call's status."""
    try:
        yield
    except (BadRequest, ConfigError) as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except TryAgain as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
