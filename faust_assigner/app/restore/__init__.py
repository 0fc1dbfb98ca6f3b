"""State comes back: files on disk, snapshots, and batched replay of a changelog."""
