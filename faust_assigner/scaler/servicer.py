"""KEDA's calls: which metric there is, what its value is, whether the workload runs at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc

from faust_assigner.errors import ConfigError, TryAgain
from faust_assigner.scaler.proto import externalscaler_pb2 as pb
from faust_assigner.scaler.recommend import Recommendation
from faust_assigner.scaler.recommender import Recommender
from faust_assigner.scaler.settings import Settings, read_metadata

#: The metric is the recommended number of workers, so each worker's share of it is to be 1.
METRIC: Final = "workers"
TARGET: Final = 1
#: How often an open stream looks, in seconds.
STREAM_S: Final = 10.0
#: Streams at the same time; each takes one of the server's calls as long as it is open.
MOST_STREAMS: Final = 32
#: Characters of a name that an error or a log line repeats.
_NAME_CHARS = 253


class ExternalScaler:
    """``externalscaler.ExternalScaler``. ``defaults`` are settings for keys that a ScaledObject leaves out.

    INVALID_ARGUMENT names the key of the metadata that is missing, unknown or bad. UNAVAILABLE: the group
    cannot be looked at for longer than ``holdSeconds``; KEDA then uses the fallback of the ScaledObject.
    """

    def __init__(self, recommender: Recommender, defaults: Mapping[str, str]) -> None:
        self._recommender, self._defaults = recommender, defaults
        self._streams = 0

    async def IsActive(self, request: Any, context: Any) -> Any:
        """False where ``min`` is 0 and there is nothing to do."""
        async with _spoken(context):
            found = await self._ask(request)
            return pb.IsActiveResponse(result=found.is_active)

    async def StreamIsActive(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The same at once, and after each change, until the caller ends the call."""
        async with _spoken(context):
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

    async def GetMetricSpec(self, request: Any, context: Any) -> Any:
        """One metric with the target 1: the autoscaler runs as many workers as the metric says."""
        async with _spoken(context):
            self._settings(request)
            spec = pb.MetricSpec(
                metricName=METRIC, targetSize=TARGET, targetSizeFloat=float(TARGET)
            )
            return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: Any, context: Any) -> Any:
        """The recommended number of workers."""
        async with _spoken(context):
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
async def _spoken(context: Any) -> AsyncIterator[None]:
    """Errors as the call's status."""
    try:
        yield
    except ConfigError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except TryAgain as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
