"""Tables: write-behind stores, files on disk, sets and windows."""
