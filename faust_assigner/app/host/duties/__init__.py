"""What the host's methods do that ours replace, and where ours do it."""
