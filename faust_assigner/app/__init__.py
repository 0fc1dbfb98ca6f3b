"""The modules that depend on Faust: the assignor, its fixup, and the repairs around a rebalance."""
