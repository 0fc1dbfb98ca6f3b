"""The part that runs on every instance: connected consumers, their commands, their answers."""
