"""A group's life played without a broker: fleets, scenarios, and the simulator that costs them."""
