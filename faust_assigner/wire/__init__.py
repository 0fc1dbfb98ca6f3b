"""Bytes between members: a member's metadata in a JoinGroup, and the leader's answers."""
