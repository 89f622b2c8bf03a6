"""Where a checkpoint directory is: on a disk, in an object store, or behind Hadoop."""
