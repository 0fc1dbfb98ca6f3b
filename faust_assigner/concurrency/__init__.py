"""Helpers for asyncio tasks that every room may use."""
