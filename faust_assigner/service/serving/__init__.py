"""Every instance: the consumers that are connected to it, what they are told and what they say."""
