"""The modules that depend on Faust: the assignor, its fixup, and the repairs of a rebalance."""

from faust_assigner.settings.extras import needs

with needs("faust"):
    import mode as mode
