"""The helpers of :mod:`faust_assigner.sticky`: they choose task counts, then partition numbers."""
