"""A faster delegate of an app's sensors: each hook is called only for the sensors that implement it.

Faust calls every hook of every sensor, and a record passes nine hooks. The ledger's sensor
implements three of these hooks, and the sensor of the metrics none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from faust import Sensor
from faust.sensors.base import SensorDelegate

if TYPE_CHECKING:
    from faust.types.app import AppT

#: Hook that is called for records -> the hooks that get its result as an argument.
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
    """Faust's delegate of sensors, with a separate delegate for each hook in ``HOOKS``.

    Streams and tables keep references to the hooks' bound methods. So these methods stay the same when
    sensors are added or removed; only the sensors of their delegates change.
    """

    def __init__(self, app: AppT, sensors: object = ()) -> None:
        super().__init__(app)
        self._by_hook = {hook: SensorDelegate(app) for hook in HOOKS}
        for hook, delegate in self._by_hook.items():
            setattr(self, hook, getattr(delegate, hook))
        self._sensors.update(sensors)
        self._sort()

    def add(self, sensor: Any) -> None:
        """Add a sensor, also to the delegates of the hooks that it implements."""
        super().add(sensor)
        self._sort()

    def remove(self, sensor: object) -> None:
        """Remove a sensor, also from the delegates of the hooks."""
        super().remove(sensor)
        self._sort()

    def _sort(self) -> None:
        for hook, delegate in self._by_hook.items():
            names = (hook, *HOOKS[hook])
            delegate._sensors = {
                one for one in self if any(_implements_hook(one, name) for name in names)
            }


def _implements_hook(sensor: object, hook: str) -> bool:
    """Return whether the sensor implements this hook: Faust's base class does nothing."""
    return getattr(getattr(sensor, hook), "__func__", None) is not getattr(Sensor, hook)


def install(app: AppT) -> None:
    """Replace the sensor delegate of ``app``; call this before the app creates streams or tables."""
    if not isinstance(app.sensors, SensorsByHook):
        app.sensors = SensorsByHook(app, app.sensors)
