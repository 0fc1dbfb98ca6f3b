"""Simulate a group without a broker: fleets, scenarios, and the simulator that computes their costs."""
