"""The live view: the newest row of each key, in RocksDB or Redis."""
