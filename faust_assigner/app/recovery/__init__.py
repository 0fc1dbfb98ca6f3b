"""Recovery of tables, one partition at a time: replay, snapshots and progress."""
