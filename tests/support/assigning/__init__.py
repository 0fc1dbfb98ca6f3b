"""Shared parts of the assigner service's tests: its processes, its consumers, its history."""
