"""Test tools for app authors and this package: a pytest plugin, fleets of workers, servers."""
