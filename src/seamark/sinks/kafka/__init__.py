"""Rows as records of Kafka topics, exactly once for readers with read_committed."""
