"""The helpers of :mod:`faust_assigner.standby`: the placement of warm copies of each stateful task."""
