"""Recovery of tables by partition: replay, snapshots and progress."""
