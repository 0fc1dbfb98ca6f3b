"""Shared parts of the groups' tests: members of many kinds, scripts, benches on virtual time."""
