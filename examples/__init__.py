"""Programs to run and to read; each is run by a test."""
