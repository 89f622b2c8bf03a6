"""Where a checkpoint directory can lie, and how it is reached there."""
