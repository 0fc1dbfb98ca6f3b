"""What app authors and our own tests share: real servers to test against, wire helpers, simulators."""
