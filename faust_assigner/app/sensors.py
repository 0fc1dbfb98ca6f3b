"""Calls each hook of an app's sensors for the sensors that have this hook.

Faust calls every hook of every sensor, and a record passes nine hooks. The ledger has three of them, and
the metrics none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from faust import Sensor
from faust.sensors.base import SensorDelegate

if TYPE_CHECKING:
    from faust.types.app import AppT

#: Hook in the path of records -> the hooks that demand its result.
HOOKS: Final[dict[str, tuple[str, ...]]] = {
    "on_message_in": (),
    "on_message_out": (),
    "on_stream_event_in": (),
    "on_stream_event_out": (),
    "on_table_get": (),
    "on_table_set": (),
    "on_table_del": (),
    "on_send_initiated": ("on_send_completed", "on_send_error"),
    "on_send_completed": (),
    "on_send_error": (),
}


class SensorsByHook(SensorDelegate):  # type: ignore[misc]
    """Faust's delegate, with a delegate of Faust's for each hook in ``HOOKS``.

    Streams and tables keep the bound methods of the hooks. So a method's sensors change in place.
    """

    def __init__(self, app: AppT, sensors: object = ()) -> None:
        super().__init__(app)
        self._by_hook = {hook: SensorDelegate(app) for hook in HOOKS}
        for hook, delegate in self._by_hook.items():
            setattr(self, hook, getattr(delegate, hook))
        self._sensors.update(sensors)
        self._sort()

    def add(self, sensor: Any) -> None:
        """Add a sensor."""
        super().add(sensor)
        self._sort()

    def remove(self, sensor: object) -> None:
        """Remove a sensor."""
        super().remove(sensor)
        self._sort()

    def _sort(self) -> None:
        for hook, delegate in self._by_hook.items():
            names = (hook, *HOOKS[hook])
            delegate._sensors = {one for one in self if any(_has(one, name) for name in names)}


def _has(sensor: object, hook: str) -> bool:
    """Whether the sensor does more at this hook than Faust's base class, which does nothing."""
    return getattr(getattr(sensor, hook), "__func__", None) is not getattr(Sensor, hook)


def install(app: AppT) -> None:
    """Make ``app`` call its sensors by hook; call it before the app makes streams or tables."""
    if not isinstance(app.sensors, SensorsByHook):
        app.sensors = SensorsByHook(app, app.sensors)
