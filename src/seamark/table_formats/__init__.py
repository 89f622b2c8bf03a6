"""What sinks and sources share about tables of Delta and Iceberg: how far to trust one."""
