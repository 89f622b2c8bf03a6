"""File formats of state: checksums, LZ4 blocks, RocksDB archives, HDFS-backed maps."""
