"""Progress stores in a RocksDB on a local disk."""
