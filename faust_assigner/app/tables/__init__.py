"""Tables: stores, writes behind the changelog, files on disk, sets and windows."""
