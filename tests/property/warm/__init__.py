"""Warm-ups: state moves before tasks do, and tasks return to their former owners."""
