"""Rows in files and their changelogs."""
