"""A pool of workers that shares out named tasks: evenly, and each stays where it runs."""
