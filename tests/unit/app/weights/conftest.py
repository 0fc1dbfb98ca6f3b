"""Stop each test's weights thread when the test ends."""

from tests.support.weights import close_providers as close_providers
