"""The encodings of a member's metadata in a JoinGroup, and of the leader's answers."""
