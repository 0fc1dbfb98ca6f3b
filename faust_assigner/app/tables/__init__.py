"""Tables: their stores, writes that wait for the changelog, files on disk, sets and windows."""
