"""No thread that follows weights outlives its test."""

from tests.support.weights import close_providers as close_providers
