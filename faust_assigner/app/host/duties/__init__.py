"""The duties of the host's methods that ours replace, and the places that fulfil these duties."""
