"""Test tools for app authors and this package: real servers, wire helpers, simulators."""
