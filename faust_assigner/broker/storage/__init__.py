"""What the broker keeps: records on RocksDB or in memory, and how a start knows that all is there."""
