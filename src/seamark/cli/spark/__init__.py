"""``seamark spark``: commands on the checkpoint directory of any Spark query."""
