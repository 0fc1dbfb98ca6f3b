"""A client of the assigner service for the conformance test."""
