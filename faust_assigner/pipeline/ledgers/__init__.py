"""Ledgers in: files and topics, parsed into accepted rows and refused ones."""
