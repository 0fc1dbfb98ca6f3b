"""The helpers of :mod:`faust_assigner.standby`, which places the standbys of each stateful task."""
