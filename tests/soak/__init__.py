"""Real workers in rounds of random faults; tables and outputs against a model; ``make soak``."""
