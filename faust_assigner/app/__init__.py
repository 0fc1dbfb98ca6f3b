"""Everything that knows Faust: the assignor, the fixup that installs it, the repairs around a rebalance."""
