"""The bytes that members exchange: a member's metadata in a JoinGroup, and the leader's answers."""
