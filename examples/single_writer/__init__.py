"""One active producer among several: the next takes over when it fails, and the old one is fenced."""
