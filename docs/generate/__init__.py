"""The pages of docs/reference/ that are generated from tables in the code."""
