"""``seamark demo``: a pipeline is killed in the middle of an epoch, and loses no row."""
