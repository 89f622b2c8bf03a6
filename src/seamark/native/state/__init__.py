"""Reading and repartitioning the rows of state."""
