"""The storage of the broker: records in RocksDB or in memory, and the check for lost data at a start."""
