"""Faults drawn at random from the package's functions, planted one at a time; tests/README.md describes the tool."""
