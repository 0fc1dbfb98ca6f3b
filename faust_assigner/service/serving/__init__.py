"""The part that runs on every instance: serves connected consumers their commands."""
