"""Reading Spark's plans: sources, operators, what they compute, what really runs."""
