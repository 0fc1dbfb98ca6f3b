"""The settings of one group; :mod:`faust_assigner.settings.service` declares them."""

from faust_assigner.settings.service import ServiceSettings

__all__ = ["ServiceSettings"]
