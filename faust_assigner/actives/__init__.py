"""The helpers of :mod:`faust_assigner.sticky`: counts per group and member, then partition numbers."""
