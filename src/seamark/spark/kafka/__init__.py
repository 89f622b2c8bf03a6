"""Kafka as a source: its connector, its topics, and the positions in them."""
