"""The transaction manager, and the parts of one open transaction."""
