"""A group's life without a broker: fleets, scenarios, and the simulator that computes their costs."""
